"""Matching: how matches follow from the inputs of a view of patterns and from its rules."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.patterns.matcher import Event
from truelog.patterns.outcomes import Outcome, outcomes
from truelog.patterns.rule import Rule
from truelog.patterns.versions import Version, reader
from truelog.tables.patterns.judging import Judging, Run
from truelog.tables.table import Table
from truelog.views.patterns import Patterns

_TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema(
    [
        ("entity_id", pa.string()),
        ("entity", pa.string()),
        ("match_id", pa.string()),
        ("rule", pa.string()),
        ("rule_version", pa.int32()),
        ("outcome", pa.string()),
        ("first_time", _TIME),
        ("last_time", _TIME),
        ("settled_after", _TIME),
        ("events", pa.string()),
        ("shown", pa.string()),
    ]
)
_OF_EVENT = Event._fields[:-1]  # without the values
_LATEST_TIME = 253_402_300_799_999_999  # the end of the year 9999


def compile_matching(view: Patterns, inputs: Table, rules: Table) -> Judging:
    """How the matches of a view of patterns come about."""
    read = reader(view.sources)
    return Judging(
        inputs, view.by, view.fold, lambda rows: rows, rules=rules, read=read, judge=partial(_judge, view.most)
    )


def _judge(most: int, known: Sequence[Version[Rule]]) -> Run:
    return partial(_match_groups, known, most)


def _match_groups(known: Sequence[Version[Rule]], most: int, inputs: DataFrame) -> DataFrame:
    """The matches in the inputs of whole groups."""

    def match(group: pa.Table) -> pa.Table:
        return _match_group(known, most, group)

    return inputs.groupBy("entity_id", "entity").applyInArrow(match, from_arrow_schema(ROWS))


def _match_group(known: Sequence[Version[Rule]], most: int, inputs: pa.Table) -> pa.Table:
    """The matches in the inputs of one group. A group with too many inputs has none."""
    if inputs.num_rows > most:
        return ROWS.empty_table()
    entity_id, entity = (inputs.column(name)[0].as_py() for name in ("entity_id", "entity"))
    found = outcomes(known, entity, events(inputs))
    return pa.Table.from_pylist([{"entity_id": entity_id, "entity": entity} | _row(each) for each in found], ROWS)


def events(inputs: pa.Table) -> list[Event]:
    """The events of a table of inputs."""
    rows = inputs.select([*_OF_EVENT, "event"]).to_pylist()
    return [Event(**{name: row[name] for name in _OF_EVENT}, values=json.loads(row["event"])) for row in rows]


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "match_id": outcome.match_id,
        "rule": outcome.rule,
        "rule_version": outcome.version,
        "outcome": outcome.outcome,
        "first_time": outcome.first_time,
        "last_time": outcome.last_time,
        "settled_after": None if outcome.settled_after is None else min(outcome.settled_after, _LATEST_TIME),
        "events": json.dumps(outcome.events),
        "shown": None if outcome.shown is None else json.dumps(outcome.shown),
    }
