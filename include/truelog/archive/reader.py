"""Reads records by position from the archive and finds the archive's closed log days.

Records are selected by offset, never by time, and from a single snapshot, so the result depends on the positions alone.
A request for records that are not archived yet raises an error instead of returning fewer records.

After each commit, the archive writes the location of the table's newest metadata to the bucket
(`truelog.archive.commit`). `read_without_catalog` uses it for processes that cannot access the database.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable, Table
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from truelog.archive import file_reader, log_day
from truelog.archive.catalog_pointer import load_newest, read_pointer
from truelog.archive.log_day import LogDays
from truelog.archive.schema import LOG_DAY, column_of
from truelog.archive.table import (
    NAMESPACE,
    Progress,
    archived_positions,
    erased_counts,
    identifier,
    open_catalog,
    require_same_topic,
    stores_answer,
)
from truelog.archive.writer import blueprint
from truelog.control import event_registry
from truelog.log.positions import Positions, Range
from truelog.log.records import decoded, events, in_ranges
from truelog.schema.event import EventType, EventTypes
from truelog.schema.names import COORDINATES
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import CATALOG, Settings

_PAUSE_SECONDS = 0.5
_RAW = "topic string, partition int, offset bigint, broker_time timestamp, value binary"
_PLACE = (*COORDINATES, "broker_time")
_NOT_OF_EVENTS = frozenset({"key", "headers", LOG_DAY.name})  # no decoded record has them

# Spark packs files into tasks of at least 16 MB and counts each file as this many bytes or more. With Iceberg's 4 MB,
# four small files make a task, and each task costs more than its files. A stream's archive consists of small files.
FILE_COST = {"file-open-cost": str(256 * 2**10)}


def wait_for(settings: Settings, wanted: Positions, *, seconds: float) -> None:
    """Wait until everything before `wanted` is archived.

    Raises:
        ArchiveBehind: some records are still not archived after this many seconds.
        TopicRecreated: the archive contains another topic with this name.
    """
    deadline = time.monotonic() + seconds
    while True:
        archived = archived_positions(settings, wanted.offsets)
        archived.require_same_topics(wanted)
        if archived.covers(wanted):
            return
        if time.monotonic() > deadline:
            missing = archived.records_to(wanted)
            raise ArchiveBehind(f"the archive is {missing} events behind. Is the archive application running?")
        time.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True)
class Wanted:
    """Records to read from the archive: offset ranges and the topic ids.

    If `since` is given, only the records that the broker appended later. Files without such records are not read.
    If `are_few` is true, the process that asks reads them at once: Spark would first load Iceberg's classes and S3's.
    """

    ranges: Sequence[Range]
    ids: Mapping[str, str]
    since: datetime | None = None
    are_few: bool = False

    @staticmethod
    def between(begin: Positions, end: Positions) -> "Wanted":
        return Wanted(begin.ranges_to(end), end.ids)

    @property
    def end(self) -> Positions:
        """The end of the last range of each partition."""
        offsets: dict[str, dict[int, int]] = {}
        for each in self.ranges:
            by = offsets.setdefault(each.topic, {})
            by[each.partition] = max(each.end, by.get(each.partition, 0))
        return Positions(offsets, self.ids)

    def of_topic(self, topic: str) -> "Wanted":
        """The wanted records of one topic."""
        return replace(self, ranges=[each for each in self.ranges if each.topic == topic])

    @staticmethod
    def of(coordinates: Iterable[tuple[str, int, int]], ids: Mapping[str, str]) -> "Wanted":
        """Single records, by topic, partition and offset."""
        return Wanted([Range(t, p, o, o + 1) for t, p, o in coordinates], ids)


def read_records(
    spark: SparkSession, settings: Settings, types: EventTypes, wanted: Wanted, *, from_raw: bool = False
) -> DataFrame:
    """The wanted records of these types, with the columns of `truelog.log.records.decoded`.

    If `from_raw` is true, the typed columns are ignored and the raw bytes are decoded again. Otherwise, this applies
    only to rows that were archived under another reading of their event type.

    Raises:
        ArchiveBehind: some of these records are not archived yet.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        MeaningChanged: the types do not know a version that judges some of these records.
    """
    with connect(settings) as connection:
        event_registry.require_known(settings, connection, types, wanted.end)
    parts = []
    for name in types:
        scan, progress = (_scan_now if wanted.are_few else _scan)(spark, settings, name, wanted)
        typed = F.lit(False) if from_raw else _is_typed(progress, types[name].reading)
        if typed is not None:
            raw = scan.where(~typed).select(*_PLACE, "value")
            parts.append(decoded(raw, types))
        if not from_raw:
            parts.append(_packed(scan if typed is None else scan.where(typed), name, types))
    return reduce(DataFrame.unionByName, parts)


def read_events(
    spark: SparkSession, settings: Settings, event_type: EventType, wanted: Wanted, *, from_raw: bool = False
) -> DataFrame:
    """The valid events of one type among the wanted records.

    Raises: the errors of `read_records`.
    """
    types = {event_type.name: event_type}
    return events(read_records(spark, settings, types, wanted, from_raw=from_raw), types)[event_type.name]


def read_without_catalog(spark: SparkSession, settings: Settings, types: EventTypes, wanted: Wanted) -> DataFrame:
    """The wanted records of these types, decoded again from raw bytes. The bucket is the only source.

    With a table's newest metadata, pyiceberg finds the files that contain the records, and Spark tasks read the files.

    Raises:
        ArchiveBehind: some of these records are not archived yet.
        TopicRecreated: the archive contains another topic with this name.
    """
    return decoded(reduce(DataFrame.union, (_from_files(spark, settings, name, wanted) for name in types)), types)


def erased_below(settings: Settings, positions: Positions) -> dict[str, int]:
    """How many archived records below the positions were erased, by topic, without topics that have none.

    The bucket is the only source. A topic without erased records costs one look at its metadata.
    """
    found = {topic: _count_erased(settings, topic, positions) for topic in positions.offsets}
    return {topic: records for topic, records in sorted(found.items()) if records}


def _count_erased(settings: Settings, topic: str, positions: Positions) -> int:
    below = [Range(topic, partition, 0, end) for partition, end in positions.offsets[topic].items() if end]
    if not below or read_pointer(settings.object_store(), settings.s3_bucket, identifier(topic)) is None:
        return 0
    table = _open_newest(settings, topic)
    if not erased_counts(table):
        return 0
    where = f"erased = true AND ({' OR '.join(map(_is_in, below))})"
    return int(table.scan(where, selected_fields=("offset",)).to_arrow().num_rows)


def _is_typed(progress: Progress, reading: int) -> Column | None:
    """The rows whose typed columns were decoded under this reading; None if that is all rows."""
    first_offsets = progress.readings.get(reading)
    if first_offsets is None:
        return F.lit(False)
    below = [(F.col("partition") == p) & (F.col("offset") < o) for p, o in first_offsets.items() if o]
    return ~reduce(Column.__or__, below) if below else None


@dataclass(frozen=True)
class ScanCost:
    """What reading some records costs: how many records, and the files in which they lie."""

    records: int
    files: int
    bytes: int


def scan_cost(settings: Settings, wanted: Wanted) -> ScanCost:
    """The cost of reading the wanted records once. The files may contain other records too."""
    conditions: dict[str, list[str]] = {}
    for each in wanted.ranges:
        condition = f"(partition = {each.partition} AND offset >= {each.start} AND offset < {each.end})"
        conditions.setdefault(each.topic, []).append(condition)
    with open_catalog(settings) as catalog:
        tables = {topic: load_newest(catalog, identifier(topic), wanted.ids.get(topic, "")) for topic in conditions}
        scans = [tables[topic].scan(" OR ".join(each)) for topic, each in conditions.items()]
        sizes = [task.file.file_size_in_bytes for scan in scans for task in scan.plan_files()]
    return ScanCost(sum(each.end - each.start for each in wanted.ranges), len(sizes), sum(sizes))


def holds_event(settings: Settings, topic: str, before: Positions) -> bool:
    """Whether the topic has a valid event before these positions."""
    with open_catalog(settings) as catalog:
        try:
            table = load_newest(catalog, identifier(topic), before.ids.get(topic, ""))
        except NoSuchTableError:
            return False
        valid = "invalid IS NULL AND erased = false AND partition = {} AND offset < {}"
        scans = (
            table.scan(valid.format(partition, end), selected_fields=("offset",), limit=1)
            for partition, end in before.offsets.get(topic, {}).items()
        )
        return any(scan.to_arrow().num_rows for scan in scans)


def closed_days(settings: Settings, topics: Iterable[str]) -> list[datetime]:
    """The start times of the log days that can no longer gain records of these topics."""
    archived = archived_positions(settings, topics)
    return [log_day.as_datetime(day) for day in _days(settings, archived).closed(archived)]


def day_range(
    settings: Settings, topics: Iterable[str], day: datetime, *, unfinished: bool = False
) -> tuple[Positions, Positions]:
    """The range [begin, end) of a closed log day in each partition.

    If `unfinished` is true, an open day ends at the end of the archive.

    Raises:
        ArchiveBehind: the day is still open.
    """
    archived = archived_positions(settings, topics)
    days, number = _days(settings, archived), log_day.day_of(day, settings.log_day_seconds)
    begin = days.begin(number, archived)
    end = days.begin(number + settings.log_day_seconds, archived)
    if end is None and unfinished:
        end = archived
    if begin is None or end is None:
        raise ArchiveBehind(f"the log day of {day:%Y-%m-%d %H:%M:%S} is still open in {', '.join(archived.offsets)}")
    return begin, end


def _days(settings: Settings, archived: Positions) -> LogDays:
    with connect(settings) as connection:
        return log_day.load_days(connection, archived.ids)


def _scan(spark: SparkSession, settings: Settings, topic: str, wanted: Wanted) -> tuple[DataFrame, Progress]:
    """The archive's rows in the topic's wanted ranges, from the newest snapshot, and the state of the archive there."""
    table, ranges = _open_wanted(settings, topic, wanted)
    name, snapshot = f"{CATALOG}.{identifier(topic)}", table.current_snapshot()
    spark.catalog.refreshTable(name)  # Spark may have cached metadata that is older than the snapshot
    reader = spark.read.options(**FILE_COST)
    if snapshot is not None:
        reader = reader.option("versionAsOf", snapshot.snapshot_id)
    chosen = in_ranges(ranges) & ~F.col("erased")
    if wanted.since is not None:
        chosen &= F.col("broker_time") > F.lit(wanted.since)
    rows = reader.table(name).where(chosen).withColumn("topic", F.lit(topic))
    return rows, Progress.of(table.metadata)


def _scan_now(spark: SparkSession, settings: Settings, topic: str, wanted: Wanted) -> tuple[DataFrame, Progress]:
    """The same rows and state, read by this process. They must fit its memory."""
    table, ranges = _open_wanted(settings, topic, wanted)
    columns = [each.name for each in table.schema().fields if each.name not in _NOT_OF_EVENTS]
    with stores_answer():
        rows = table.scan(_where(ranges, wanted.since), selected_fields=tuple(columns)).to_arrow()
    return spark.createDataFrame(rows).withColumn("topic", F.lit(topic)), Progress.of(table.metadata)


def _open_wanted(settings: Settings, topic: str, wanted: Wanted) -> tuple[Table, list[Range]]:
    """The topic's table, which has all wanted records of the topic, and their ranges."""
    ranges = [each for each in wanted.ranges if each.topic == topic]
    with open_catalog(settings) as catalog:
        try:
            table = load_newest(catalog, identifier(topic), wanted.ids.get(topic, ""))
        except NoSuchTableError:
            raise ArchiveBehind(f"no record of {topic} is archived yet. Is the archive application running?") from None
    if topic in wanted.ids:
        require_same_topic(table, wanted.ids[topic])
    require_archived(table, topic, ranges)
    return table, ranges


def _from_files(spark: SparkSession, settings: Settings, topic: str, wanted: Wanted) -> DataFrame:
    ranges = [each for each in wanted.ranges if each.topic == topic]
    if not ranges:
        return spark.createDataFrame([], _RAW)
    table = _open_newest(settings, topic)
    require_same_topic(table, wanted.ids[topic])
    require_archived(table, topic, ranges)
    where = _where(ranges, wanted.since)
    planned = [(file_reader.pack(task),) for task in table.scan(where).plan_files()]
    files = spark.createDataFrame(planned, "task binary")
    reader = file_reader.FileReader(topic, where, blueprint(table.metadata), settings.object_store())
    return files.mapInArrow(reader, _RAW)


def _open_newest(settings: Settings, topic: str) -> Table:
    """Open the table that the pointer in the bucket refers to, read-only."""
    stored = read_pointer(settings.object_store(), settings.s3_bucket, identifier(topic))
    if stored is None:
        raise ArchiveBehind(f"no record of {topic} is archived yet. Is the archive application running?")
    found = StaticTable.from_metadata(stored.location, settings.object_store())
    return Table((NAMESPACE, topic), found.metadata, stored.location, found.io, NoopCatalog(NAMESPACE))


def _where(ranges: Sequence[Range], since: datetime | None) -> str:
    """The rows in these ranges that are not erased, as a filter of pyiceberg."""
    later = "" if since is None else f" AND broker_time > '{since.isoformat()}'"
    return f"erased = false AND ({' OR '.join(map(_is_in, ranges)) or 'partition < 0'}){later}"


def _is_in(wanted: Range) -> str:
    return f"(partition = {wanted.partition} AND offset >= {wanted.start} AND offset < {wanted.end})"


def require_archived(table: Table, topic: str, ranges: Iterable[Range]) -> None:
    """Refuse to return fewer records than requested.

    Raises:
        ArchiveBehind: some of the requested records are not archived yet.
    """
    archived = Progress.of(table.metadata).positions
    missing = sum(max(0, each.end - max(each.start, archived.get(each.partition, 0))) for each in ranges)
    if missing:
        raise ArchiveBehind(f"the archive of {topic} is {missing} events behind. Is the archive application running?")


def _packed(scan: DataFrame, topic: str, types: EventTypes) -> DataFrame:
    """The typed columns as the struct of this topic; the structs of other topics are NULL."""
    structs = {name: each.spark_schema for name, each in types.items()}
    packed = [
        F.struct(*_columns(scan, struct)).alias(name) if name == topic else F.lit(None).cast(struct).alias(name)
        for name, struct in structs.items()
    ]
    return scan.select(*_PLACE, "invalid", *packed)


def _columns(scan: DataFrame, struct: StructType) -> list[Column]:
    """The struct's fields; fields declared after the snapshot was made are NULL."""
    present = set(scan.columns)
    return [
        (F.col(column) if column in present else F.lit(None)).cast(field.dataType).alias(field.name)
        for field, column in ((each, column_of(each.name)) for each in struct)
    ]
