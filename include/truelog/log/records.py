"""Records: the log as a DataFrame, decoded once for all the views of an application.

A decoded frame holds topic, partition, offset, broker_time, `invalid` (why a record is no event, else NULL) and one
struct column for each event type, NULL where the record is of another type.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from truelog.log.positions import Positions
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT, EventType
from truelog.support.settings import Settings

_COORDINATES = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("broker_time", pa.timestamp("us", "UTC")),
    ]
)

EventTypes = Mapping[str, EventType]
EventFrames = Mapping[str, DataFrame]  # the good events of each topic, as transforms see them
_Batches = Iterable[pa.RecordBatch]
_Decoder = Callable[[_Batches], Iterator[pa.RecordBatch]]


def schema(event_type: EventType) -> StructType:
    """What a transform sees of an event type: where the record lies in the log, then the typed columns."""
    return from_arrow_schema(pa.schema([*_COORDINATES, *event_type.arrow_schema]))


def read_stream(spark: SparkSession, settings: Settings, topics: tuple[str, ...], begin: Positions) -> DataFrame:
    """The log from `begin` on, as an endless frame of raw records."""
    options = {
        **settings.spark_kafka(),
        "subscribe": ",".join(topics),
        "startingOffsets": begin.only(topics).as_json(),
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
    }
    return spark.readStream.format("kafka").options(**options).load()


def read_range(spark: SparkSession, settings: Settings, begin: Positions, end: Positions) -> DataFrame:
    """The raw records in [begin, end), read from the log at once."""
    options = {
        **settings.spark_kafka(),
        "subscribe": ",".join(end.offsets),
        "startingOffsets": begin.only(end.offsets).as_json(),
        "endingOffsets": end.as_json(),
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**options).load()


def decoded(raw: DataFrame, types: EventTypes) -> DataFrame:
    """Raw records → decoded ones, in the executors' Python, by Arrow."""
    columns = [
        *_COORDINATES,
        pa.field("invalid", pa.string()),
        *(pa.field(name, pa.struct(list(each.arrow_schema))) for name, each in types.items()),
    ]
    shape = pa.schema(columns)
    read = raw.selectExpr("topic", "partition", "offset", "timestamp AS broker_time", "value")
    return read.mapInArrow(_decoder(types, shape), from_arrow_schema(shape))


def events(records: DataFrame, types: EventTypes) -> EventFrames:
    """Decoded records → the good events of each type."""
    return {name: _of(records, name) for name in types}


def _of(records: DataFrame, topic: str) -> DataFrame:
    """An archive table is called as its struct column is here: a name of the frame's own tells the two apart."""
    mine = records.alias("record").where(f"topic = '{topic}' AND invalid IS NULL")
    return mine.select(*_COORDINATES.names, f"record.{topic}.*")


def from_position(by_topic: EventFrames, stands: Positions, begin: Positions) -> EventFrames:
    """What a view that stands past `begin` in some partitions still lacks of the events from `begin` on."""
    ahead = [(t, p, stands.at(t, p)) for t, p in stands.partitions() if stands.at(t, p) > begin.at(t, p)]
    return _but_for(by_topic, [(t, (F.col("partition") == p) & (F.col("offset") < o)) for t, p, o in ahead])


def without_records(by_topic: EventFrames, places: list[tuple[str, int, int]]) -> EventFrames:
    """Events but for those at the given (topic, partition, offset)."""
    return _but_for(by_topic, [(t, (F.col("partition") == p) & (F.col("offset") == o)) for t, p, o in places])


def _but_for(by_topic: EventFrames, conditions: list[tuple[str, Column]]) -> EventFrames:
    kept = dict(by_topic)
    for topic, condition in conditions:
        if topic in kept:
            kept[topic] = kept[topic].where(~condition)
    return kept


def _decoder(types: EventTypes, shape: pa.Schema) -> _Decoder:
    def decode_batches(batches: _Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for topic in pc.unique(batch.column("topic")).to_pylist():
                mine = batch.filter(pc.equal(batch.column("topic"), topic))
                yield _decode(mine, types[topic], shape)

    return decode_batches


def _decode(batch: pa.RecordBatch, event_type: EventType, shape: pa.Schema) -> pa.RecordBatch:
    """Raw records of one topic → the columns of `shape`."""
    events = decode(event_type, batch.column("value"), batch.column("broker_time"), FUTURE_LIMIT)
    fields = event_type.arrow_schema
    typed = [events.column(name) for name in fields.names]
    columns = {name: batch.column(name) for name in _COORDINATES.names}
    columns["invalid"] = events.column("invalid")
    columns[event_type.name] = pa.StructArray.from_arrays(typed, fields=list(fields))
    arrays = [columns[f.name] if f.name in columns else pa.nulls(batch.num_rows, f.type) for f in shape]
    return pa.RecordBatch.from_arrays([a.cast(f.type) for a, f in zip(arrays, shape, strict=True)], schema=shape)
