"""Reads records between any two positions in the log, from the archive where Kafka has dropped or lost the records.

Retention drops the records below a partition's earliest offset. Compaction drops single records anywhere, so of a
compacted topic, everything that is archived is read from the archive, which has every record. What an erasure may cover
is read from the archive too, because Kafka still has the erased records.
"""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from truelog.archive import reader as archive_reader
from truelog.archive.table import archived_positions
from truelog.control import event_registry, log_cuts
from truelog.erasure import ledger
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.log.records import Columns, EventFrames
from truelog.schema.event import EventTypes
from truelog.storage.database import connect
from truelog.support.settings import Settings


def read_events(
    spark: SparkSession, settings: Settings, types: EventTypes, begin: Positions, end: Positions
) -> EventFrames:
    """Read the valid events of these types in [begin, end), which must not be empty.

    Raises: the errors of `read_records`.
    """
    event_types = {topic: types[topic] for topic in end.offsets if topic in types}
    span = begin.only(event_types), end.only(event_types)
    return records.events(read_records(spark, settings, event_types, span), event_types)


def read_records(
    spark: SparkSession,
    settings: Settings,
    event_types: EventTypes,
    span: tuple[Positions, Positions],
    needed: Columns | None = None,
) -> DataFrame:
    """Read and decode the records in a span [begin, end), which must not be empty; `event_types` are its topics.

    The result may have more columns than those needed: Spark itself reads only the used columns of the archive.

    Raises:
        ArchiveBehind: the log has dropped records that are not archived; the reader cannot continue.
        TopicRecreated: the positions belong to a topic that was deleted.
        MeaningChanged: the types do not know a version that judges some of these records.
    """
    begin, end = span
    dropped = _in_kafka_from(settings, event_types, span)
    parts: list[DataFrame] = []
    if begin.ranges_to(dropped):
        parts.append(
            archive_reader.read_records(spark, settings, event_types, archive_reader.Wanted.between(begin, dropped))
        )
    if dropped.ranges_to(end):
        wanted = None if parts else needed  # a union needs equal columns
        parts.append(records.read(spark, settings, event_types, dropped.ranges_to(end), wanted))
    return reduce(DataFrame.unionByName, parts)


def archived_only(settings: Settings, event_types: EventTypes, span: tuple[Positions, Positions]) -> bool:
    """Whether Kafka may lack some of the records in a span, so that they are read from the archive.

    Raises: the errors of `read_records`.
    """
    return bool(span[0].ranges_to(_in_kafka_from(settings, event_types, span)))


def _in_kafka_from(settings: Settings, event_types: EventTypes, span: tuple[Positions, Positions]) -> Positions:
    """The positions in the span below which only the archive surely has all records, and no erased one."""
    begin, end = span
    earliest = topics.earliest_offsets(settings, end.offsets)
    begin.require_same_topics(earliest)
    with connect(settings) as connection:
        event_registry.require_known(settings, connection, event_types, end)
        earliest = earliest.latest(log_cuts.trusted_from(connection, earliest))
        earliest = earliest.latest(ledger.erased_below(connection, earliest))
    compacted = archived_and_compacted(settings, end.offsets)
    compacted.require_same_topics(end)
    return begin.latest(earliest).latest(compacted).earliest(end)


def archived_and_compacted(settings: Settings, names: Iterable[str]) -> Positions:
    """The archive's end in each of these topics that is compacted. Kafka may lack archived records below it."""
    compacted = topics.compacted_topics(settings, names)
    return archived_positions(settings, compacted) if compacted else Positions()
