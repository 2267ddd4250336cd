"""Law: a record in the frame of a schema registry is the event that the plain JSON of the same values is.

Confluent's serializers write the frames. However records are cut into batches, each has the same row, byte for byte.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beds.schema_registry import StubRegistry, serving
from tests.library.hostile import THING
from truelog.schema.event import EventType
from truelog.schema.event_version import judge
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.support import timestamps

MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{name}"} for name in ("millis", "micros"))
SEEDED = settings(derandomize=True, deadline=None, database=None, max_examples=150)
BROKER = datetime(2026, 11, 21, 10, tzinfo=UTC)

Event = dict[str, Any]


def optional(kind: Any, null_first: bool) -> list[Any]:
    return ["null", kind] if null_first else [kind, "null"]


def avro_schema(time: Any, null_first: bool) -> dict[str, Any]:
    types = {"short": "string", "number": "long", "small": "int", "flag": "boolean", "amount": "double", "at": time}
    fields = {"event_id": "string", "occurred_at": time, "text": "string", "undeclared": optional("bytes", null_first)}
    fields |= {name: optional(kind, null_first) for name, kind in types.items()}
    fields["words"] = optional({"type": "array", "items": "string"}, null_first)
    return {"type": "record", "name": "Thing", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


@dataclass(frozen=True)
class Producers:
    """Three producers of the same events, and the event type that keeps the schemas of two of them."""

    serializers: Sequence[Any]
    event_type: EventType

    def records(self, event: Event) -> list[bytes]:
        """The plain record, and the framed records."""
        as_json = {name: timestamps.to_text(v) if isinstance(v, datetime) else v for name, v in event.items()}
        context = SerializationContext("thing", MessageField.VALUE)
        avro, json_frame = self.serializers
        framed = avro(event | {"undeclared": b"\xff"}, context), json_frame(as_json, context)
        return [json.dumps(as_json).encode(), *framed]


@pytest.fixture(scope="module", params=[(MICROS, True), (MILLIS, False)], ids=["micros", "millis"])
def producers(request: pytest.FixtureRequest) -> Iterator[Producers]:
    with serving(StubRegistry()) as registry:
        avro = AvroSerializer(registry.client(), json.dumps(avro_schema(*request.param)))
        json_frame = JSONSerializer(json.dumps(THING.json_schema), registry.client(), conf={"validate": False})
        made = Producers((avro, json_frame), THING)
        made.records({"event_id": "e", "occurred_at": BROKER, "text": "t"})
        kept = [KeptSchema(n, each["schemaType"], each["schema"]) for n, each in enumerate(registry.schemas, 1)]
        assert [each.kind for each in kept] == ["AVRO", "JSON"]
        yield replace(made, event_type=replace(THING, frames=tuple(kept)))


def instants(latest: datetime) -> st.SearchStrategy[datetime]:
    """Times of whole milliseconds, because one of the schemas has no others."""
    found = st.datetimes(datetime(1, 1, 2), latest, timezones=st.just(UTC))
    return found.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
events = st.fixed_dictionaries(
    {
        "event_id": st.text("ab\0é", min_size=0, max_size=3),
        "occurred_at": instants(datetime(2026, 11, 21, 10, 6)),
        "text": texts,
    },
    optional={
        "short": st.none() | texts,
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-7, 7),
        "flag": st.none() | st.booleans(),
        "amount": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "at": st.none() | instants(datetime(9999, 12, 30)),
        "words": st.none() | st.lists(texts, max_size=4),
    },
)


def judged(event_type: EventType, values: Sequence[bytes], first: int = 0) -> pa.RecordBatch:
    columns = {
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(first, first + len(values)), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "broker_time": pa.array([BROKER] * len(values), pa.timestamp("us", "UTC")),
    }
    return judge(event_type, pa.record_batch(columns))


def stored(rows: pa.RecordBatch) -> bytes:
    """The bytes of these rows, however they were put together."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows.take(pa.array(range(rows.num_rows))))
    return bytes(sink.getvalue())


@SEEDED
@given(st.data())
def test_a_framed_record_is_the_event_of_its_values(producers: Producers, data: st.DataObject) -> None:
    plain, *framed = producers.records(data.draw(events))
    [expected] = judged(THING, [plain]).to_pylist()
    for each in framed:
        [row] = judged(producers.event_type, [each]).to_pylist()
        assert repr(row) == repr(expected)  # also tells -0.0 from 0.0


@settings(SEEDED, max_examples=40)
@given(st.data())
def test_however_records_are_cut_each_has_the_same_row(producers: Producers, data: st.DataObject) -> None:
    values = [
        data.draw(st.sampled_from([*producers.records(event), b"\0\0", b"{"]))
        for event in data.draw(st.lists(events, min_size=1, max_size=12))
    ]
    whole = judged(producers.event_type, values)
    cut = data.draw(st.integers(0, len(values)))
    parts = [judged(producers.event_type, values[:cut]), judged(producers.event_type, values[cut:], cut)]
    alone = [judged(producers.event_type, [each], number) for number, each in enumerate(values)]
    assert stored(pa.concat_batches(parts)) == stored(whole) == stored(pa.concat_batches(alone))
