"""Hostile frames: each is one invalid record with a reason, and the records beside it stay as they are."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.library.hostile import GOOD, HOSTILE, THING
from tests.library.schema.frames.frames import framed, written
from truelog.schema.event import EventType
from truelog.schema.event_version import judge
from truelog.schema.frames.kept_schema import AVRO, JSON, KeptSchema
from truelog.schema.frames.unframe import is_framed, unframe

BROKER = datetime(2026, 11, 21, 10, tzinfo=UTC)
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def schema(*fields: tuple[str, Any]) -> dict[str, Any]:
    envelope = [("event_id", "string"), ("occurred_at", MICROS), ("text", "string")]
    return {"type": "record", "name": "Thing", "fields": [{"name": n, "type": t} for n, t in (*envelope, *fields)]}


PLAIN = schema(("number", ["null", "long"]), ("words", {"type": "array", "items": "string"}))
STRANGE = schema(("amount", "double"), ("short", ["null", "bytes", "string"]), ("secret", "bytes"))
KEPT = (KeptSchema(7, AVRO, json.dumps(PLAIN)), KeptSchema(2**31, JSON, "{}"), KeptSchema(9, AVRO, json.dumps(STRANGE)))
FRAMED = replace(THING, frames=KEPT)
EVENT = {"event_id": "e", "occurred_at": datetime(2026, 11, 21, 9, 59, tzinfo=UTC), "text": "t"}
AVRO_GOOD = framed(7, written(PLAIN, EVENT | {"number": 1, "words": ["a"]}))
JSON_GOOD = framed(2**31, GOOD)


def judged(event_type: EventType, values: list[bytes | None]) -> list[dict[str, Any]]:
    columns = {
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "value": pa.array(values, pa.binary()),
        "broker_time": pa.array([BROKER] * len(values), pa.timestamp("us", "UTC")),
    }
    found: list[dict[str, Any]] = judge(event_type, pa.record_batch(columns)).to_pylist()
    return found


def strange(**values: Any) -> bytes:
    return framed(9, written(STRANGE, EVENT | {"amount": 1.5, "short": None, "secret": b"\xff"} | values))


NOT_ONE = "record: not exactly one value of schema 7 of the schema registry"
SHORT = "record: a frame of at most 5 bytes, which has no value"
BAD: dict[str, tuple[bytes, str]] = {
    "only the zero byte": (b"\0", SHORT),
    "no payload": (framed(7, b""), SHORT),
    "unknown schema": (framed(8, GOOD), "record: schema 8 of the schema registry was not kept when the record"),
    "wrong magic": (b"\1" + AVRO_GOOD[1:], "record: Invalid JSON"),
    "plain Avro": (AVRO_GOOD[5:], "record: Invalid JSON"),
    "truncated": (AVRO_GOOD[:-2], NOT_ONE),
    "trailing bytes": (AVRO_GOOD + b"\0", NOT_ONE),
    "text that is not UTF-8": (framed(7, b"\x02\xff" + AVRO_GOOD[7:]), NOT_ONE),
    "branch that does not exist": (AVRO_GOOD.replace(b"\x02t\x02\x02", b"\x02t\x08\x02"), NOT_ONE),
    "array of 2^62 texts": (AVRO_GOOD[:-4] + b"\x80" * 8 + b"\x80\x01" + b"\x02a", NOT_ONE),
    "text of 2^60 bytes": (framed(7, b"\x80" * 8 + b"\x20" + b"e"), NOT_ONE),
    "time past 9999": (framed(7, b"\x02e" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x02t\0\0"), NOT_ONE),
    "Avro in the frame of JSON": (framed(2**31, AVRO_GOOD[5:]), "record: Invalid JSON"),
    "frame in a frame": (framed(2**31, JSON_GOOD), "record: Invalid JSON"),
    "invalid JSON event": (framed(2**31, b'{"text":5}'), "text: "),
    "NaN": (strange(amount=float("nan")), "amount: NaN or infinity, which JSON cannot carry"),
    "infinity": (strange(amount=float("-inf")), "amount: NaN or infinity, which JSON cannot carry"),
    "bytes in a declared field": (strange(short=b"x"), "short: bytes, which JSON cannot carry"),
    "a value past a bound": (strange(short="four"), "short: length 4 is above 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_frame_harms_no_other_record(name: str) -> None:
    bad, reason = BAD[name]
    rows = judged(FRAMED, [AVRO_GOOD, bad, GOOD, None, JSON_GOOD, bad, AVRO_GOOD])
    assert [row["number"] for row in rows] == [1, None, 1, None, 1, None, 1]
    assert [row["words"] for row in rows if row["words"]] == [["a"], ["a"]]
    for row in (rows[1], rows[5]):
        assert str(row.pop("invalid")).startswith(reason)
        assert not any(value is not None for value in row.values())


def test_an_undeclared_field_may_have_what_json_cannot_carry() -> None:
    [row] = judged(FRAMED, [strange()])
    assert (row["invalid"], row["amount"]) == (None, 1.5)


def test_plain_bytes_stay_plain() -> None:
    values: list[bytes | None] = [each for each in HOSTILE if not is_framed(each)]
    assert unframe(FRAMED, pa.array(values, pa.binary())) is None
    assert judged(FRAMED, values) == judged(THING, values)


def test_without_kept_schemas_each_framed_record_says_which_schema_is_missing() -> None:
    [row] = judged(THING, [AVRO_GOOD])
    assert row["invalid"] == "record: schema 7 of the schema registry was not kept when the record was written"


@pytest.mark.parametrize("size", [0, 1, 3])
def test_slices_and_empty_batches(size: int) -> None:
    values = pa.array([b"", JSON_GOOD, None, AVRO_GOOD, GOOD], pa.binary()).slice(1, size)
    found = unframe(FRAMED, values)
    assert (found is None) == (size == 0)
    if found is not None:
        plain = [None if each is None else json.loads(each) for each in found.values.to_pylist()]
        assert plain[:1] == [json.loads(GOOD)]
        assert len(plain) == len(found.reasons) == size


def test_every_cut_of_a_frame_and_every_changed_byte_is_judged() -> None:
    cut = [AVRO_GOOD[:end] for end in range(1, len(AVRO_GOOD))]
    changed = [
        AVRO_GOOD[:place] + bytes([byte]) + AVRO_GOOD[place + 1 :]
        for place in range(len(AVRO_GOOD))
        for byte in (0, 1, 127, 128, 255)
    ]
    rows = judged(FRAMED, [*cut, *changed, AVRO_GOOD])
    assert rows[-1]["invalid"] is None
    assert all(row["invalid"] is not None for row in rows[: len(cut)])
    assert len(rows) == len(cut) + len(changed) + 1


def test_the_writer_of_these_tests_is_read_by_others() -> None:
    """Another implementation of Avro reads the records."""
    import io

    import avro.io
    import avro.schema

    decoder = avro.io.BinaryDecoder(io.BytesIO(AVRO_GOOD[5:]))
    found = avro.io.DatumReader(avro.schema.parse(json.dumps(PLAIN))).read(decoder)
    assert found == EVENT | {"number": 1, "words": ["a"]}
