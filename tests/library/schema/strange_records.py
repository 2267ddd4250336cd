"""Generated and mutated records, and the law that `decode` treats them as `decode_others` alone treats them.

A seed determines all records. Batches differ in their event type, their size and their share of strange records.
"""

import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from pydantic import Field as Declared

from tests.library.hostile import THING
from tests.library.schema import strange_values
from truelog.schema.decode import decode, decode_others
from truelog.schema.event import FUTURE_LIMIT, Event, EventType, Topic
from truelog.schema.field import INSTANT, Field
from truelog.schema.loading.events import load_events

BROKER = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
_FAR = timedelta(days=4_000_000)


class Reading(Event):
    """Required fields of every type, with bounds on numbers."""

    place: str = Declared(min_length=2, max_length=8)
    level: float = Declared(ge=-1, le=2.5)
    depth: float = Declared(ge=-math.inf, le=math.inf)
    steps: int = Declared(ge=-(2**63), le=2**63 - 1)
    count: int = Declared(ge=0)
    works: bool
    until: datetime
    marks: list[str] = Declared(min_length=1, max_length=4)


_READING = EventType("reading", Reading, Topic(key="place", subject=(), partitions=1, retention="1 day"))
TYPES = (*load_events().values(), THING, _READING)

_SIZES = (1, 2, 9, 60, 64, 65, 500, 1_024, 1_500, 4_096, 5_000)
SHARES = (0, 0.002, 0.01, 0.03, 0.1, 0.3)  # of strange records


@dataclass
class Batch:
    """Records of one event type, and the limit by which they are judged."""

    event_type: EventType
    values: list[bytes | None]
    is_strange: list[bool]
    limit: timedelta
    columns: list[str] | None


@dataclass
class Compared:
    """How many records were compared, how many of them are strange, and how many are valid."""

    records: int = 0
    strange: int = 0
    valid: int = 0

    def __add__(self, other: "Compared") -> "Compared":
        return Compared(self.records + other.records, self.strange + other.strange, self.valid + other.valid)


def compare(seed: int, records: int, shares: Sequence[float] = SHARES) -> Compared:
    """Compare the decoders on at least this many records. Raises AssertionError at the first difference."""
    made, found = _Maker(random.Random(seed), shares), Compared()
    while found.records < records:
        found += _compare(made.batch(), f"seed {seed}, after {found.records} records")
    return found


def _compare(batch: Batch, where: str) -> Compared:
    values = pa.array([b"{}", *batch.values], pa.binary()).slice(1)
    times = pa.array([BROKER] * len(values), INSTANT)
    expected = _expected(batch, values, times)
    found = decode(batch.event_type, values, times, batch.limit)
    found.validate(full=True)
    assert found.schema == expected.schema, where
    if not _bits(found).equals(_bits(expected)):
        row = next(n for n in range(len(values)) if not _bits(found.slice(n, 1)).equals(_bits(expected.slice(n, 1))))
        one, other = found.slice(row, 1).to_pylist(), expected.slice(row, 1).to_pylist()
        raise AssertionError(f"{where}, {batch.event_type.name} {batch.values[row]!r}:\n{one}\nis not\n{other}")
    if batch.columns is not None:
        narrow = decode(batch.event_type, values, times, batch.limit, batch.columns)
        assert set(narrow.schema.names) == {*batch.columns, "invalid"}
        assert _bits(narrow).equals(_bits(expected.select(narrow.schema.names))), f"{where}, {batch.columns}"
    return Compared(len(values), sum(batch.is_strange), found["invalid"].null_count)


def _expected(batch: Batch, values: pa.Array, times: pa.Array) -> pa.RecordBatch:
    """What `decode_others` makes of the records. The strange records are apart, because one of them delays others."""
    is_strange = np.array(batch.is_strange)
    rows = [np.flatnonzero(is_strange), np.flatnonzero(~is_strange)]
    parts = [decode_others(batch.event_type, values.take(r), times.take(r), batch.limit) for r in map(pa.array, rows)]
    return pa.concat_batches(parts).take(pa.array(np.argsort(np.concatenate(rows))))


def _bits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the bits of floats, because -0.0 equals 0.0."""
    columns = {name: batch[name] for name in batch.schema.names}
    return pa.record_batch({n: c.view(pa.int64()) if c.type == pa.float64() else c for n, c in columns.items()})


class _Maker:
    """Makes batches."""

    def __init__(self, chance: random.Random, shares: Sequence[float]) -> None:
        self.chance = chance
        self.shares = shares

    def batch(self) -> Batch:
        chance = self.chance
        event_type = chance.choice(TYPES)
        share, fresh = chance.choice(self.shares), chance.random() < 0.1
        undeclared = [f"k{chance.random()}"] if fresh else chance.sample(strange_values.UNDECLARED, chance.randrange(4))
        names = event_type.decoded_schema.names[:-1]  # without `invalid`
        is_strange = [chance.random() < share for _ in range(chance.choice(_SIZES))]
        values = [self._strange(event_type) if each else self._usual(event_type, undeclared) for each in is_strange]
        columns = chance.sample(names, chance.randrange(len(names) + 1)) if chance.random() < 0.2 else None
        return Batch(event_type, values, is_strange, chance.choice([FUTURE_LIMIT, _FAR, _FAR, _FAR]), columns)

    def _usual(self, event_type: EventType, undeclared: list[str]) -> bytes:
        return self._text(self._members(event_type, undeclared)).encode()

    def _members(self, event_type: EventType, undeclared: list[str]) -> list[tuple[str, str]]:
        chance = self.chance
        members = []
        for field in event_type.fields:
            if field.required or chance.random() < 0.7:
                is_null = not field.required and chance.random() < 0.2
                members.append((field.name, "null" if is_null else self._value(field)))
        for name in undeclared:
            if chance.random() < 0.5:
                values = strange_values.NESTED if chance.random() < 0.1 else strange_values.SCALARS
                members.append((name, chance.choice(values)))
        if chance.random() < 0.2:
            chance.shuffle(members)
        return members

    def _text(self, members: list[tuple[str, str]]) -> str:
        if self.chance.random() < 0.9:
            return "{" + ",".join([f'"{name}":{value}' for name, value in members]) + "}"
        space = self.chance.choice([" ", "\n", "\r\n\t", "  "])
        return space + "{" + f"{space},".join([f'"{n}"{space}:{space}{v}' for n, v in members]) + space + "}" + space

    def _value(self, field: Field) -> str:
        chance = self.chance
        if field.python_type is str:
            return f'"{chance.choice(field.values) if field.values else self._word(field)}"'
        if field.python_type is datetime:
            zone = chance.choice(["Z", "Z", "+00:00", "-03:30"])
            fraction = chance.choice(["", "", ".5", ".25", f".{chance.randrange(10**6):06}"])
            day, hour, second = chance.randrange(1, 21), chance.randrange(24), chance.randrange(60)
            return f'"2026-11-{day:02}T{hour:02}:07:{second:02}{fraction}{zone}"'
        if field.python_type is bool:
            return chance.choice(["true", "false"])
        if field.python_type is int:
            least, most = field.least if field.least is not None else -(2**63), field.most or 2**63 - 1
            return str(chance.choice([least, most, chance.randint(int(least), int(most)), max(int(least), 7) % 400]))
        if field.python_type is float:
            return self._float(field)
        count = chance.randint(field.shortest or 0, min(field.longest or 5, 5))
        return "[" + ",".join([f'"{self._piece()}"' for _ in range(count)]) + "]"

    def _float(self, field: Field) -> str:
        least, most = field.least if field.least is not None else -1e308, field.most or 1e308
        number = struct.unpack("d", self.chance.randbytes(8))[0]
        if not least <= number <= most:
            number = self.chance.uniform(max(least, -1e9), min(most, 1e9))
        return self.chance.choice([repr(number), f"{number:.30e}", f"{number:.4f}", "0", "-0.0", "1"])

    def _piece(self) -> str:
        piece: str = self.chance.choice(
            strange_values.ESCAPES if self.chance.random() < 0.02 else strange_values.PIECES
        )
        return piece

    def _word(self, field: Field) -> str:
        word = "w" * (field.shortest or 0) + self._piece()
        if self.chance.random() < 0.01 and field.longest is not None:
            word = self.chance.choice(["é", "😀", "w"]) * (field.longest + self.chance.choice([-1, 0, 0, 1]))
        return word

    def _strange(self, event_type: EventType) -> bytes | None:
        """A record with one or two mutations, or a hostile record."""
        chance = self.chance
        if chance.random() < 0.05:
            return chance.choice(strange_values.WHOLE)
        members = self._members(event_type, chance.sample(strange_values.UNDECLARED, chance.randrange(3)))
        for _ in range(chance.choice([1, 1, 2])):
            chance.choice(_MUTATIONS)(self, event_type, members)
        raw = self._text(members).encode("utf-8", "surrogatepass")
        return self._noised(raw) if chance.random() < 0.4 else raw

    def _replace(self, event_type: EventType, members: list[tuple[str, str]]) -> None:
        """Another value in a declared field."""
        members.append(self._odd(event_type))
        members[:] = list(dict(members).items())

    def _duplicate(self, event_type: EventType, members: list[tuple[str, str]]) -> None:
        """A second field of the same name, perhaps written with an escape, and with the same or another value."""
        name, value = self.chance.choice(members) if members else ("number", "1")
        escaped = f"\\u{ord(name[0]):04x}{name[1:]}" if name and ord(name[0]) < 2**16 else name
        values = [value, "null", self._odd(event_type)[1], self.chance.choice(strange_values.NESTED)]
        at = self.chance.randint(0, len(members))
        members.insert(at, (self.chance.choice([name, escaped]), self.chance.choice(values)))

    def _add(self, _: EventType, members: list[tuple[str, str]]) -> None:
        """An undeclared field with any value, perhaps a value that no parser accepts, or that only some accept."""
        deep = "[" * self.chance.choice([90, 600, 1_200])
        broken = [
            f'"{self.chance.choice(strange_values.NOT_ESCAPES)}"',
            deep + "]" * len(deep),
            deep,
            "tru",
            "nul",
            "None",
        ]
        odd = [*strange_values.NUMBERS, *strange_values.NESTED, *broken]
        name = self.chance.choice([*strange_values.UNDECLARED, f"k{self.chance.random()}", r"\u0041", r"a\"b", "\\"])
        members.insert(self.chance.randint(0, len(members)), (name, self.chance.choice(odd)))

    def _remove(self, _: EventType, members: list[tuple[str, str]]) -> None:
        if members:
            members.pop(self.chance.randrange(len(members)))

    def _odd(self, event_type: EventType) -> tuple[str, str]:
        """A declared field with a value that is rarely right."""
        chance, field = self.chance, self.chance.choice(event_type.fields)
        text = chance.choice(strange_values.NOT_ESCAPES + strange_values.ESCAPES)
        fitting = {
            str: [f'"{text}"', f'"{self._word(field)}{text}"'],
            datetime: [f'"{chance.choice(strange_values.TIMES)}"'],
        }
        others = [f'"{text}"', f'["{text}"]']
        if chance.random() < 0.6:
            return field.name, chance.choice(fitting.get(field.python_type, strange_values.NUMBERS))
        return field.name, chance.choice([*strange_values.WORDS, chance.choice(strange_values.NUMBERS), *others])

    def _noised(self, raw: bytes) -> bytes:
        """The record with other bytes in one place: flipped, deleted, repeated, inserted, or at one of its ends."""
        chance = self.chance
        start = chance.randrange(len(raw) + 1)
        end = min(len(raw), start + chance.choice([0, 1, 1, 1, 2, 9]))
        noise = bytes(chance.choice(strange_values.NOISE) for _ in range(chance.choice([0, 1, 1, 2])))
        cases: list[Callable[[], bytes]] = [
            lambda: raw[:start] + noise + raw[end:],
            lambda: raw[:start] + bytes([each ^ (1 << chance.randrange(8)) for each in raw[start:end]]) + raw[end:],
            lambda: raw[:end] + raw[start:],
            lambda: raw[:start],
            lambda: noise + raw,
            lambda: raw + noise,
            lambda: b"\xef\xbb\xbf" + raw,
            lambda: raw + chance.choice([b"null", b"{}", b",", b" ", raw, b"//", b"\x00"]),
        ]
        return chance.choice(cases)()


_Mutation = Callable[[_Maker, EventType, list[tuple[str, str]]], None]
_MUTATIONS: tuple[_Mutation, ...] = (
    *[_Maker._replace] * 6,
    *[_Maker._add] * 3,
    *[_Maker._remove] * 2,
    _Maker._duplicate,  # seldom, because `decode_others` finds such a record by halving its batch again and again
)
