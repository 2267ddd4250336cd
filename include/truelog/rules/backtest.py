"""Backtest: what a rule would have found among the archived events between two times of the log.

The rule judges the events from the positions of one tick to the positions of another. A stream would find the same
matches if the rule began at the first positions: the events, the matcher and the log's clock are the same.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog.archive.reader import ScanCost, Wanted, scan_cost
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.history.as_of import positions_at
from truelog.log.positions import Positions
from truelog.patterns.outcomes import TOO_COSTLY
from truelog.patterns.rule import Declared, Rule, check
from truelog.patterns.versions import SET, Change, Version
from truelog.rules import archived
from truelog.schema.names import COORDINATES
from truelog.spark.cache import cached
from truelog.spark.job_progress import watched
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.support.errors import BadInput
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.patterns.judging import judging_of
from truelog.views.patterns import RULE_TOPIC, Patterns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUTCOME = "outcome"

Report = Callable[[int, int], None]  # tasks that have ended, and all tasks


@dataclass(frozen=True)
class Asked:
    """What to test: a rule, from and to when by the log's clock, and how many matches to show with their events."""

    declared: Declared
    begin: datetime
    end: datetime | None = None
    samples: int = 5


@dataclass(frozen=True)
class Backtest:
    """What a rule would have found.

    begins, ends: the positions between which it judged events.
    entities, events: how many were searched.
    days: the number of rows for each day of the matches' last events, by outcome.
    waiting: the matches that no tick has settled yet.
    seconds: of reading and searching, without the start of Spark.
    """

    rule: str
    begins: Positions
    ends: Positions
    clock: datetime
    entities: int
    events: int
    days: Mapping[str, Mapping[str, int]]
    waiting: int
    too_costly: int
    samples: Sequence[Mapping[str, Any]]
    cost: ScanCost
    seconds: float

    @property
    def matches(self) -> int:
        return sum(count for by_outcome in self.days.values() for count in by_outcome.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "matches": self.matches,
            "begins": self.begins.plain(),
            "ends": self.ends.plain(),
            "clock": timestamps.to_text(self.clock),
            "entities": self.entities,
            "events": self.events,
            "days": {day: dict(by_outcome) for day, by_outcome in self.days.items()},
            "waiting": self.waiting,
            "too_costly": self.too_costly,
            "samples": list(self.samples),
            "cost": {**asdict(self.cost), "seconds": round(self.seconds, 3)},
        }


def backtest(context: BatchContext, compiled: CompiledView, asked: Asked, report: Report) -> Backtest:
    """Search for the matches of a rule in the archive.

    Raises:
        BadInput: a time is before the first tick, or the times are not in order.
        ArchiveBehind: the archive has not reached a time yet.
        NotMade, CodeChanged, MeaningChanged: the view has no table yet, or other code made it.
    """
    assert isinstance(compiled.view, Patterns)  # noqa: S101
    rule = check(asked.declared, compiled.view.sources)
    if asked.end is not None and asked.end <= asked.begin:
        raise BadInput(f"{timestamps.to_text(asked.begin)} is not before {timestamps.to_text(asked.end)}")
    with connect(context.settings, autocommit=True) as connection, ExitStack() as cache:
        deploy.require_same_code(connection, compiled)
        rebuilder = Rebuilder(context, connection, compiled)
        rebuilder.require_reading()
        begins, (tick, ends) = archived.begins_at(rebuilder, asked.begin), positions_at(rebuilder, asked.end)
        begins, ends = begins.only(rule.event_types), ends.only(rule.event_types)
        began = time.monotonic()
        with watched(context.spark, report):
            every = archived.inputs(rebuilder, begins, ends)
            inputs = cached(cache, every.where(F.col("entity") == rule.entity))
            version = _version(asked.declared, rule)
            found = cached(cache, judging_of(compiled.own).with_versions([version]).run(inputs))
            [(events, entities)] = inputs.agg(F.count_distinct(*COORDINATES), F.count_distinct("entity_id")).collect()
            is_settled = F.col("settled_after").isNull() | (F.col("settled_after") < F.lit(tick.time))
            is_match = F.col(_OUTCOME) != TOO_COSTLY
            shown = found.where(is_match & is_settled)
            [(waiting, costly)] = found.agg(F.count_if(is_match & ~is_settled), F.count_if(~is_match)).collect()
            days, samples = _days(shown), _samples(shown, inputs, asked.samples)
        cost = scan_cost(context.settings, Wanted.between(begins, ends))
        seconds = time.monotonic() - began
        return Backtest(
            rule.name, begins, ends, tick.time, entities, events, days, waiting, costly, samples, cost, seconds
        )


def _version(declared: Declared, rule: Rule) -> Version[Rule]:
    """The version of the rule that judges all events that are read."""
    definition = declared.model_dump_json(exclude_defaults=True)
    change = Change(RULE_TOPIC, 0, 0, 0, rule.name, SET, definition, "{}")
    return Version(1, change, rule, {}, None, None)


def _days(found: DataFrame) -> dict[str, dict[str, int]]:
    """The number of rows by day and outcome, in order."""
    days: dict[str, dict[str, int]] = {}
    by_day = found.groupBy(F.to_date("last_time").cast("string").alias("day"), _OUTCOME).count()
    for day, outcome, count in sorted(map(tuple, by_day.collect())):
        days.setdefault(day, {})[outcome] = count
    return days


def _samples(found: DataFrame, inputs: DataFrame, most: int) -> list[dict[str, Any]]:
    """The first matches, each with its events."""
    times = [F.unix_micros(name).alias(name) for name in ("first_time", "last_time")]
    first = found.orderBy("first_time", "match_id").limit(most)
    rows = [
        row.asDict() for row in first.select("entity_id", "match_id", _OUTCOME, "events", "shown", *times).collect()
    ]
    events = [json.loads(row["events"]) for row in rows]
    wanted = {_place(each) for of_row in events for each in of_row}
    values = _values(inputs, wanted)
    return [
        {
            "entity_id": row["entity_id"],
            "match_id": row["match_id"],
            "outcome": row[_OUTCOME],
            "first_time": _as_text(row["first_time"]),
            "last_time": _as_text(row["last_time"]),
            "shown": json.loads(row["shown"]),
            "events": [each | values[_place(each)] for each in of_row],
        }
        for row, of_row in zip(rows, events, strict=True)
    ]


_Place = tuple[str, int, int]


def _place(event: Mapping[str, Any]) -> _Place:
    return (event["topic"], event["partition"], event["offset"])


def _values(inputs: DataFrame, wanted: set[_Place]) -> dict[_Place, dict[str, Any]]:
    """The time and the columns of these events."""
    if not wanted:
        return {}
    found = inputs.where(_is_any(wanted)).select(*COORDINATES, "at", "event").distinct().collect()
    return {
        (row.topic, row.partition, row.offset): {
            "time": _as_text(row["at"]),
            "values": json.loads(row.event),
        }
        for row in found
    }


def _as_text(micros: int) -> str:
    return timestamps.to_text(_EPOCH + timedelta(microseconds=micros))


def _is_any(wanted: set[_Place]) -> Column:
    places = (
        F.struct(F.lit(t).alias("t"), F.lit(p).alias("p"), F.lit(o).cast("long").alias("o")) for t, p, o in wanted
    )
    mine = F.struct(F.col("topic").alias("t"), F.col("partition").alias("p"), F.col("offset").alias("o"))
    return F.array_contains(F.array(*places), mine)
