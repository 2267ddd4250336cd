"""Records: the log as a DataFrame, decoded once for all views of an application.

A decoded frame has the columns topic, partition, offset, broker_time and `invalid` (the reason if a record is not a
valid event, else NULL). It also has one struct column for each event type, which is NULL for records of other types.

Every declared field of a record is validated, but only the columns that are needed leave Python: each copied column
costs time in Python and in the JVM. An event type none of whose columns are needed has no struct.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from truelog.log import range_reader
from truelog.log.positions import Positions, Range
from truelog.log.range_reader import PLACE
from truelog.schema.derived import IS_DERIVED
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import judge
from truelog.support.settings import KafkaUser, Settings

RECORDS_PER_TASK = 20_000
_FEW = 100_000  # records of all topics, because one process decodes them

Coordinates = tuple[str, int, int]  # topic, partition, offset
EventFrames = Mapping[str, DataFrame]  # the valid events of each topic: the arguments of a transform
Columns = Mapping[str, Collection[str]]  # of each topic, the columns that are needed; an absent topic needs them all
_Batches = Iterable[pa.RecordBatch]
_Decoder = Callable[[_Batches], Iterator[pa.RecordBatch]]


def are_few(ranges: Iterable[Range]) -> bool:
    """Whether no topic has more records in these ranges than one task decodes, and all topics have at most 100,000.

    A view reads few topics. So with traffic of many types, all records may be more than those of one task.
    """
    records = Counter[str]()
    for each in ranges:
        records[each.topic] += each.end - each.start
    return max(records.values(), default=0) <= RECORDS_PER_TASK and records.total() <= _FEW


def schema(event_type: EventType) -> StructType:
    """The columns of an event type in a transform: the record's coordinates in the log and the typed columns.

    The metadata of a derived column says so.
    """
    columns = from_arrow_schema(pa.schema([*PLACE, *event_type.arrow_schema]))
    for name in event_type.derived_names:
        columns[name].metadata = {IS_DERIVED: True}
    return columns


def read_stream(
    spark: SparkSession, settings: Settings, topics: Iterable[str], begin: Positions, limits: Mapping[str, str]
) -> DataFrame:
    """The log from `begin` on, as Spark divides it into batches. `read` reads the records of a batch.

    Spark knows the topics by Kafka's names, also in its own log of offsets (`truelog.streaming.spark_offsets`).
    """
    names, topics = settings.names, list(topics)
    options = {
        **settings.spark_kafka(),
        "subscribe": ",".join(map(names.topic_of, topics)),
        "startingOffsets": begin.only(topics).renamed(names.topic_of).as_json(),
        "failOnDataLoss": "true",
        **limits,
    }
    return spark.readStream.format("kafka").options(**options).load()


def read(
    spark: SparkSession, settings: Settings, types: EventTypes, ranges: Iterable[Range], needed: Columns | None = None
) -> DataFrame:
    """The decoded records of these ranges of the log, which the executors' Python processes read.

    A small batch is read in one task: the tasks of several would cost more than its records. A batch that one task has
    decoded also needs no shuffle, because each view groups it in the same task.
    """
    shares = range_reader.shares(ranges, spark.sparkContext.defaultParallelism, RECORDS_PER_TASK)
    client, output = settings.kafka(KafkaUser.READER), _output(types, needed)
    decode = _decoder(types, output)

    def read_shares(numbers: _Batches) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for each in number["id"].to_pylist():
                yield from decode(range_reader.read(client, shares[each]))

    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read_shares, from_arrow_schema(output))


def decoded(raw: DataFrame, types: EventTypes, needed: Columns | None = None) -> DataFrame:
    """Decode raw records with Arrow, in the executors' Python processes. Without `needed`, all columns are needed."""
    output = _output(types, needed)
    selected = raw.select(*range_reader.RAW.names)
    return selected.mapInArrow(_decoder(types, output), from_arrow_schema(output))


def _output(types: EventTypes, needed: Columns | None) -> pa.Schema:
    """The columns of a decoded frame."""
    fields = {name: list(each.arrow_schema) for name, each in types.items()}
    for name in fields.keys() & (needed or {}).keys():
        fields[name] = [each for each in fields[name] if each.name in (needed or {})[name]]
    structs = [pa.field(name, pa.struct(each)) for name, each in fields.items() if each]
    return pa.schema([*PLACE, pa.field("invalid", pa.string()), *structs])


def events(records: DataFrame, types: EventTypes) -> EventFrames:
    """The valid events of each type, from decoded records."""
    return {name: _events_of_topic(records, name) for name in types}


def _events_of_topic(records: DataFrame, topic: str) -> DataFrame:
    """The valid events of a topic. The alias distinguishes the struct column from an archive table of the same name."""
    valid = records.alias("record").where(f"topic = '{topic}' AND invalid IS NULL")
    return valid.select(*PLACE.names, *([f"record.{topic}.*"] if topic in records.columns else []))


def from_position(by_topic: EventFrames, position: Positions, begin: Positions) -> EventFrames:
    """The events from `begin` on that a view at `position` still lacks; it may be past `begin` in some partitions."""
    ahead = [(t, p, position.at(t, p)) for t, p in position.partitions() if position.at(t, p) > begin.at(t, p)]
    return _without(by_topic, [(t, (F.col("partition") == p) & (F.col("offset") < o)) for t, p, o in ahead])


def in_ranges(ranges: Iterable[Range]) -> Column:
    """Whether a record of a topic is in one of these ranges of the topic."""
    offset, found = F.col("offset"), F.lit(False)
    for each in ranges:
        found |= (F.col("partition") == each.partition) & (offset >= each.start) & (offset < each.end)
    return found


def without_records(by_topic: EventFrames, coordinates: Iterable[Coordinates]) -> EventFrames:
    """The events without the records at the given (topic, partition, offset)."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in coordinates:
        offsets.setdefault((topic, partition), []).append(offset)
    return _without(
        by_topic, [(t, (F.col("partition") == p) & F.col("offset").isin(o)) for (t, p), o in offsets.items()]
    )


def _without(by_topic: EventFrames, conditions: list[tuple[str, Column]]) -> EventFrames:
    if not conditions:
        return by_topic
    frames = dict(by_topic)
    for topic, condition in conditions:
        if topic in frames:
            frames[topic] = frames[topic].where(~condition)
    return frames


def _decoder(types: EventTypes, output: pa.Schema) -> _Decoder:
    def decode_batches(batches: _Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for topic in pc.unique(batch.column("topic")).to_pylist():
                records = batch.filter(pc.equal(batch.column("topic"), topic))
                yield _decode(records, types[topic], output)

    return decode_batches


def _decode(batch: pa.RecordBatch, event_type: EventType, output: pa.Schema) -> pa.RecordBatch:
    """Decode raw records of one topic into the columns of `output`, each by the version in force at its offset."""
    fields = list(output.field(event_type.name).type) if event_type.name in output.names else []
    events = judge(event_type, batch, [each.name for each in fields])
    columns = {name: batch.column(name) for name in PLACE.names}
    columns["invalid"] = events.column("invalid")
    if fields:
        typed = [events.column(each.name) for each in fields]
        columns[event_type.name] = pa.StructArray.from_arrays(typed, fields=fields)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(batch.num_rows, f.type) for f in output]
    return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, output, strict=True)], schema=output)
