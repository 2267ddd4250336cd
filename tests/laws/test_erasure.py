"""Model: the view of the log whose covered records have no payload equals the stream with the erasure.

The model reads, merges, rewrites and repairs itself, and takes from the product which records an erasure covers. So it
shows that the protocol is right. Other tests show that the product keeps to it, such as
`tests/library/kernel/test_merge_erasures.py`.

Random logs, cuts, and erasures, in every order of reading, merging, requesting, rewriting and repairing. A batch may be
read before an erasure is rewritten, and merged afterwards. The people and things come from small sets, so each erasure
touches rows that others touch too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from pydantic import Field

from tests.laws.naive_views import Place, Placed, Rows, merged, repaired
from truelog import Event, Topic
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.schema.event import EventType

SECRET, TOPIC_ID = b"secret", "first-life"
PARTITIONS = 2


class Holding(Event):
    """A person holds a thing."""

    person_id: str = Field(description="Who.")
    thing: str = Field(description="What.")


HOLDING = EventType("holding", Holding, Topic("thing", ("person_id",), PARTITIONS, "1 day"))


def positions(offsets: dict[int, int]) -> Positions:
    return Positions({HOLDING.name: offsets}, {HOLDING.name: TOPIC_ID})


@dataclass(frozen=True)
class Batch:
    """What a reader has read, and the erasures that the archive showed then."""

    begin: dict[int, int]
    end: dict[int, int]
    events: list[Placed]
    known: Erasures


@dataclass
class World:
    """A log with its archive, and a stream. The archive is the log, whose covered records a rewrite empties."""

    log: dict[int, list[bytes | None]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    archive: dict[Place, bytes | None] = field(default_factory=dict)
    erasures: Erasures = field(default_factory=lambda: Erasures(SECRET))
    rewritten: Erasures = field(default_factory=lambda: Erasures(SECRET))
    rows: Rows = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    batch: Batch | None = None
    is_repaired: bool = True

    @property
    def ends(self) -> dict[int, int]:
        return {partition: len(values) for partition, values in self.log.items()}

    def produce(self, partition: int, person: str, thing: str, event_id: str) -> None:
        value = json.dumps({"event_id": event_id, "person_id": person, "thing": thing}).encode()
        self.archive[partition, len(self.log[partition])] = value
        self.log[partition].append(value)

    def read(self, cut: dict[int, int]) -> None:
        end = {p: min(self.ends[p], self.reached[p] + cut[p]) for p in cut}
        places = [(p, o) for p in end for o in range(self.reached[p], end[p])]
        self.batch = Batch(dict(self.reached), end, self._events(places, self.from_log), self.rewritten)

    def from_log(self, place: Place) -> bytes | None:
        """A record, from the archive if an erasure that it shows may cover the record."""
        erased = max((each.ends.at(HOLDING.name, place[0]) for each in self.rewritten.all), default=0)
        return self.archive[place] if place[1] < erased else self.log[place[0]][place[1]]

    def merge(self) -> None:
        batch, self.batch = self.batch, None
        if batch is None or batch.begin != self.reached or self.is_stale(batch):
            return
        self.rows, self.reached = merged(self.rows, batch.events), batch.end

    def is_stale(self, batch: Batch) -> bool:
        """A batch that was read before an erasure which may cover its records."""
        missed = set(self.rewritten.all) - set(batch.known.all)
        return any(not positions(batch.begin).covers(each.ends) for each in missed)

    def request(self, person: str) -> None:
        number = len(self.erasures.all) + 1
        subjects = frozenset({Subject.of(SECRET, "person_id", person)})
        made = Erasure(UUID(int=number), subjects, {HOLDING.name: ("person_id",)}, positions(self.ends))
        assert Erasure.from_text(made.as_text()) == made
        self.erasures = Erasures(SECRET, (*self.erasures.all, made))
        self.is_repaired = False

    def rewrite(self) -> None:
        for place, value in self.archive.items():
            if value is not None and self.covers(place, value):
                self.archive[place] = None
        self.rewritten = self.erasures

    def repair(self) -> None:
        if self.rewritten is self.erasures:
            self.rows, self.is_repaired = repaired(self.rows, self.rebuilt()), True

    def rebuilt(self) -> Rows:
        places = [place for place in sorted(self.archive) if place[1] < self.reached[place[0]]]
        return merged({}, self._events(places, self.archive.__getitem__))

    def covers(self, place: Place, value: bytes) -> bool:
        columns = {"partition": pa.array([place[0]]), "offset": pa.array([place[1]]), "value": pa.array([value])}
        return bool(self.erasures.covered(HOLDING, TOPIC_ID, pa.RecordBatch.from_pydict(columns))[0])

    @staticmethod
    def _events(places: list[Place], value_at: Callable[[Place], bytes | None]) -> list[Placed]:
        values = [(place, value_at(place)) for place in places]
        return [Placed(place, json.loads(value)) for place, value in values if value is not None]


PARTITION, PERSON = st.integers(0, PARTITIONS - 1), st.sampled_from("abc")
PRODUCE = st.tuples(st.just("produce"), PARTITION, PERSON, st.sampled_from("xy"), st.sampled_from("123"))
READ = st.tuples(st.just("read"), st.fixed_dictionaries({p: st.integers(0, 4) for p in range(PARTITIONS)}))
OTHERS = [st.tuples(st.just(name)) for name in ("merge", "rewrite", "repair")]
STEPS = st.lists(PRODUCE | PRODUCE | READ | st.tuples(st.just("request"), PERSON) | st.one_of(OTHERS), max_size=40)


def require_law(steps: list[tuple[Any, ...]], world: World) -> None:
    """Whenever every erasure is repaired, the stream equals the rebuild; at the end, all erasures are."""
    everything = dict.fromkeys(range(PARTITIONS), 100)
    ending: list[tuple[Any, ...]] = [("rewrite",), ("repair",), ("read", everything), ("merge",)]
    for name, *arguments in [*steps, *ending, *ending[2:]]:
        getattr(world, name)(*arguments)
        if world.is_repaired:
            assert world.rows == world.rebuilt(), f"after {name}"
    assert world.reached == world.ends


@given(STEPS)
@hypothesis(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_the_stream_with_erasures_equals_the_rebuild_without_the_payloads(steps: list[tuple[Any, ...]]) -> None:
    require_law(steps, World())


class Unfiltered(World):
    """The stream reads covered records, which Kafka still has."""

    def from_log(self, place: Place) -> bytes | None:
        return self.log[place[0]][place[1]]


class Unjudged(World):
    """A batch is merged although it was read before the erasure."""

    def is_stale(self, batch: Batch) -> bool:
        return False


class Unrepaired(World):
    """The rows that have counted the person stay."""

    def repair(self) -> None:
        self.is_repaired = True


class Endless(World):
    """The archive also erases what comes after the end."""

    def covers(self, place: Place, value: bytes) -> bool:
        return super().covers((place[0], 0), value)


EVENT = ("produce", 0, "a", "x", "1")
ALL = ("read", dict.fromkeys(range(PARTITIONS), 9))
ERASED = [("request", "a"), ("rewrite",), ("repair",)]


@pytest.mark.parametrize(
    ("defect", "steps"),
    [
        (Unfiltered, [EVENT, *ERASED, ALL, ("merge",)]),
        (Unjudged, [EVENT, ALL, *ERASED, ("merge",)]),
        (Unrepaired, [EVENT, ALL, ("merge",), *ERASED]),
        (Endless, [EVENT, ("request", "a"), EVENT, *ERASED[1:], ALL, ("merge",)]),
    ],
)
def test_the_model_finds_a_planted_defect(defect: type[World], steps: list[tuple[Any, ...]]) -> None:
    require_law(steps, World())
    with pytest.raises(AssertionError):
        require_law(steps, defect())
