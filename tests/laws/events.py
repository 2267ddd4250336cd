"""Generated events for the laws, drawn from the declaration of their type.

There are few different values, so that keys repeat, and some values are hostile.
"""

import json
import random
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
_IDS = ("a", "a\x00", "a\u2400")  # few, so that events often refer to another event's id
_INTEGERS = (0, 1, 2, 100, 255, 2**31 - 1, 2**53 + 1, 2**63 - 1, -1, -(2**63))
_TIMES = (datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))

near = st.integers(-180, 180).map(lambda s: START + timedelta(seconds=s / 2))
an_hour_later = near.map(lambda time: time + timedelta(hours=1))


def value(field: Field) -> st.SearchStrategy[Any]:
    """Values for a declared field: values within the field's bounds, if any, or else any value of its type."""
    if field.name in {"occurred_at", "sent_at", "received_at"}:
        times = st.one_of(near, near, an_hour_later, st.sampled_from(_TIMES)) if field.required else near
        return times if field.required else st.none() | times
    texts = _IDS if field.name in {"event_id", "search_id"} else _TEXTS
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        str: st.sampled_from([t for t in texts if len(t) >= (field.shortest or 0)]),
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


def event(event_type: EventType) -> st.SearchStrategy[bytes]:
    """An event in its wire format."""
    fields = {f.name: value(f) for f in event_type.fields}
    return st.fixed_dictionaries(fields).map(_encode)


def _encode(fields: dict[str, Any]) -> bytes:
    def plain(each: Any) -> Any:
        return each.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27) if isinstance(each, datetime) else each

    return json.dumps({k: plain(v) for k, v in fields.items()}).encode()


@dataclass(frozen=True)
class Record:
    """A record of a generated log, and the number of the micro-batch that the stream reads it in."""

    topic: str
    partition: int
    value: bytes
    cut: int


def log(types: dict[str, EventType], reads: tuple[str, ...], *, partitions: int = 3) -> st.SearchStrategy[list[Record]]:
    """A log of these topics with randomly interleaved partitions, cut into random micro-batches."""
    one = st.one_of([st.tuples(st.just(t), st.integers(0, partitions - 1), event(types[t])) for t in reads])
    return st.lists(st.tuples(one, st.integers(0, 1)), max_size=12).map(_cut)


def _cut(drawn: list[tuple[tuple[str, int, bytes], int]]) -> list[Record]:
    """Assign records to micro-batches, in offset order within a partition and independently of other partitions."""
    reached: dict[tuple[str, int], int] = {}
    records = []
    for (topic, partition, encoded), step in drawn:
        key = (topic, partition)
        reached[key] = reached.get(key, partition % 2) + step
        records.append(Record(topic, partition, encoded, reached[key]))
    return records
