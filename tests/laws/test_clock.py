"""Law 6: the clock is a function of the positions alone; what upkeep drops of the ticks changes it nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.laws.naive_clock import Log, Tick, at
from tests.laws.naive_clock import clock as naive
from truelog import View
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.maintenance import tick_retention
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled

TOPICS = ("a", "b", "ticks")
ID = "ticks-id"

happenings = st.lists(st.sampled_from(["a", "b", "tick", "tick"]), min_size=12, max_size=40)
vectors = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=80)


@dataclass(frozen=True)
class Reader:
    """A view that reads some topics and the ticks, where it stands, and whether an application runs it."""

    reads: frozenset[str]
    stands: dict[str, int]
    run: bool

    def at(self, vector: dict[str, int]) -> Positions:
        offsets = {topic: {0: vector[topic]} for topic in (*self.reads, clock.TOPIC)}
        return Positions(offsets, {topic: ID if topic == clock.TOPIC else topic for topic in offsets})

    def later(self) -> Iterator[dict[str, int]]:
        """Further by one topic alone, and by all of them."""
        for step in (0, 1, 3, 99):
            yield {topic: offset + step for topic, offset in self.stands.items()}
            yield from (self.stands | {topic: self.stands[topic] + step} for topic in self.stands)


readers = st.lists(
    st.builds(Reader, st.frozensets(st.sampled_from(["a", "b"]), min_size=1), vectors, st.booleans()),
    min_size=1,
    max_size=2,
)


@contextmanager
def alone(connection: Connection) -> Iterator[None]:
    """Nobody else's views or ticks, for as long as it lasts."""
    with connection.transaction(force_rollback=True):
        for table in ("position", "standing", "tick", "view"):
            connection.execute(f"TRUNCATE truelog.{table} CASCADE".encode())
        yield


def keep(connection: Connection, readers: list[Reader], ticks: list[Tick]) -> None:
    remember(connection, ticks)
    with connection.cursor() as cursor:
        for number, reader in enumerate(readers):
            name = f"reader_{number}"
            cursor.execute("INSERT INTO truelog.view VALUES (%s, 1, '', '')", (name,))
            stands = reader.at(reader.stands)
            rows = [(name, topic, stands.ids[topic], stands.at(topic, 0)) for topic in stands.offsets]
            cursor.executemany("INSERT INTO truelog.position VALUES (%s, 1, %s, 0, %s, %s)", rows)
            if reader.run:
                follow(connection, name)


def follow(connection: Connection, view: str, version: int = 1) -> None:
    connection.execute("INSERT INTO truelog.standing VALUES (%s, 'stream', %s, 'UP_TO_DATE', '')", (view, version))


def remember(connection: Connection, ticks: list[Tick]) -> None:
    rows = [(ID, tick.offset, tick.time, tick.ends.as_json()) for tick in ticks]
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO truelog.tick VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", rows)


def kept(connection: Connection) -> list[int]:
    return [int(str(n)) for (n,) in connection.execute('SELECT "offset" FROM truelog.tick ORDER BY 1').fetchall()]


def stepping_back(ticks: list[Tick], back: dict[int, int]) -> list[Tick]:
    """As if the machine's clock had been set back before some of them."""
    return [Tick(t.offset, at((t.time - at(0)).seconds - back.get(t.offset, 0)), t.ends) for t in ticks]


@seeded
@given(happened=happenings, back=st.dictionaries(st.integers(0, 9), st.integers(0, 9)), given_readers=readers)
def _law(migrated: Settings, happened: list[str], back: dict[int, int], given_readers: list[Reader]) -> None:
    ticks = stepping_back(Log(happened).ticks, back)
    with connect(migrated, autocommit=True) as connection, alone(connection):
        keep(connection, given_readers, ticks)
        tick_retention.drop_old_ticks(connection)
        for reader in given_readers:
            for vector in reader.later():
                positions = reader.at(vector)
                with connection.transaction(force_rollback=True):
                    if not reader.run:  # it reads what it had not read, when it goes on
                        read = range(reader.stands[clock.TOPIC], vector[clock.TOPIC])
                        remember(connection, [tick for tick in ticks if tick.offset in read])
                    assert clock.at(connection, positions, reader.reads) == naive(ticks, positions, reader.reads)


def test_dropping_changes_no_clock(migrated: Settings) -> None:
    _law(migrated)


@pytest.mark.parametrize("reads", [("a",), ("a", "b")])
def test_the_ticks_themselves_tell_the_same(spark: SparkSession, reads: tuple[str, ...]) -> None:
    """Where there is no database: also after the machine's clock was set back, and before the first that counts."""
    ticks = stepping_back(Log(["a", "b", "tick", "tick"] * 6).ticks, {3: 9})
    frame = spark.createDataFrame(
        [(each.offset, each.time, each.ends.as_json()) for each in ticks],
        "offset bigint, occurred_at timestamp, ends string",
    )
    told = set()
    for a, b, seen in ((0, 0, 6), (6, 6, 0), (2, 1, 6), (3, 5, 6), (6, 6, 4), (99, 99, 99)):
        positions = Reader(frozenset(reads), {}, run=True).at({"a": a, "b": b, clock.TOPIC: seen})
        found = clock.at_from_ticks(frame.where(F.col("offset") < seen), positions, reads)
        assert found == naive(ticks, positions, reads)
        told.add(found)
    assert {None, ticks[5].time} < told


def test_what_is_old_goes_and_what_is_not_read_stays(connection: Connection) -> None:
    """Ticks 0 to 9, each a second; `a` grows by one before each."""
    ticks = Log(["a", "tick", "tick"] * 10).ticks
    with alone(connection):
        keep(connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, run=True)], ticks)
        assert tick_retention.drop_old_ticks(connection) == 4
        assert kept(connection) == [4, 5, 6, 7, 8, 9]  # tick 4 is the clock; 5 and 6 are read and do not count yet
    with alone(connection):
        keep(connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, run=False)], ticks)
        assert tick_retention.drop_old_ticks(connection) == 7
        assert kept(connection) == [4, 5, 6]


def test_nothing_goes_while_a_view_has_only_begun(connection: Connection) -> None:
    with alone(connection):
        keep(
            connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, run=True)], Log(["a", "tick", "tick"] * 10).ticks
        )
        follow(connection, "begun", 2)
        assert tick_retention.drop_old_ticks(connection) == 0
        timeless = View(reads=("a",), transform=lambda a: a, key=("k",), measures={}, version=2)
        assert tick_retention.drop_old_ticks(connection, [Compiled("begun", replace(timeless, version=1), {}, "")]) == 0
        assert (
            tick_retention.drop_old_ticks(connection, [Compiled("begun", replace(timeless, keep="1 day"), {}, "")]) == 0
        )
        assert tick_retention.drop_old_ticks(connection, [Compiled("begun", timeless, {}, "")]) == 4


def test_a_comparison_keeps_its_ticks(migrated: Settings, connection: Connection) -> None:
    """It asks for the clock at positions where the view stood when it began."""
    with alone(connection):
        keep(
            connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, run=True)], Log(["a", "tick", "tick"] * 10).ticks
        )
        with connect(migrated, autocommit=True) as comparing:
            comparing.execute("SELECT pg_advisory_lock(hashtextextended('reconcile reader_0_v1', 1))")
            connection.execute("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                tick_retention.drop_old_ticks(connection)
