"""Stored searches: how many texts one core compares with many searches, and how soon one search more counts.

The first part is what the Python processes of the executors do, in this process. The second part is a platform with
so many searches, to which one is added by command.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate, count
from random import Random
from typing import Any

import psutil

import runtime
from bench import streaming
from bench.row import OURS, Row
from bench.steps import event
from commands.set_search import MOST
from searches.sources import SOURCES
from tests.beat import first
from tests.scenes.applications import Application
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.rules import sending
from truelog.searches import query
from truelog.searches.percolator import Known, Percolator
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.tables.searches.searching import hits

VIEWS = ("search_hits",)
NUMBERS = (100_000, 1_000_000)  # of searches in one process
TEXTS = 5_000

_LEARNED = 4_096  # texts after which the index no longer changes
_WORDS, _WORDS_OF_TEXT = 100_000, 20
_TOPIC, _FIELDS = "post", {"post": ("text",)}
_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0
_SEED = 34
_HIT = "SELECT FROM views.search_hits WHERE search = 'added'"


class Language:
    """Words as frequent as those of a language: the second is half as frequent as the first, and so on."""

    def __init__(self) -> None:
        self.chosen = Random(_SEED)
        self._words = [f"w{number:x}" for number in range(_WORDS)]
        self._weights = list(accumulate(1 / number for number in range(1, _WORDS + 1)))

    def words(self, number: int) -> list[str]:
        return self.chosen.choices(self._words, cum_weights=self._weights, k=number)

    def text(self) -> str:
        return " ".join(self.words(_WORDS_OF_TEXT))

    def search(self) -> str:
        """One of four kinds: two words, one word and one of two, a phrase, and a word without another."""
        one, other, third = self.chosen.choices(self._words, k=3)
        kinds = (f"{one} {other}", f"{one} ({other} OR {third})", f'"{one} {other}"', f"{one} NOT {other}")
        return self.chosen.choice(kinds)


def in_process() -> Iterator[Row]:
    """Texts per second of one core, for each number of searches."""
    for number in NUMBERS:
        language, before = Language(), psutil.Process().memory_info().rss
        known = [
            Known(f"s{n}", 1, _TOPIC, query.parse(language.search(), _FIELDS[_TOPIC]), {}, None) for n in range(number)
        ]
        percolator = Percolator(known)
        inputs = [_input(n, language.text()) for n in range(_LEARNED + TEXTS)]
        list(hits(percolator, _FIELDS, inputs[:_LEARNED]))
        grown, began = psutil.Process().memory_info().rss - before, time.process_time()
        found = sum(1 for _ in hits(percolator, _FIELDS, inputs[_LEARNED:]))
        seconds = time.process_time() - began
        note = f"of one core, {found:,} hits, after {_LEARNED:,} texts"
        yield Row(
            f"texts of {_WORDS_OF_TEXT} words against {number:,} searches",
            OURS,
            TEXTS / seconds,
            "alone",
            note,
            more={"events": TEXTS, "seconds": seconds, "megabytes": grown / 1e6, "hits": found},
        )


def _input(number: int, text: str) -> dict[str, Any]:
    place = {"topic": _TOPIC, "partition": 0, "offset": number, "document": f"{_TOPIC}:0:{number}"}
    return place | {"logged_at": datetime.now(UTC), "at": 0, "event": json.dumps({"text": text})}


def run(settings: Settings, application: Application) -> Iterator[Row]:
    """Add the last search that the platform allows. The application must run the views."""
    runtime.up(settings, ["commands"], tethered=True)
    language = Language()
    with connect(settings, autocommit=True) as connection:
        first(
            _LOOK_SECONDS,
            lambda: bool(
                connection.execute("SELECT FROM truelog.published_place WHERE view = 'search_hits'").fetchall()
            ),
            within=_PATIENCE_SECONDS,
            what="the view `search_hits`",
        )
        began = time.time()
        _send(settings, (_search(f"s{number}", language.search()) for number in range(MOST - 1)))
        yield _row(f"{MOST - 1:,} searches, sent at once", _merged(settings, connection, application) - began)
        states = "SELECT FROM truelog.command_key WHERE event = 'stored_search' HAVING count(*) = %s"
        first(
            _LOOK_SECONDS,
            lambda: bool(connection.execute(states, (MOST - 1,)).fetchall()),
            within=_PATIENCE_SECONDS,
            what="the states of the searches",
        )
        began = time.time()
        added = sending.send(settings, sending.SET_SEARCH, SOURCES, search="added", event_type=_TOPIC, query="zither")
        if not added.in_log:
            raise RuntimeError(f"the search is not in the log: {added}")
        decided = time.time()
        yield _row(f"the command that adds a search to {MOST - 1:,}", decided - began)
        yield _row("its merge, with no texts", _merged(settings, connection, application) - decided)
        for _ in range(2):  # the first text also sends the searches to the executors
            yield _row("a text that only it finds", _found(settings, connection, application))


def _found(settings: Settings, connection: Connection, application: Application) -> float:
    """The seconds until a text is a hit of the added search."""
    before = len(connection.execute(_HIT).fetchall())
    _send(settings, [_post("zither")])
    began = time.time()

    def is_found() -> bool:
        streaming.require_running(application)
        return len(connection.execute(_HIT).fetchall()) > before

    return first(_LOOK_SECONDS, is_found, within=_PATIENCE_SECONDS, what="the hit") - began


def _merged(settings: Settings, connection: Connection, application: Application) -> float:
    """When the view has merged all searches."""
    ends = topics.end_offsets(settings, ["stored_search"])

    def is_merged() -> bool:
        streaming.require_running(application)
        return streaming.positions(connection, "search_hits").covers(ends)

    return first(_LOOK_SECONDS, is_merged, within=_PATIENCE_SECONDS, what="the merge of the searches")


_numbers = count()


def _send(settings: Settings, records: Iterator[OutgoingRecord] | list[OutgoingRecord]) -> None:
    with KafkaSender(settings, ["stored_search", _TOPIC]) as sender:
        for each in records:
            sender.send(each)


def _search(name: str, text: str) -> OutgoingRecord:
    fields = {"verb": "set", "event_type": _TOPIC, "query": text, "begins": "{}", "event_id": f"search {name}"}
    return event("stored_search", name, search=name, **fields)


def _post(text: str) -> OutgoingRecord:
    number = next(_numbers)
    return event("post", f"post {number}", post_id=f"post {number}", author_id="ann", verb="posted", text=text)


def _row(job: str, seconds: float) -> Row:
    return Row(job, OURS, 1 / seconds, "alone", "", more={"seconds": seconds})
