"""The whole log: its records between any two positions; from Kafka, and what Kafka has dropped, from the archive."""

from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from truelog.archive import archive_reader
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.log.records import EventFrames, EventTypes
from truelog.support.settings import Settings


def read_events(
    spark: SparkSession, settings: Settings, types: EventTypes, begin: Positions, end: Positions
) -> EventFrames:
    """The good events of each topic in [begin, end), where there is something between the two.

    Raises:
        ArchiveBehind: the log dropped records that are not archived; such a reader has nowhere to go on from.
        TopicRecreated: the positions are of a topic that is gone.
    """
    earliest = topics.earliest_offsets(settings, end.offsets)
    begin.require_same_topics(earliest)
    dropped = begin.latest(earliest).earliest(end)  # up to here the archive has it alone
    mine = {topic: types[topic] for topic in end.offsets}
    parts: list[DataFrame] = []
    if begin.ranges_to(dropped):
        parts.append(archive_reader.records(spark, settings, mine, archive_reader.Wanted.between(begin, dropped)))
    if dropped.ranges_to(end):
        parts.append(records.decoded(records.read_range(spark, settings, dropped, end), mine))
    return records.events(reduce(DataFrame.unionByName, parts), mine)
