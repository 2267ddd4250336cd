"""The archive as its readers see it: how far it has come, its records by position, its closed log days.

Records are asked for by offset, never by time, and from one snapshot, so that an answer is a function of the
positions alone. Whoever needs records that are not archived yet is told so, and never gets fewer instead.
"""

import time
from collections.abc import Iterable
from datetime import datetime
from functools import reduce

from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from truelog import archive_table, log_day, records
from truelog.archive_table import Standing, identifier, open_catalog, require_same_topic
from truelog.database import connect
from truelog.errors import ArchiveBehind
from truelog.event import EventType
from truelog.log_day import LogDays
from truelog.positions import Positions, Range
from truelog.records import Events, Types
from truelog.settings import CATALOG, Settings

_PAUSE_SECONDS = 0.5


def positions(settings: Settings, topics: Iterable[str]) -> Positions:
    """How far each topic is archived; a topic never archived is not named."""
    with open_catalog(settings) as catalog:
        return archive_table.positions(catalog, topics)


def wait_for(settings: Settings, wanted: Positions, *, seconds: float = 120) -> None:
    """Return when everything before `wanted` is archived.

    Raises:
        ArchiveBehind: it was not within so many seconds.
        TopicRecreated: the archive holds another topic of this name.
    """
    deadline = time.monotonic() + seconds
    while True:
        archived = positions(settings, wanted.offsets)
        archived.require_same_topics(wanted)
        if archived.covers(wanted):
            return
        if time.monotonic() > deadline:
            missing = sum(r.end - r.start for r in archived.ranges_to(wanted))
            raise ArchiveBehind(f"the archive is {missing} events behind. Is its application running?")
        time.sleep(_PAUSE_SECONDS)


def events(
    spark: SparkSession, settings: Settings, types: Types, begin: Positions, end: Positions, *, from_raw: bool = False
) -> Events:
    """The good events of each type in [begin, end), as transforms see them.

    Raises:
        ArchiveBehind: some of them are not archived yet.
    """
    read_ = {name: read(spark, settings, each, begin, end, from_raw=from_raw) for name, each in types.items()}
    return {name: frame.where("invalid IS NULL").drop("invalid") for name, frame in read_.items()}


def read(
    spark: SparkSession, settings: Settings, event_type: EventType, begin: Positions, end: Positions, *, from_raw: bool
) -> DataFrame:
    """One topic's records in [begin, end): coordinates, typed columns, and `invalid`, why they are NULL.

    With `from_raw` the typed columns are ignored and the raw bytes decoded again.

    Raises:
        ArchiveBehind: some of these records are not archived yet.
    """
    schema = records.schema(event_type).add("invalid", StringType())
    frame = _scan(spark, settings, event_type.name, begin, end)
    if frame is None:
        return spark.createDataFrame([], schema)
    frame = frame.withColumn("topic", F.lit(event_type.name))
    if from_raw:
        raw = frame.withColumn("timestamp", F.col("broker_time"))
        decoded = records.decoded(raw, {event_type.name: event_type}, settings)
        frame = decoded.select("topic", "partition", "offset", "broker_time", f"{event_type.name}.*", "invalid")
    return frame.select(*_columns(frame, schema))


def closed_days(settings: Settings, topics: Iterable[str]) -> list[datetime]:
    """The log days, each by the moment it begins, that no record of these topics can join any more."""
    archived = positions(settings, topics)
    return [log_day.as_datetime(day) for day in _days(settings, archived).closed(archived)]


def day_range(settings: Settings, topics: Iterable[str], day: datetime) -> tuple[Positions, Positions]:
    """The records [begin, end) that a closed log day holds in each partition.

    Raises:
        ArchiveBehind: the day is still open.
    """
    archived = positions(settings, topics)
    days, number = _days(settings, archived), log_day.day_of(day, settings.log_day_seconds)
    begin = days.begin(number, archived)
    end = days.begin(number + settings.log_day_seconds, archived)
    if begin is None or end is None:
        raise ArchiveBehind(f"the log day of {day:%Y-%m-%d %H:%M:%S} is still open in {', '.join(archived.offsets)}")
    return begin, end


def _days(settings: Settings, archived: Positions) -> LogDays:
    with connect(settings) as connection:
        return log_day.load(connection, archived.ids)


def _scan(spark: SparkSession, settings: Settings, topic: str, begin: Positions, end: Positions) -> DataFrame | None:
    """The archive's rows in the range, from the newest snapshot; None while there is none."""
    with open_catalog(settings) as catalog:
        table = catalog.load_table(identifier(topic))
    _require_archived(table, topic, end)
    snapshot, ranges = table.current_snapshot(), begin.ranges_to(end.only((topic,)))
    if snapshot is None or not ranges:
        return None
    name = f"{CATALOG}.{identifier(topic)}"
    spark.catalog.refreshTable(name)  # Spark may hold metadata older than the snapshot
    frame = spark.read.option("versionAsOf", snapshot.snapshot_id).table(name)
    return frame.where(reduce(Column.__or__, map(_lies_in, ranges)) & ~F.col("erased"))


def _require_archived(table: Table, topic: str, end: Positions) -> None:
    if topic in end.ids:
        require_same_topic(table, end.ids[topic])
    stands = Positions({topic: Standing.of(table.metadata).positions})
    lacking = stands.ranges_to(end.only((topic,)))
    if lacking:
        missing = sum(r.end - r.start for r in lacking)
        raise ArchiveBehind(f"the archive of {topic} is {missing} events behind. Is its application running?")


def _lies_in(wanted: Range) -> Column:
    offset = F.col("offset")
    return (F.col("partition") == wanted.partition) & (offset >= wanted.start) & (offset < wanted.end)


def _columns(frame: DataFrame, schema: StructType) -> list[Column]:
    """A field declared after the snapshot was made is NULL in it."""
    present = set(frame.columns)
    return [(F.col(f.name) if f.name in present else F.lit(None)).cast(f.dataType).alias(f.name) for f in schema]
