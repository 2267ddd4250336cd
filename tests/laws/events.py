"""Generated events for the laws, drawn from the declaration of their type.

There are few different values, so that keys repeat, and some values are hostile.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from truelog.schema.event import EventType
from truelog.schema.field import Field

START = datetime(2026, 3, 1, tzinfo=UTC)

_TEXTS: tuple[str, ...] = (
    "a",
    "b",
    "http://h/p",
    "http://h/q?x=1",
    "https://user@h2:8080/p#f",
    "http://[bad",
    "http://h/%00%zz",
    "",
    " ",
    "\x00",
    "a\x00b",
    "é",
    "e\u0301",
    "\U0001f600",
    "'; DROP TABLE views; --",
    "\\N",
)
LONG = tuple(random.Random(3).randbytes(4_000).hex()[:n] for n in (2_500, 8_000))  # longer than an index accepts
_TEXTS += LONG
IDS = ("a", "a\x00", "a\u2400")  # few, so that events often refer to another event's id
_INTEGERS = (0, 1, 2, 100, 255, 2**31 - 1, 2**53 + 1, 2**63 - 1, -1, -(2**63))
_TIMES = (datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))

near = st.integers(-180, 180).map(lambda s: START + timedelta(seconds=s / 2))
an_hour_later = near.map(lambda time: time + timedelta(hours=1))


def value(field: Field) -> st.SearchStrategy[Any]:
    """Values for a declared field: values within the field's bounds, if any, or else any value of its type."""
    if field.name in {"occurred_at", "sent_at", "received_at"}:
        times = st.one_of(near, near, an_hour_later, st.sampled_from(_TIMES)) if field.required else near
        return times if field.required else st.none() | times
    texts = IDS if field.name in {"event_id", "search_id", "cart_id"} else _TEXTS
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: st.sampled_from([t for t in texts if (field.shortest or 0) <= len(t) <= (field.longest or len(t))]),
        list[str]: st.just(list(texts)) | st.lists(st.sampled_from(texts), min_size=field.shortest or 0, max_size=4),
        int: st.sampled_from([i for i in _INTEGERS if _within(field, i)]),
        bool: st.booleans(),
        float: st.sampled_from((0.0, -0.0, 0.1, 1e300, -1e-300)),
        datetime: near,
    }
    strategy = kinds[field.python_type]
    return strategy if field.required else st.none() | strategy


def _within(field: Field, i: int) -> bool:
    return (field.least is None or i >= field.least) and (field.most is None or i <= field.most)


def _value_or_example(event_type: EventType, field: Field) -> st.SearchStrategy[Any]:
    """A value of the field. If its declaration has examples, most values are examples."""
    examples = event_type.model.model_fields[field.name].examples
    return st.one_of(st.sampled_from(examples), st.sampled_from(examples), value(field)) if examples else value(field)


def event(event_type: EventType) -> st.SearchStrategy[bytes]:
    """An event in its wire format."""
    fields = {f.name: _value_or_example(event_type, f) for f in event_type.fields}
    return st.fixed_dictionaries(fields).map(_encode)


def _encode(fields: dict[str, Any]) -> bytes:
    def plain(each: Any) -> Any:
        return each.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27) if isinstance(each, datetime) else each

    return json.dumps({k: plain(v) for k, v in fields.items()}).encode()


@dataclass(frozen=True)
class Record:
    """A record of a generated log, and the number of the micro-batch that the stream reads it in.

    `second` is when the broker appended it, from `START` on.
    """

    topic: str
    partition: int
    value: bytes | None
    cut: int
    second: int = 0


def hostile(event_type: EventType) -> st.SearchStrategy[bytes | None]:
    """A record that a hostile or broken producer sends: bytes that are no event, or an event with a hostile field."""
    changed = st.tuples(event(event_type), st.sampled_from(_HOSTILE_FIELDS)).map(lambda drawn: _with_field(*drawn))
    return st.one_of(st.sampled_from(_NO_EVENTS), changed, st.builds(_far_away, event(event_type)))


# Text after the fields of an event, so that the last value of a duplicate field is the hostile one.
_HOSTILE_FIELDS = (
    '"unknown": "\\ud800"',
    '"event_id": "\\udc00"',
    '"event_id": "' + "x" * 20_000 + '"',
    '"unknown": "' + "x" * 20_000 + '"',
    '"unknown": ' + "[" * 900 + "]" * 900,
    '"unknown": ' + "[" * 50_000 + "]" * 50_000,
    '"unknown": NaN',
    '"unknown": 1e400',
    '"visitor_id": "twice"',
    '"occurred_at": "0000-12-31T23:59:59Z"',
    '"sent_at": "9999-12-31T23:59:59.999999Z"',
    '"received_at": "0001-01-01T00:00:00Z"',
)
_NO_EVENTS = (
    None,
    b"",
    b"[]",
    b"null",
    b"not json",
    b"\xff\xfe",
    b'{"event_id": 1}',
    b'{"a": 1}{"b": 666}',
    b'{"a": 1',
    b',"b": 9}',
    b'{"occurred_at": "294277-01-01T00:00:00Z"}',
    b'{"occurred_at": "-4713-01-01T00:00:00Z"}',
)


def _with_field(encoded: bytes, field: str) -> bytes:
    return encoded[:-1] + b", " + field.encode() + b"}"


def _far_away(encoded: bytes) -> bytes:
    """A valid event of a device whose clock is in the year 9999."""
    far = {"occurred_at": "9999-12-31T23:59:59.999999Z", "sent_at": "9999-12-31T23:59:59.999999Z", "received_at": None}
    return json.dumps(json.loads(encoded) | far).encode()


def log(
    types: dict[str, EventType],
    reads: tuple[str, ...],
    *,
    partitions: int = 3,
    shortest: int | None = None,
    longest: int | None = None,
    bad: bool = False,
    steps: Sequence[int] = (0,),
) -> st.SearchStrategy[list[Record]]:
    """A log of these topics with randomly interleaved partitions, cut into random micro-batches.

    If `bad` is true, one record in four is hostile, no log is short, and records also skip micro-batches. A log of
    several topics is longer, because its events must refer to each other. The broker appends each record one of the
    `steps` in seconds after the record before it in the partition.
    """
    most = longest or max(12, 8 * len(reads))
    least = most // 3 if bad else 4 * len(reads) if len(reads) > 1 else 0
    least = least if shortest is None else shortest

    def value(topic: str) -> st.SearchStrategy[bytes | None]:
        good: st.SearchStrategy[bytes | None] = event(types[topic])
        return st.one_of(good, good, good, hostile(types[topic])) if bad else good

    one = st.one_of([st.tuples(st.just(t), st.integers(0, partitions - 1), value(t)) for t in reads])
    placed = st.tuples(one, st.integers(0, 2 if bad else 1), st.sampled_from(steps))
    return st.lists(placed, min_size=least, max_size=most).map(_cut)


def _cut(drawn: list[tuple[tuple[str, int, bytes | None], int, int]]) -> list[Record]:
    """Assign records to micro-batches, in offset order within a partition and independently of other partitions."""
    reached: dict[tuple[str, int], tuple[int, int]] = {}
    records = []
    for (topic, partition, encoded), step, seconds in drawn:
        cut, second = reached.get((topic, partition), (partition % 2, 0))
        reached[topic, partition] = cut + step, second + seconds
        records.append(Record(topic, partition, encoded, *reached[topic, partition]))
    return records
