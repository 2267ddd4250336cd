"""How ticks are stored, what the stored clock is at a position, and which rows it expires; without Spark."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus
from pyspark.sql import Row
from pyspark.sql.types import LongType, TimestampType

from tests.builders.log import a_tick, age_wrong_clocks
from truelog import Sum, View
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import TopicRecreated
from truelog.tables.table import Table

ID = "ticks of this test"
NOON = datetime(2026, 11, 22, tzinfo=UTC)
TIME = int(NOON.timestamp() * 1_000_000)


@dataclass
class SlowTicks:
    """Ticks, which record the transaction's status when Spark would read a tick."""

    connection: Connection
    number: int = 1
    found: list[TransactionStatus] = field(default_factory=list)

    def selectExpr(self, *_: str) -> "SlowTicks":  # noqa: N802 - the name in PySpark
        return self

    def toLocalIterator(self) -> Iterator[Row]:  # noqa: N802 - the name in PySpark
        for offset in range(self.number):
            self.found.append(self.connection.info.transaction_status)
            yield Row(offset=offset, time=TIME, broker_time=TIME, ends="{}")


@pytest.fixture
def ticks(connection: Connection) -> Iterator[SlowTicks]:
    yield SlowTicks(connection)
    connection.execute("DELETE FROM truelog.tick WHERE topic_id = %s", [ID])


def stored(connection: Connection) -> int:
    found = connection.execute("SELECT FROM truelog.tick WHERE topic_id = %s", [ID]).fetchall()
    return len(found)


def test_no_transaction_waits_for_spark(connection: Connection, ticks: SlowTicks) -> None:
    """PostgreSQL ends a session whose transaction is idle for too long."""
    ticks.number = 5_001
    clock.store_ticks(connection, ID, ticks)  # type: ignore[arg-type]
    assert ticks.found == [TransactionStatus.IDLE] * 5_001
    assert stored(connection) == 5_001


def test_many_ticks_are_stored_in_portions(
    connection: Connection, ticks: SlowTicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ticks of a week are more than memory should hold. What was stored stays if a later portion fails."""
    monkeypatch.setattr(clock, "_AT_ONCE", 2)
    ticks.number, seen = 5, []

    def require_unchanged() -> None:
        seen.append(len(ticks.found))
        if len(seen) == 3:
            raise TopicRecreated("ticks was created again")

    with pytest.raises(TopicRecreated):
        clock.store_ticks(connection, ID, ticks, require_unchanged)  # type: ignore[arg-type]
    assert (seen, stored(connection)) == ([2, 4, 5], 4)


def test_ticks_of_a_changed_topic_are_not_stored(connection: Connection, ticks: SlowTicks) -> None:
    def refuse() -> None:
        raise TopicRecreated("ticks was created again")

    with pytest.raises(TopicRecreated):
        clock.store_ticks(connection, ID, ticks, refuse)  # type: ignore[arg-type]
    assert stored(connection) == 0


def second(number: int) -> datetime:
    return NOON + timedelta(seconds=number)


def table_of(keep: str | None) -> Table:
    view = View(reads=("a",), transform=lambda a: a, key=("time",), measures={"n": Sum()}, keep=keep)
    return Table("clocked", view, {"time": TimestampType(), "n": LongType()}, "")


def at_offset(ticks: int, records: int) -> Positions:
    return Positions({"a": {0: records}, clock.TOPIC: {0: ticks}}, {"a": "a", clock.TOPIC: ID})


def test_a_record_that_is_no_tick_is_not_stored_and_a_tick_is_stored_once(
    connection: Connection, ticks: SlowTicks
) -> None:
    rows = [(1, TIME, TIME, "{}"), (2, TIME, TIME, "no ends"), (3, TIME, TIME, '{"a": {"0": 7}}')]
    for _ in range(2):
        clock.store_tick_rows(connection, ID, rows, lambda: None)
    query = 'SELECT "offset", time, ends FROM truelog.tick WHERE topic_id = %s ORDER BY 1'
    assert connection.execute(query, [ID]).fetchall() == [(1, NOON, {}), (3, NOON, {"a": {"0": 7}})]


def test_the_clock_is_the_latest_time_up_to_the_last_tick_that_counts(connection: Connection, ticks: SlowTicks) -> None:
    for offset, (time, reached) in enumerate([(0, 0), (9, 1), (3, 2), (20, 5), (4, 3)]):
        a_tick(connection, ID, offset, second(time), Positions({"a": {0: reached}, "other": {0: 99}}))
    for seen, records, expected in ((0, 9, None), (1, 0, 0), (3, 0, 0), (3, 2, 9), (5, 2, 9), (4, 5, 20), (5, 3, 20)):
        found = clock.at(connection, at_offset(seen, records), ("a",))
        assert found == (None if expected is None else second(expected)), (seen, records)
    assert clock.at(connection, Positions({"a": {0: 9}}, {"a": "a"}), ("a",)) is None
    assert clock.at(connection, at_offset(5, 9), ("a", "other")) is None
    assert clock.cutoff(connection, table_of("1 hour"), at_offset(3, 2)) == second(9) - timedelta(hours=1)
    assert clock.cutoff(connection, table_of("1 hour"), at_offset(0, 2)) is None
    assert clock.cutoff(connection, table_of(None), at_offset(3, 2)) is None


def test_without_a_time_or_without_keep_nothing_expires() -> None:
    assert clock.cutoff_at(table_of("1 hour"), NOON) == NOON - timedelta(hours=1)
    assert clock.cutoff_at(table_of("1 hour"), None) is clock.cutoff_at(table_of(None), NOON) is None


def test_only_rows_before_the_limit_are_dropped(connection: Connection) -> None:
    target = sql.Identifier("pg_temp", table_of("1 hour").name)
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("CREATE TABLE {} (time timestamptz)").format(target))
        query = sql.SQL("INSERT INTO {} VALUES (%s), (%s), (%s), (NULL)").format(target)
        connection.execute(query, (second(-1), NOON, second(1)))

        def left() -> list[object]:
            rows = connection.execute(sql.SQL("SELECT time FROM {} ORDER BY time").format(target)).fetchall()
            return [time for (time,) in rows]

        clock.drop_before(connection, table_of("1 hour"), "pg_temp", None)
        clock.drop_before(connection, table_of(None), "pg_temp", NOON)
        assert left() == [second(-1), NOON, second(1), None]
        clock.drop_before(connection, table_of("1 hour"), "pg_temp", NOON)
        assert left() == [NOON, second(1), None]


def test_the_latest_wrong_clock_of_a_topic_is_remembered(connection: Connection) -> None:
    """A time that is found again is kept as long as a new one."""
    with connection.transaction(force_rollback=True):
        assert clock.last_wrong(connection, ID) is None
        clock.record_wrong(connection, "another topic", second(99))
        for number in (5, 7, 6):
            clock.record_wrong(connection, ID, second(number))
        age_wrong_clocks(connection, ID)
        clock.record_wrong(connection, ID, second(7))
        assert clock.last_wrong(connection, ID) == second(7)
        query = "SELECT time FROM truelog.wrong_clock WHERE topic_id = %s AND found_at = now()"
        assert connection.execute(query, (ID,)).fetchall() == [(second(7),)]
