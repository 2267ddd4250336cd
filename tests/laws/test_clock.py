"""Law 6: the clock is a function of the positions alone, and dropping old ticks never changes the clock."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, TimestampType

from tests.builders.log import a_tick, forget_ticks
from tests.builders.views import a_view, merged_to
from tests.laws.naive_clock import Log, Tick, at
from tests.laws.naive_clock import clock as naive
from truelog import Sum, View
from truelog.control import view_status
from truelog.control.application import STREAM
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.maintenance import tick_retention
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

TOPICS = ("a", "b", "ticks")
ID = "ticks-id"

steps = st.lists(st.sampled_from(["a", "b", "tick", "tick"]), min_size=12, max_size=40)
vectors = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=80)


@dataclass(frozen=True)
class Reader:
    """A view that reads some topics and the ticks: its positions, and whether an application is running the view."""

    reads: frozenset[str]
    offsets: dict[str, int]
    running: bool

    def at(self, vector: dict[str, int]) -> Positions:
        offsets = {topic: {0: vector[topic]} for topic in (*self.reads, clock.TOPIC)}
        return Positions(offsets, {topic: ID if topic == clock.TOPIC else topic for topic in offsets})

    def later(self) -> Iterator[dict[str, int]]:
        """Yield later positions: further on in one topic, and further on in all topics."""
        for step in (0, 1, 3, 99):
            yield {topic: offset + step for topic, offset in self.offsets.items()}
            yield from (self.offsets | {topic: self.offsets[topic] + step} for topic in self.offsets)


readers = st.lists(
    st.builds(Reader, st.frozensets(st.sampled_from(["a", "b"]), min_size=1), vectors, st.booleans()),
    min_size=1,
    max_size=2,
)


@contextmanager
def isolated(connection: Connection) -> Iterator[None]:
    """Hide the views and ticks of other tests."""
    with connection.transaction(force_rollback=True):
        for table in ("position", "standing", "tick", "view"):
            connection.execute(f"TRUNCATE truelog.{table} CASCADE".encode())
        yield


def store(connection: Connection, readers: list[Reader], ticks: list[Tick]) -> None:
    store_ticks(connection, ticks)
    for number, reader in enumerate(readers):
        name = f"reader_{number}"
        a_view(connection, name)
        merged_to(connection, name, reader.at(reader.offsets))
        if reader.running:
            view_status.record_state(connection, STREAM, name, 1)


def store_ticks(connection: Connection, ticks: list[Tick]) -> None:
    for tick in ticks:
        a_tick(connection, ID, tick.offset, tick.time, tick.ends)


def stored_ticks(connection: Connection) -> list[int]:
    query = 'SELECT "offset" FROM truelog.tick WHERE topic_id = %s ORDER BY 1'
    return [int(str(n)) for (n,) in connection.execute(query, (ID,)).fetchall()]


def stepping_back(ticks: list[Tick], back: dict[int, int]) -> list[Tick]:
    """The ticks that would exist if the machine's clock had been set back before some of them."""
    return [Tick(t.offset, at((t.time - at(0)).seconds - back.get(t.offset, 0)), t.ends) for t in ticks]


@seeded
@given(log_steps=steps, back=st.dictionaries(st.integers(0, 9), st.integers(0, 9)), given_readers=readers)
def _law(postgresql: Settings, log_steps: list[str], back: dict[int, int], given_readers: list[Reader]) -> None:
    ticks = stepping_back(Log(log_steps).ticks, back)
    with connect(postgresql, autocommit=True) as connection, isolated(connection):
        store(connection, given_readers, ticks)
        tick_retention.drop_old_ticks(connection)
        for reader in given_readers:
            for vector in reader.later():
                positions = reader.at(vector)
                with connection.transaction(force_rollback=True):
                    if not reader.running:  # the view reads the rest when it runs again
                        read = range(reader.offsets[clock.TOPIC], vector[clock.TOPIC])
                        store_ticks(connection, [tick for tick in ticks if tick.offset in read])
                    assert clock.at(connection, positions, reader.reads) == naive(ticks, positions, reader.reads)


def test_dropping_old_ticks_changes_no_clock(postgresql: Settings) -> None:
    _law(postgresql)


def as_frame(spark: SparkSession, rows: list[tuple[int, datetime, datetime, str]]) -> DataFrame:
    """Decoded records of the `ticks` topic: offset, time, broker time and end offsets."""
    return spark.createDataFrame(rows, "offset bigint, occurred_at timestamp, broker_time timestamp, ends string")


def reader_of(frame: DataFrame) -> clock.ReadTicks:
    """Reads ticks from a frame the way that they are read from the archive."""

    def read(begin: int, end: int, since: datetime | None) -> DataFrame:
        found = frame.where((F.col("offset") >= begin) & (F.col("offset") < end))
        return found if since is None else found.where(F.col("broker_time") > F.lit(since))

    return read


@pytest.mark.parametrize("latest", [1, 2, 2_000])
@pytest.mark.parametrize("reads", [("a",), ("a", "b")])
def test_the_clock_from_ticks_alone_is_the_same(
    spark: SparkSession, reads: tuple[str, ...], latest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No database is needed. The cases include a clock that was set back and positions before any tick counts.

    The search begins with 1, 2 or all of the ticks.
    """
    monkeypatch.setattr(clock, "_LATEST", latest)
    monkeypatch.setattr(clock, "_FURTHER", 2)
    ticks = stepping_back(Log(["a", "b", "tick", "tick"] * 6).ticks, {3: 9})
    frame = as_frame(spark, [(each.offset, each.time, each.time, each.ends.as_json()) for each in ticks])
    times = set()
    for a, b, seen in ((0, 0, 6), (6, 6, 0), (2, 1, 6), (3, 5, 6), (6, 6, 4), (99, 99, 99)):
        positions = Reader(frozenset(reads), {}, running=True).at({"a": a, "b": b, clock.TOPIC: seen})
        found = clock.at_from_ticks(reader_of(frame), positions, reads)
        assert found == naive(ticks, positions, reads)
        times.add(found)
    assert {None, ticks[5].time} < times


HOSTILE_ENDS = [
    "",
    "x",
    "null",
    "5",
    '"text"',
    "[]",
    "[" * 50_000,
    '{"a":' * 20_000,
    "{} {}",
    "{'a':{}}",
    '{"a":null}',
    '{"a":5}',
    '{"a":[1]}',
    '{"a":{"0":{}}}',
    '{"a":{"0":null}}',
    '{"a":{"0":"1"}}',
    '{"a":{"0":true}}',
    '{"a":{"0":-1}}',
    '{"a":{"0":1.0}}',
    '{"a":{"0":1e3}}',
    '{"a":{"0":NaN}}',
    '{"a":{"0":9223372036854775808}}',
    '{"a":{"0":' + "9" * 5_000 + "}}",
    '{"a":{"x":1}}',
    '{"a":{"00":1}}',
    '{"a":{"-1":1}}',
    '{"a":{"99999999999":1}}',
    '{"a":{"0":1,"0":2}}',
    '{"a":{"0":1},"a":{"0":2}}',
    '{"":{"0":1}}',
    '{"a\\u0000":{"0":1}}',
    '{"\\ud800":{"0":1}}',
    '{"a b":{"0":1}}',
]


def test_a_record_that_is_no_tick_changes_no_clock(spark: SparkSession, connection: Connection) -> None:
    """Stored ticks and ticks alone agree on the naive clock. Unknown topics do not matter; hostile records are ignored.

    All hostile ends come with the latest time of all, so the clock would move if one of them counted.
    """
    ticks = Log(["a", "tick", "tick"] * 4).ticks
    late = at(1_000)
    ahead = [(at(301), at(0)), (datetime(9999, 12, 31, tzinfo=UTC), at(0)), (datetime(1, 1, 1, tzinfo=UTC), at(0))]
    rows = [(10 * n, late, late, ends) for n, ends in enumerate(HOSTILE_ENDS)]
    rows += [(1_000 + n, time, broker, "{}") for n, (time, broker) in enumerate(ahead)]
    valid = [Tick(10 * each.offset + 5, each.time, each.ends) for each in ticks]
    valid.append(Tick(2_000, at(500), Positions({"unknown": {0: 2**63 - 1}, "a": {0: 4}})))
    frame = as_frame(spark, rows + [(each.offset, each.time, each.time, each.ends.as_json()) for each in valid])
    with isolated(connection):
        clock.store_ticks(connection, ID, frame)
        assert stored_ticks(connection) == [each.offset for each in valid]
        for a, seen, expected in ((0, 0, None), (2, 26, ticks[1].time), (4, 1_999, ticks[3].time), (4, 2_001, at(500))):
            positions = Reader(frozenset("a"), {}, running=True).at({"a": a, clock.TOPIC: seen})
            assert clock.at(connection, positions, "a") == expected == naive(valid, positions, "a")
            assert clock.at_from_ticks(reader_of(frame), positions, "a") == expected


@pytest.mark.parametrize(("reached", "most_read"), [(39_990, 2_001), (30_000, 36_000)])
def test_a_rebuild_reads_the_last_ticks_and_collects_few(
    spark: SparkSession, connection: Connection, reached: int, most_read: int
) -> None:
    """The clock of a rebuild from 40,000 ticks: the driver gets and stores only the two ticks that decide it.

    The latest time comes from an early tick, because the clock was set back afterwards. The executors read this tick
    and the last ticks, until one counts.
    """
    ends = F.format_string('{"a":{"0":%d}}', F.col("id"))
    seconds = F.col("id") + F.when(F.col("id") == 100, 90_000).otherwise(0)
    times = F.timestamp_seconds(seconds + int(at(0).timestamp()))
    many = spark.range(40_000, numPartitions=4).select(
        F.col("id").alias("offset"), times.alias("occurred_at"), times.alias("broker_time"), ends.alias("ends")
    )
    positions = Reader(frozenset("a"), {}, running=True).at({"a": reached, clock.TOPIC: 40_000})
    read = spark.sparkContext.accumulator(0)

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read.add(batch.num_rows)
            yield batch

    def read_counted(begin: int, end: int, since: datetime | None) -> DataFrame:
        return reader_of(many)(begin, end, since).mapInArrow(counted, many.schema)

    with isolated(connection), collected_rows(spark) as rows:
        assert clock.at_from_ticks(read_counted, positions, "a") == at(90_100)
    assert sum(rows) <= 4
    assert read.value <= 2 * most_read  # each search reads its ticks twice


NO_TICK = Tick(3, at(50), Positions({"": {0: 1}}))  # the name of a topic is not empty


def test_ticks_are_found_by_their_offset_and_their_time(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for the last tick begins with two records. It passes over a record with wrong ends."""
    monkeypatch.setattr(clock, "_LATEST", 2)
    ticks = [
        Tick(0, at(10), Positions()),
        Tick(1, at(30), Positions({"a": {0: 9}})),
        NO_TICK,
        Tick(4, at(40), Positions()),
    ]
    read = reader_of(as_frame(spark, [(each.offset, each.time, each.time, each.ends.as_json()) for each in ticks]))
    for offset, expected in ((0, None), (1, ticks[0]), (4, ticks[1]), (5, ticks[3])):
        found = clock.last_before(read, offset)
        assert (found and Tick(found.offset, found.time, found.ends)) == expected
    for end, time, first in ((5, 0, 0), (5, 10, 1), (5, 30, 4), (4, 30, None), (5, 40, None), (0, 0, None)):
        assert clock.first_later(read, end, at(time)) == first, (end, time)
    assert clock.first_later(read, 5, datetime(1, 1, 1, tzinfo=UTC)) == 0


def test_stored_ticks_are_replaced_by_those_of_the_log(
    spark: SparkSession, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tick 0 is older than what is replaced, and it decides the clock. Ticks from the positions on stay as they are."""
    monkeypatch.setattr(clock, "_LATEST", 2)
    right = [Tick(n, at(90 if n == 0 else n), Positions({"a": {0: n}})) for n in range(7)]
    read = reader_of(as_frame(spark, [(each.offset, each.time, each.time, each.ends.as_json()) for each in right]))
    positions = Reader(frozenset("a"), {}, running=True).at({"a": 9, clock.TOPIC: 5})
    with isolated(connection):
        store_ticks(connection, [Tick(n, at(500 + n), Positions()) for n in (3, 4, 5)])
        a_tick(connection, "of another topic", 1, at(1), Positions())
        clock.replace_ticks(connection, ID, read, positions, "a")
        query = 'SELECT "offset", time, ends FROM truelog.tick WHERE topic_id = %s ORDER BY 1'
        kept = [(each.offset, each.time, json.loads(each.ends.as_json())) for each in (right[0], right[3], right[4])]
        assert connection.execute(query, [ID]).fetchall() == [*kept, (5, at(505), {})]
        assert clock.at(connection, positions, "a") == clock.at_from_ticks(read, positions, "a") == at(90)
        assert connection.execute("SELECT FROM truelog.tick WHERE topic_id = 'of another topic'").rowcount == 1

        forget_ticks(connection, ID)
        clock.replace_ticks(connection, ID, read, positions, "a")
        assert stored_ticks(connection) == [0, 3, 4]
        second_search = Reader(frozenset("a"), {}, running=True).at({"a": 9, clock.TOPIC: 3})  # of tick 0 alone
        assert clock.at_from_ticks(read, second_search, "a") == at(90)
        store_ticks(connection, [Tick(1, at(700), Positions())])
        clock.replace_ticks(connection, ID, read, positions, "a")
        assert stored_ticks(connection) == [0, 1, 2, 3, 4]

        monkeypatch.setattr(clock, "_LATEST", 2_000)
        forget_ticks(connection, ID)
        clock.replace_ticks(connection, ID, read, positions, "a")
        assert stored_ticks(connection) == [0, 1, 2, 3, 4]


def test_rows_since_a_time_are_those_at_it_and_after_it(spark: SparkSession) -> None:
    """A row without a time never expires, in PostgreSQL neither."""
    rows = spark.createDataFrame([(at(n),) for n in (1, 2, 3)] + [(None,)], "time timestamp")
    view = View(reads=("a",), transform=lambda a: a, key=("time",), measures={"n": Sum()}, keep="1 hour")
    kept, unkept = (
        Table("kept", each, {"time": TimestampType(), "n": LongType()}, "") for each in (view, replace(view, keep=None))
    )
    left = clock.rows_since(kept, rows, at(2)).select(F.second("time")).collect()
    assert {row[0] for row in left} == {2, 3, None}
    assert clock.rows_since(kept, rows, None) is clock.rows_since(unkept, rows, at(2)) is rows


@contextmanager
def collected_rows(spark: SparkSession) -> Iterator[list[int]]:
    """The number of rows of each result that the driver collects meanwhile."""
    counts: list[int] = []
    kind = type(spark.range(1))
    collect = kind.collect

    def counting(frame: DataFrame) -> list[Row]:
        found: list[Row] = collect(frame)
        counts.append(len(found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "collect", counting)
        yield counts
    assert counts


def test_old_ticks_are_dropped_and_unread_ticks_stay(connection: Connection) -> None:
    """Ticks 0 to 9 are three seconds apart, and `a` gets one record before each tick."""
    ticks = Log(["a", "tick", "tick"] * 10).ticks
    with isolated(connection):
        store(connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, running=True)], ticks)
        assert tick_retention.drop_old_ticks(connection) == 4
        assert stored_ticks(connection) == [
            4,
            5,
            6,
            7,
            8,
            9,
        ]  # tick 4 sets the clock; the view has read ticks 5 and 6, but they do not count yet
    with isolated(connection):
        store(connection, [Reader(frozenset("a"), {"a": 5, "ticks": 7}, running=False)], ticks)
        assert tick_retention.drop_old_ticks(connection) == 7
        assert stored_ticks(connection) == [4, 5, 6]


def test_no_tick_is_dropped_while_a_view_has_no_positions(connection: Connection) -> None:
    with isolated(connection):
        store(
            connection,
            [Reader(frozenset("a"), {"a": 5, "ticks": 7}, running=True)],
            Log(["a", "tick", "tick"] * 10).ticks,
        )
        view_status.record_state(connection, STREAM, "fresh", 2)
        assert tick_retention.drop_old_ticks(connection) == 0
        without_keep = View(reads=("a",), transform=lambda a: a, key=("k",), measures={}, version=2)
        assert tick_retention.drop_old_ticks(connection, [fresh(replace(without_keep, version=1))]) == 0
        assert tick_retention.drop_old_ticks(connection, [fresh(replace(without_keep, keep="1 day"))]) == 0
        assert tick_retention.drop_old_ticks(connection, [fresh(without_keep)]) == 4


def fresh(view: View) -> CompiledView:
    return CompiledView((Table("fresh", view, {}, ""),))


def test_no_tick_is_dropped_during_a_comparison(postgresql: Settings, connection: Connection) -> None:
    """A comparison needs the clock at the positions that the view had when the comparison began."""
    with isolated(connection):
        store(
            connection,
            [Reader(frozenset("a"), {"a": 5, "ticks": 7}, running=True)],
            Log(["a", "tick", "tick"] * 10).ticks,
        )
        with connect(postgresql, autocommit=True) as comparing:
            comparing.execute("SELECT pg_advisory_lock(hashtextextended('reconcile reader_0_v1', 1))")
            connection.execute("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                tick_retention.drop_old_ticks(connection)
