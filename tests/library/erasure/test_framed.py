"""Whom a framed record names: what its kept schema says, and anyone if nothing can read it."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.library.schema.frames.frames import framed, written
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.framed import named_in_frame
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.schema.frames.kept_schema import AVRO, JSON, KeptSchema
from truelog.schema.loading.events import load_events

TEXTS = {"type": "array", "items": "string"}
PERSON = {"type": "record", "name": "P", "fields": [{"name": "visitor_id", "type": ["null", "string", "long", TEXTS]}]}
SCHEMA = {
    "type": "record",
    "name": "V",
    "fields": [
        {"name": "url", "type": "string"},
        {"name": "visitor_id", "type": ["null", "string", "long", {"type": "string", "logicalType": "uuid"}]},
        {"name": "seen", "type": {"type": "array", "items": PERSON}},
        {"name": "more", "type": {"type": "map", "values": "string"}},
    ],
}
KEPT = {1: KeptSchema(1, AVRO, json.dumps(SCHEMA)), 2: KeptSchema(2, JSON, "{}")}
FIELDS = frozenset({"visitor_id"})
TYPE = replace(load_events()["page_view"], frames=tuple(KEPT.values()))
TOPIC_ID = "an-id"


def visit(**values: Any) -> bytes:
    return framed(1, written(SCHEMA, {"url": "/ann", "visitor_id": None, "seen": [], "more": {}} | values))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (visit(), set()),
        (visit(visitor_id="ann"), {"ann"}),
        (visit(visitor_id=5), {"5"}),
        (visit(seen=[{"visitor_id": "ann"}, {"visitor_id": ["bob", "eve"]}]), {"ann", "bob", "eve"}),
        (visit(more={"visitor_id": "ann", "other": "bob"}), {"ann"}),
        (framed(2, b'{"url": "/ann", "visitor_id": "bob"}'), {"bob"}),
        (framed(2, b'{"who": {"visitor_id": ["bob", 5]}}'), {"bob", "5"}),
    ],
)
def test_a_framed_record_names_the_values_of_the_fields(value: bytes, named: set[str]) -> None:
    found = named_in_frame(FIELDS, KEPT, value)
    assert found == {("visitor_id", each) for each in named}


UNREADABLE = [b"\0", framed(1, b""), framed(3, b'{"visitor_id": "bob"}'), visit()[:-1], visit() + b"x"]


@pytest.mark.parametrize("value", UNREADABLE)
def test_nothing_says_whom_an_unreadable_frame_names(value: bytes) -> None:
    assert named_in_frame(FIELDS, KEPT, value) is None


def test_an_erasure_covers_what_names_its_subject_and_what_nothing_can_read() -> None:
    subjects = frozenset({Subject.of(b"s", "visitor_id", "ann")})
    ends = Positions({"page_view": {0: 100, 1: 2}}, {"page_view": TOPIC_ID})
    erasures = Erasures(b"s", (Erasure(UUID(int=1), subjects, {"page_view": ("visitor_id",)}, ends),))
    bob = visit(visitor_id="bob")
    ann = b'{"visitor_id": "ann"}'
    values: list[bytes | None] = [visit(visitor_id="ann"), bob, *UNREADABLE, framed(2, ann), ann]
    values += [b'{"visitor_id": "bob"}', None, None]
    keys = [b"k"] * (len(values) - 2) + [b"\0\0\0\0\1\6ann", b"bob"]
    expected = [True, False, *([True] * len(UNREADABLE)), True, True, False, True, False]

    def covered(partition: int, first: int) -> list[bool]:
        columns = {
            "partition": pa.array([partition] * len(values), pa.int32()),
            "offset": pa.array(range(first, first + len(values)), pa.int64()),
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
        }
        return [bool(each) for each in erasures.covered(TYPE, TOPIC_ID, pa.RecordBatch.from_pydict(columns))]

    assert covered(0, 0) == expected
    assert not any(covered(0, 100))
    assert covered(1, 1) == [True, *([False] * (len(values) - 1))]
