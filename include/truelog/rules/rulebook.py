"""The rulebook: the versions of rules that a view of patterns has counted, and what they have found."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from truelog.lag.time_steps import TimeRange
from truelog.patterns import rule as rules
from truelog.patterns import text_form
from truelog.patterns.rule import Rule
from truelog.patterns.versions import Version, reader, versions
from truelog.rules import records
from truelog.rules.course import Course, Found, read_course
from truelog.storage.database import Connection, names, read_value
from truelog.support import timestamps
from truelog.support.errors import BadInput
from truelog.views.patterns import SETTLED, Patterns

_WAITING = "waiting"  # in place of the outcome of a match that a later event can still change
_COLUMNS = ("match_id", "entity_id", "outcome", "first_time", "last_time", "settled_after", "shown", "events")
_ROWS = sql.SQL(
    "(SELECT rule, rule_version, match_id, entity_id, first_time, last_time, settled_after, shown, events, "  # noqa: S608  constants
    f"CASE WHEN {SETTLED} THEN outcome ELSE {{waiting}} END AS outcome FROM {{table}}) AS matches"
)
_CLOCK = sql.SQL("(SELECT time FROM truelog.clock JOIN truelog.deployed USING (view, version) WHERE view = {view})")


@dataclass(frozen=True)
class KnownRule:
    """A version of a rule, with the number of its rows by outcome, which may be `waiting`.

    begins: when the version's record reached the log.
    ended: when it was changed or retired; None while it is in force.
    """

    rule: str
    version: int
    by: str
    definition: str
    begins: datetime
    ended: datetime | None
    outcomes: Mapping[str, int]

    @property
    def text(self) -> str:
        """The rule in the form for people."""
        return text_form.write(rules.read(json.loads(self.definition)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "version": self.version,
            "in_force": self.ended is None,
            "by": self.by,
            "definition": json.loads(self.definition),
            "begins": timestamps.to_text(self.begins),
            "ended": self.ended and timestamps.to_text(self.ended),
            "outcomes": dict(self.outcomes),
        }


def read_rules(
    connection: Connection, name: str, view: Patterns, only: Collection[str] | None = None
) -> list[KnownRule]:
    """All versions that the view has counted, or only those of these rules, by rule and version.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    changes = records.read_changes(connection, name, view, only)
    counts = _read_counts(connection, name, only)
    return sorted(
        (_known(each, counts) for each in versions(changes, reader(view.sources))),
        key=lambda known: (known.rule, known.version),
    )


def of_rule(known: Sequence[KnownRule], rule: str) -> list[KnownRule]:
    """The versions of one rule.

    Raises:
        BadInput: there is no such rule.
    """
    found = [each for each in known if each.rule == rule]
    if not found:
        listed = ", ".join(dict.fromkeys(each.rule for each in known)) or "no rules yet"
        raise BadInput(f"there is no rule {rule}; the view has {listed}. A rule appears when the stream has read it.")
    return found


def latest_matches(connection: Connection, name: str, rule: str, limit: int) -> list[dict[str, Any]]:
    """The latest rows of a rule, the newest first. Those that wait come last, because a later event may end them."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            sql.SQL(
                "SELECT rule_version AS version, {} FROM {} WHERE rule = %s "
                "ORDER BY outcome = {}, last_time DESC NULLS LAST, match_id LIMIT %s"
            ).format(names(_COLUMNS), _rows(connection, name), _WAITING),
            (rule, limit),
        ).fetchall()
    return [_plain(each) for each in found]


def matches_over_time(connection: Connection, name: str, rule: str, span: TimeRange) -> Course:
    """The number of the rule's rows over time, by the time of their last event."""
    found = Found(_rows(connection, name), "rule", "last_time", "outcome")
    return read_course(connection, found, rule, span)


def count_oversized(connection: Connection, name: str) -> int:
    """How many entities have more events, at least in one span, than the view searches."""
    return int(
        read_value(
            connection,
            """SELECT count(DISTINCT ("group" ->> 0, "group" ->> 1)) FROM truelog.oversized_group """
            "JOIN truelog.deployed USING (view, version) WHERE view = %s",
            (name,),
        )
    )


def _rows(connection: Connection, name: str) -> sql.Composed:
    """The rows of all rules, with the outcomes that the clock of the served version allows."""
    clock = _CLOCK.format(view=name)
    return _ROWS.format(table=records.table_of(connection, name), clock=clock, waiting=_WAITING)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its JSON read and its times as text."""
    texts = {key: timestamps.to_text(each) for key, each in row.items() if isinstance(each, datetime)}
    read = {key: json.loads(row[key]) for key in ("shown", "events") if row[key] is not None}
    return {**row, **texts, **read}


def _known(version: Version[Rule], counts: Mapping[tuple[str, int], dict[str, int]]) -> KnownRule:
    name, number = version.rule.name, version.number
    return KnownRule(
        name,
        number,
        version.rule.entity,
        str(version.change.definition),
        records.time_of(version.change.logged_at),
        None if version.ended_at is None else records.time_of(version.ended_at),
        counts.get((name, number), {}),
    )


def _read_counts(
    connection: Connection, name: str, only: Collection[str] | None
) -> dict[tuple[str, int], dict[str, int]]:
    """The number of rows by rule and version, and by outcome."""
    query = sql.SQL(
        "SELECT rule, rule_version, outcome, count(*) FROM {} WHERE %(only)s::text[] IS NULL OR rule = ANY(%(only)s) "
        "GROUP BY 1, 2, 3 ORDER BY 3"
    ).format(_rows(connection, name))
    counts: dict[tuple[str, int], dict[str, int]] = {}
    wanted = {"only": None if only is None else list(only)}
    for rule, version, outcome, count in connection.execute(query, wanted).fetchall():
        counts.setdefault((rule, version), {})[outcome] = count
    return counts
