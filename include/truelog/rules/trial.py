"""Trial: what a search would have found among the archived events since a time of the log.

The search judges the events from the positions of one tick to those of the last one. A stream would find the same
events if the search began at the first positions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.archive.reader import ScanCost, Wanted, scan_cost
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.history.as_of import positions_at
from truelog.log.positions import Positions
from truelog.patterns.versions import SET, Change, Version
from truelog.rules import archived, records
from truelog.searches.search import Search, check
from truelog.spark.cache import cached
from truelog.spark.job_progress import watched
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.patterns.judging import judging_of
from truelog.views.searches import SEARCH_TOPIC, Searches

Report = Callable[[int, int], None]  # tasks that have ended, and all tasks


@dataclass(frozen=True)
class Asked:
    """What to try: a search, from when by the log's clock, and how many hits to show."""

    event_type: str
    query: str
    begin: datetime
    samples: int = 5


@dataclass(frozen=True)
class Trial:
    """What a search would have found up to the end of the archive: the hits of each day, and the latest of them.

    events: how many have a text.
    seconds: of reading and searching, without the start of Spark.
    """

    begins: Positions
    ends: Positions
    events: int
    days: Mapping[str, int]
    samples: Sequence[Mapping[str, Any]]
    cost: ScanCost
    seconds: float

    @property
    def hits(self) -> int:
        return sum(self.days.values())

    def as_dict(self) -> dict[str, Any]:
        return {
            "hits": self.hits,
            "begins": self.begins.plain(),
            "ends": self.ends.plain(),
            "events": self.events,
            "days": dict(self.days),
            "samples": list(self.samples),
            "cost": {**asdict(self.cost), "seconds": round(self.seconds, 3)},
        }


def search_archive(context: BatchContext, compiled: CompiledView, asked: Asked, report: Report) -> Trial:
    """Search the archive.

    Raises:
        BadInput: the query is not valid.
        ArchiveBehind: the archive has not reached the time yet.
        NotMade, CodeChanged, MeaningChanged: the view has no table yet, or other code made it.
    """
    assert isinstance(compiled.view, Searches)  # noqa: S101
    search = check("tried", asked.event_type, asked.query, compiled.view.sources)
    with connect(context.settings, autocommit=True) as connection, ExitStack() as cache:
        deploy.require_same_code(connection, compiled)
        rebuilder = Rebuilder(context, connection, compiled)
        rebuilder.require_reading()
        begins, (_, ends) = archived.begins_at(rebuilder, asked.begin), positions_at(rebuilder, None)
        begins, ends = begins.only(search.event_types), ends.only(search.event_types)
        began = time.monotonic()
        with watched(context.spark, report):
            inputs = cached(cache, archived.inputs(rebuilder, begins, ends))
            found = cached(cache, judging_of(compiled.own).with_versions([_version(search)]).run(inputs))
            events, days, samples = inputs.count(), _days(found), _samples(found, asked.samples)
        cost = scan_cost(context.settings, Wanted.between(begins, ends))
        return Trial(begins, ends, events, days, samples, cost, time.monotonic() - began)


def _version(search: Search) -> Version[Search]:
    """The version of the search that judges all events that are read."""
    return Version(1, Change(SEARCH_TOPIC, 0, 0, 0, search.name, SET, None, "{}"), search, {}, None, None)


def _days(found: DataFrame) -> dict[str, int]:
    """The number of hits by day, in order."""
    by_day = found.groupBy(F.to_date("event_time").cast("string").alias("day")).count()
    return dict(sorted((str(day), int(count)) for day, count in by_day.collect()))


def _samples(found: DataFrame, most: int) -> list[dict[str, Any]]:
    """The latest hits."""
    columns = ("document", F.unix_micros("event_time").alias("at"), "snippet")
    rows = found.orderBy(F.desc("event_time"), "document").limit(most).select(*columns).collect()
    times = (timestamps.to_text(records.time_of(row["at"])) for row in rows)
    return [{"document": row.document, "time": at, "snippet": row.snippet} for row, at in zip(rows, times, strict=True)]
