"""Matching: how matches follow from the inputs of a view of patterns and from its rules.

Spark sends the inputs of whole groups one after another. A batch of Arrow has many groups, and they are searched
together.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.patterns.outcomes import Outcome
from truelog.patterns.rule import Rule
from truelog.patterns.span import LATEST, Spans, spans_of
from truelog.patterns.together.events import Events, Ints
from truelog.patterns.together.search import outcomes_of_groups
from truelog.patterns.versions import Version, reader
from truelog.schema.names import COORDINATES
from truelog.tables.patterns.judging import Judging, Run
from truelog.tables.table import Table
from truelog.views.patterns import Patterns

_TIME = pa.timestamp("us", "UTC")
ROWS = pa.schema(
    [
        ("entity_id", pa.string()),
        ("entity", pa.string()),
        ("span_end", _TIME),
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
ARRIVED = ("logged_at", *COORDINATES)  # the order in which the inputs of a group reached the log
_SIZE = "_size"  # column with the number of inputs of a group
_PORTION = 4_096  # matches in one Arrow batch


def compile_matching(view: Patterns, inputs: Table, rules: Table) -> Judging:
    """How the matches of a view of patterns come about."""
    read, judge = reader(view.sources), partial(_judge, view)
    return Judging(inputs, view.by, view.fold, lambda rows: rows, first=ARRIVED, rules=rules, read=read, judge=judge)


def _judge(view: Patterns, known: Sequence[Version[Rule]]) -> Run:
    search = _Search(known, view.most, spans_of(view.sources))

    def matches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return search.batches(batches)

    def run(inputs: DataFrame) -> DataFrame:
        # The window keeps the inputs of a group together, and they follow each other. One partition needs no shuffle.
        size = F.count(F.lit(1)).over(Window.partitionBy(*view.by))
        return inputs.withColumn(_SIZE, size).mapInArrow(matches, from_arrow_schema(ROWS))

    return run


class _Group(NamedTuple):
    """A group, and its inputs in a table. Times are in microseconds: Python has not all times that PostgreSQL has.

    next_came: when the first input came that is not searched; None if all are searched.
    """

    entity_id: str
    entity: str
    span_end: int
    inputs: Ints
    next_came: int | None


@dataclass(frozen=True)
class _Search:
    """The search of versions of rules in groups, which are entities or spans of them.

    most: how many inputs of a group are searched.
    """

    known: Sequence[Version[Rule]]
    most: int
    spans: Mapping[str, Spans]

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The matches in batches of inputs, in which each group follows another."""
        for inputs, bounds in whole_groups(batches):
            found = self.rows(inputs, bounds)
            while portion := list(islice(found, _PORTION)):
                yield pa.RecordBatch.from_pylist(portion, ROWS)

    def rows(self, inputs: pa.Table, bounds: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The matches in the inputs of these groups. `bounds` are the first input of each group, and the end."""
        groups = list(self.groups(inputs, bounds))
        for entity in sorted({each.entity for each in groups}):
            known = [each for each in self.known if each.rule.entity == entity]
            if known:
                of_entity = [each for each in groups if each.entity == entity]
                yield from self.of_entity(known, entity, of_entity, inputs)

    def groups(self, inputs: pa.Table, bounds: Sequence[int]) -> Iterator[_Group]:
        """The groups. If one has too many inputs, only the first that came are searched."""
        first = inputs.take(pa.array(bounds[:-1]))
        names = (first.column("entity_id"), first.column("entity"), first.column("span_end").cast(pa.int64()))
        rows = zip(*(each.to_pylist() for each in names), bounds[:-1], bounds[1:], strict=True)
        for entity_id, entity, span_end, begin, end in rows:
            if end - begin <= self.most:
                yield _Group(entity_id, entity, span_end, np.arange(begin, end), None)
                continue
            found = inputs.slice(begin, end - begin)
            order = pc.sort_indices(found, sort_keys=[(name, "ascending") for name in ARRIVED]).to_numpy()
            next_came = found.column("logged_at")[int(order[self.most])].as_py()
            yield _Group(entity_id, entity, span_end, begin + order[: self.most].astype(np.int64), next_came)

    def of_entity(
        self, known: Sequence[Version[Rule]], entity: str, groups: Sequence[_Group], inputs: pa.Table
    ) -> Iterator[dict[str, Any]]:
        for number, outcome in outcomes_of_groups(known, entity, read_events(known, groups, inputs)):
            group = groups[number]
            if self.is_row_of(group, outcome):
                of_group = {"entity_id": group.entity_id, "entity": entity, "span_end": group.span_end}
                yield of_group | _row(outcome)

    def is_row_of(self, group: _Group, outcome: Outcome) -> bool:
        """Whether a match begins in the span of a group.

        A match that waited when the next input came is left out, because an input that is not searched may undo it.
        """
        came, settled, first = group.next_came, outcome.settled_after, outcome.first_time
        spans = self.spans.get(group.entity)
        is_settled = came is None or settled is None or settled < came
        return is_settled and (spans is None or first is None or spans.end(first) == group.span_end)


def whole_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, list[int]]]:
    """Inputs of whole groups, with the number of the first input of each group, and their end."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([*waiting, batch])
        sizes, bounds = table.column(_SIZE).to_numpy(), [0]
        while bounds[-1] < len(sizes) and bounds[-1] + sizes[bounds[-1]] <= len(sizes):
            bounds.append(bounds[-1] + int(sizes[bounds[-1]]))
        if len(bounds) > 1:
            yield table.slice(0, bounds[-1]), bounds
        waiting = table.slice(bounds[-1]).to_batches()
    if waiting:
        raise AssertionError("the inputs of a group are not together")


def read_events(known: Sequence[Version[Rule]], groups: Sequence[_Group], inputs: pa.Table) -> Events:
    """The events that rules read, in groups with enough events for a match. Other events are not parsed."""
    numbers = np.concatenate([each.inputs for each in groups])
    group = np.repeat(np.arange(len(groups)), [len(each.inputs) for each in groups])
    types = frozenset[str]().union(*(each.rule.event_types for each in known))
    is_read = pc.is_in(inputs.column("topic"), pa.array(types, pa.string())).to_numpy()[numbers]
    least = min(each.rule.least for each in known)
    is_enough = np.bincount(group[is_read], minlength=len(groups)) >= least
    chosen = is_read & is_enough[group]
    return Events.of(inputs.take(numbers[chosen]), group[chosen])


def _row(outcome: Outcome) -> dict[str, Any]:
    return {
        "match_id": outcome.match_id,
        "rule": outcome.rule,
        "rule_version": outcome.version,
        "outcome": outcome.outcome,
        "first_time": outcome.first_time,
        "last_time": outcome.last_time,
        "settled_after": None if outcome.settled_after is None else min(outcome.settled_after, LATEST),
        "events": json.dumps(outcome.events),
        "shown": None if outcome.shown is None else json.dumps(outcome.shown),
    }
