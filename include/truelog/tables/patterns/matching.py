"""Matching: how matches follow from the inputs of a view of patterns and from its rules."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.patterns.matcher import Event
from truelog.patterns.outcomes import Outcome, outcomes
from truelog.patterns.rule import Rule
from truelog.patterns.span import LATEST, Spans, spans_of
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
_OF_EVENT = Event._fields[:-1]  # without the values


def compile_matching(view: Patterns, inputs: Table, rules: Table) -> Judging:
    """How the matches of a view of patterns come about."""
    read, judge = reader(view.sources), partial(_judge, view)
    return Judging(inputs, view.by, view.fold, lambda rows: rows, first=ARRIVED, rules=rules, read=read, judge=judge)


def _judge(view: Patterns, known: Sequence[Version[Rule]]) -> Run:
    search = _Search(known, view.most, spans_of(view.sources))

    def matches(group: pa.Table) -> pa.Table:  # Spark counts the parameters, and would count `self`
        return search.table(group)

    return lambda inputs: inputs.groupBy(*view.by).applyInArrow(matches, from_arrow_schema(ROWS))


@dataclass(frozen=True)
class _Search:
    """The search of versions of rules in groups, which are entities or spans of them.

    most: how many inputs of a group are searched.
    """

    known: Sequence[Version[Rule]]
    most: int
    spans: Mapping[str, Spans]

    def table(self, inputs: pa.Table) -> pa.Table:
        """The matches in the inputs of one group, as a table."""
        entity_id, entity = (inputs.column(name)[0].as_py() for name in ("entity_id", "entity"))
        span_end = inputs.column("span_end").cast(pa.int64())[0].as_py()  # Python has not all times that PostgreSQL has
        group = {"entity_id": entity_id, "entity": entity, "span_end": span_end}
        return pa.Table.from_pylist([group | _row(each) for each in self.outcomes(entity, span_end, inputs)], ROWS)

    def outcomes(self, entity: str, span_end: int, inputs: pa.Table) -> Iterator[Outcome]:
        """The matches that begin in the span. If there are too many inputs, only the first that came are searched.

        A match that waited when the next input came is left out, because an input that is not searched may undo it.
        """
        known = [each for each in self.known if each.rule.entity == entity]
        next_came, spans = None, self.spans.get(entity)
        if inputs.num_rows > self.most:
            inputs = inputs.sort_by([(name, "ascending") for name in ARRIVED])
            next_came, inputs = inputs.column("logged_at")[self.most].as_py(), inputs.slice(0, self.most)
        event_types = frozenset[str]().union(*(each.rule.event_types for each in known))
        for each in outcomes(known, entity, events(inputs, event_types)):
            is_settled = next_came is None or each.settled_after is None or each.settled_after < next_came
            is_here = spans is None or each.first_time is None or spans.end(each.first_time) == span_end
            if is_settled and is_here:
                yield each


def events(inputs: pa.Table, event_types: Collection[str]) -> list[Event]:
    """The events of these types in a table of inputs. The others are not parsed."""
    is_read = pc.is_in(inputs.column("topic"), pa.array(event_types, pa.string()))
    rows = inputs.filter(is_read).select([*_OF_EVENT, "event"]).to_pylist()
    return [Event(**{name: row[name] for name in _OF_EVENT}, values=json.loads(row["event"])) for row in rows]


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
