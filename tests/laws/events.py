"""Generated events for the laws, drawn from the declaration of their type.

There are few different values, so that keys repeat, and some values are hostile.
`docs/decisions/065-examples-are-data.md` explains why Hypothesis does not draw them.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.builders.changes import change, ended
from truelog.schema.change import OPERATIONS, Change
from truelog.schema.event import EventType
from truelog.schema.field import Field

START = datetime(2026, 3, 1, tzinfo=UTC)

Draw = Callable[[Random], Any]  # draws a value, the same for the same state of the random numbers

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
LONG = tuple(Random(3).randbytes(4_000).hex()[:n] for n in (2_500, 8_000))  # longer than an index accepts
_TEXTS += LONG
_ENDS = 0.05  # the share of a captured table's records that are the end of a snapshot
_COMPLETED = 0.9  # the share of events that get what their verb requires
IDS = ("a", "a\x00", "a\u2400")  # few, so that events often refer to another event's id
_OF_ONE = tuple(f"id {number}" for number in range(60))  # many, so that few events of a log are copies
EVENT_IDS = frozenset((*IDS, *_OF_ONE))
_INTEGERS = (0, 1, 2, 100, 255, 2**31 - 1, 2**53 + 1, 2**63 - 1, -1, -(2**63))
_TIMES = (datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))


def one_of(*draws: Draw) -> Draw:
    return lambda chosen: chosen.choice(draws)(chosen)


def sampled_from(values: Sequence[Any]) -> Draw:
    return lambda chosen: chosen.choice(values)


def near(chosen: Random) -> datetime:
    return START + timedelta(seconds=chosen.randint(-180, 180) / 2)


def an_hour_later(chosen: Random) -> datetime:
    return near(chosen) + timedelta(hours=1)


def value(field: Field) -> Draw:
    """Values for a declared field: values within the field's bounds, if any, or else any value of its type."""
    if field.name in {"occurred_at", "sent_at", "received_at"}:
        times = one_of(near, near, an_hour_later, sampled_from(_TIMES)) if field.required else near
        return times if field.required else one_of(_none, times)
    if field.values:
        return sampled_from(field.values)
    if field.name == "event_id":
        return one_of(sampled_from(IDS), sampled_from(_OF_ONE))
    texts = IDS if field.name in {"search_id", "cart_id"} else _TEXTS
    least = field.shortest or 0

    def some(chosen: Random) -> list[str]:
        return chosen.choices(texts, k=chosen.randint(least, 4))

    kinds: dict[Any, Draw] = {
        str: sampled_from([t for t in texts if least <= len(t) <= (field.longest or len(t))]),
        list[str]: one_of(lambda _: list(texts), some),
        int: sampled_from([i for i in _INTEGERS if _within(field, i)]),
        bool: sampled_from((False, True)),
        float: sampled_from((0.0, -0.0, 0.1, 1e300, -1e-300)),
        datetime: near,
    }
    draw = kinds[field.python_type]
    return draw if field.required else one_of(_none, draw)


def _none(_: Random) -> None:
    return None


def _within(field: Field, i: int) -> bool:
    return (field.least is None or i >= field.least) and (field.most is None or i <= field.most)


def _value_or_example(event_type: EventType, field: Field) -> Draw:
    """A value of the field. If its declaration has examples, most values are examples."""
    examples = event_type.model.model_fields[field.name].examples
    return one_of(sampled_from(examples), sampled_from(examples), value(field)) if examples else value(field)


def event(event_type: EventType) -> Draw:
    """An event in its wire format. A few events lack a field that their verb requires."""
    fields = {f.name: _value_or_example(event_type, f) for f in event_type.fields}
    if event_type.topic.source:
        return lambda chosen: _change({name: draw(chosen) for name, draw in fields.items()}, chosen)
    present = {f.name: value(replace(f, required=True)) for f in event_type.fields}

    def drawn(chosen: Random) -> bytes:
        found = {name: draw(chosen) for name, draw in fields.items()}
        for rule in event_type.required:
            if found[rule.when] in rule.is_in and found[rule.field] is None and chosen.random() < _COMPLETED:
                found[rule.field] = present[rule.field](chosen)
        return _encode(found)

    return drawn


def _change(fields: dict[str, Any], chosen: Random) -> bytes:
    """A change of a captured table: few places, which repeat, and two epochs."""
    row = {name: value for name, value in fields.items() if name not in Change.model_fields}
    if chosen.random() < _ENDS:
        return ended(epoch=chosen.randint(1, 2), began=chosen.randint(0, 9))
    operation = fields["source_operation"] if fields["source_operation"] in OPERATIONS.values() else "read"
    return change(
        operation,
        row,
        lsn=chosen.randint(0, 9),
        commit=chosen.choice((None, *range(10))),
        epoch=chosen.randint(1, 2),
        snapshot=chosen.choice(("first", "true", "last")) if operation == "read" else "false",
        at=fields["occurred_at"],
    )


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


def rule_of_case(number: int, value: bytes | None) -> bytes | None:
    """The record of a rule or a search with a name that no other case has: a rule judges the events of all cases.

    The name is also in the definition, which is JSON in JSON.
    """
    for noun, quote in ((b"rule", b'"'), (b"rule", rb"\""), (b"search", b'"')):
        field = b"%b%b%b: %b" % (quote, noun, quote, quote)
        value = value and value.replace(field, b"%bc%d_" % (field, number))
    return value


def hostile(event_type: EventType) -> Draw:
    """A record that a hostile or broken producer sends: bytes without an event, or an event with a hostile field."""
    good = event(event_type)

    def changed(chosen: Random) -> bytes:
        return _with_field(good(chosen), chosen.choice(_HOSTILE_FIELDS))

    return one_of(sampled_from(_NO_EVENTS), changed, lambda chosen: _far_away(good(chosen)))


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
) -> Callable[[Random], list[Record]]:
    """A log of these topics with randomly interleaved partitions, cut into random micro-batches.

    If `bad` is true, one record in four is hostile, no log is short, and records also skip micro-batches. A log of
    several topics is longer, because its events must refer to each other. The broker appends each record one of the
    `steps` in seconds after the record before it in the partition.
    """
    most = longest or max(12, 8 * len(reads))
    least = most // 3 if bad else 4 * len(reads) if len(reads) > 1 else 0
    least = least if shortest is None else shortest
    good = {topic: event(types[topic]) for topic in reads}
    values = {t: one_of(*[good[t]] * 3, hostile(types[t])) for t in reads} if bad else good

    def placed(chosen: Random) -> tuple[tuple[str, int, bytes | None], int, int]:
        topic, partition = chosen.choice(reads), chosen.randrange(partitions)
        step = chosen.randint(0, 2 if bad else 1)
        return (topic, partition, values[topic](chosen)), step, chosen.choice(steps)

    return lambda chosen: _cut([placed(chosen) for _ in range(chosen.randint(least, most))])


def _cut(drawn: list[tuple[tuple[str, int, bytes | None], int, int]]) -> list[Record]:
    """Assign records to micro-batches, in offset order within a partition and independently of other partitions."""
    reached: dict[tuple[str, int], tuple[int, int]] = {}
    records = []
    for (topic, partition, encoded), step, seconds in drawn:
        cut, second = reached.get((topic, partition), (partition % 2, 0))
        reached[topic, partition] = cut + step, second + seconds
        records.append(Record(topic, partition, encoded, *reached[topic, partition]))
    return records


def of_case(number: int, record: Record) -> Record:
    """A rule has a name of its own, and judges the whole log: its own positions would name partitions of one case."""
    value = rule_of_case(number, record.value)
    if record.topic in ("rule", "stored_search"):
        value = json.dumps(json.loads(value or b"") | {"begins": "{}"}).encode()
    return replace(record, value=value)
