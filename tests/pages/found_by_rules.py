"""Rules, searches and what they have found, as merges store them, for tests of the pages of rules."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.builders.views import a_view, forget
from tests.chosen_views import copy_views
from tests.pages.plausible import HOSTILE
from truelog.patterns import text_form
from truelog.rules.names import HITS, MATCHES
from truelog.searches.search import definition
from truelog.storage.database import Connection
from truelog.support.settings import PROJECT

RULE, SEARCH = "payments_from_another_country", "outages"
_TABLES = """
CREATE TABLE state.matches_v2_rules (topic text, partition int, "offset" bigint, logged_at bigint, rule text, verb text,
    definition text, begins text);
CREATE TABLE state.search_hits_v2_searches (topic text, partition int, "offset" bigint, logged_at bigint, search text,
    verb text, definition text, begins text);
CREATE TABLE state.matches_v2 (entity_id text, entity text, span_end timestamptz, match_id text, rule text,
    rule_version int, outcome text, first_time timestamptz, last_time timestamptz, settled_after timestamptz,
    events text, shown text);
CREATE TABLE state.search_hits_v2 (document text, logged_at timestamptz, search text, search_version int,
    event_type text, event_time timestamptz, snippet text)
"""
_GONE = "DROP TABLE state.matches_v2_rules, state.search_hits_v2_searches, state.matches_v2, state.search_hits_v2"
_RECORD = "INSERT INTO {} VALUES ('rule', 0, %s, %s, %s, 'set', %s, '{{}}')"
_MATCH = "INSERT INTO state.matches_v2 VALUES (%s, 'customer', '2026-01-01', %s, %s, 2, %s, %s, %s, %s, %s, %s)"
_HIT = "INSERT INTO state.search_hits_v2 VALUES (%s, %s, %s, 1, 'tweet', %s, %s)"


@contextmanager
def found_by_rules(connection: Connection, folder: Path) -> Iterator[None]:
    """A rule with two versions and ten matches, a search with three hits, and a search that found nothing."""
    copy_views(folder, MATCHES, HITS)
    for view, version in ((MATCHES, 2), (HITS, 2)):
        a_view(connection, view, version)
    for statement in _TABLES.strip().split(";\n"):
        connection.execute(statement.encode())
    _fill(connection)
    try:
        yield
    finally:
        connection.execute(_GONE)
        for view in (MATCHES, HITS):
            forget(connection, view)
            (folder / f"{view}.py").unlink()


@contextmanager
def matches_that_wait(connection: Connection, count: int) -> Iterator[None]:
    """Matches of the rule that are newer than all others, and that a later event can still change."""
    newest = datetime.now(UTC) - timedelta(minutes=5)
    for n in range(count):
        facts = (newest, newest, newest + timedelta(days=1), "[]", "{}")
        connection.execute(_MATCH, (HOSTILE[0], f"waiting{n}", RULE, "found", *facts))
    try:
        yield
    finally:
        connection.execute("DELETE FROM state.matches_v2 WHERE match_id LIKE 'waiting%'")


def _fill(connection: Connection) -> None:
    """The newest rows are ten minutes old, so a test that runs for minutes counts the same."""
    now = datetime.now(UTC)
    document, _ = text_form.parse((PROJECT / "include" / "rules" / f"{RULE}.rule").read_text())
    changed = document | {"within": "5 minutes"}
    for offset, each in enumerate((document, changed)):
        record = (offset, _micros(now - timedelta(hours=9 - offset)), RULE, json.dumps(each))
        connection.execute(_RECORD.format("state.matches_v2_rules").encode(), record)
    for offset, (search, query) in enumerate(((SEARCH, "power outage"), ("nothing", "zebra"))):
        record = (offset, _micros(now - timedelta(hours=9)), search, definition("tweet", query))
        connection.execute(_RECORD.format("state.search_hits_v2_searches").encode(), record)
    for n in range(10):
        last = now - timedelta(minutes=30 * n + 10)
        events = [
            {"topic": "payment", "partition": 0, "offset": 10 * n + step, "step": name, "time": f"{last:%FT%TZ}"}
            for step, name in enumerate(("failed", "succeeded"))
        ]
        outcome = "retracted" if n == 3 else "found"
        facts = (last - timedelta(minutes=1), last, None, json.dumps(events), json.dumps({"failures": 5 + n}))
        connection.execute(_MATCH, (HOSTILE[n % 3], f"match{n}", RULE, outcome, *facts))
    for n in range(3):
        at = now - timedelta(minutes=15 * n + 5)
        connection.execute(_HIT, (f"tweet:0:{n}", at, SEARCH, at, f"a power outage in {HOSTILE[n]}"))


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
