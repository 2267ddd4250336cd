"""Matching: how matches follow from the inputs of a view of patterns and from its rules."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import Row

from truelog.patterns.catalogue import Sources
from truelog.patterns.matcher import Event
from truelog.patterns.outcomes import Outcome, outcomes
from truelog.patterns.versions import Change, Version, versions
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import Fold
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


@dataclass(frozen=True, kw_only=True)
class Matching(Fold):
    """A fold that also needs the rules, which `with_changes` gives it.

    rules: the side table with the records of rules.
    """

    rules: Table
    sources: Sources
    most: int

    @property
    def follows_from(self) -> Sequence[Table]:
        return (self.inputs, self.rules)

    def states(self, table: Table, states_of: Callable[[Table], DataFrame]) -> DataFrame:
        known = self.with_changes(collected(self.rules, states_of(self.rules)))
        return known.folded(table, self.inputs.stored(states_of(self.inputs)))

    def versions(self, changes: Iterable[Change]) -> list[Version]:
        return versions(changes, self.sources)

    def with_changes(self, changes: Iterable[Change]) -> Fold:
        """The fold for the rules that follow from these records."""
        return self.with_versions(self.versions(changes))

    def with_versions(self, known: Sequence[Version]) -> Fold:
        """The fold for these versions of rules."""
        return Fold(
            self.inputs, self.by, partial(_match_groups, known, self.most), lambda matched: matched, self.failed
        )


def matching_of(table: Table) -> Matching:
    """How the rows of a view of patterns come about."""
    assert isinstance(table.derivation, Matching)  # noqa: S101
    return table.derivation


def compile_matching(view: Patterns, inputs: Table, rules: Table) -> Matching:
    return Matching(
        inputs, view.by, view.fold, lambda matched: matched, rules=rules, sources=view.sources, most=view.most
    )


def collected(rules: Table, states: DataFrame) -> list[Change]:
    """The records of rules, which are few, given the states of their table."""
    return [Change(*_in_order(row)) for row in rules.stored(states).collect()]


def with_changes(compiled: CompiledView, changes: Iterable[Change]) -> CompiledView:
    """The view with the fold for these rules."""
    own = compiled.own
    known = replace(own, derivation=matching_of(own).with_changes(changes))
    return CompiledView((known, *compiled.sides))


def _in_order(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in Change._fields)


def _match_groups(known: Sequence[Version], most: int, inputs: DataFrame) -> DataFrame:
    """The matches in the inputs of whole groups."""

    def match(group: pa.Table) -> pa.Table:
        return _match_group(known, most, group)

    return inputs.groupBy("entity_id", "entity").applyInArrow(match, from_arrow_schema(ROWS))


def _match_group(known: Sequence[Version], most: int, inputs: pa.Table) -> pa.Table:
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
