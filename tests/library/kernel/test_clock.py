"""Ticks are stored in a short transaction, and only while their topic is unchanged."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from psycopg.pq import TransactionStatus
from pyspark.sql import Row

from truelog.kernel import clock
from truelog.storage.database import Connection
from truelog.support.errors import TopicRecreated

ID = "ticks of this test"
TIME = int(datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1_000_000)


@dataclass
class SlowTicks:
    """One tick, which records the transaction's status when Spark would read the tick."""

    connection: Connection
    found: list[TransactionStatus] = field(default_factory=list)

    def selectExpr(self, *_: str) -> "SlowTicks":  # noqa: N802 - the name in PySpark
        return self

    def collect(self) -> list[Row]:
        self.found.append(self.connection.info.transaction_status)
        return [Row(offset=1, time=TIME, broker_time=TIME, ends="{}")]


@pytest.fixture
def ticks(connection: Connection) -> Iterator[SlowTicks]:
    yield SlowTicks(connection)
    connection.execute("DELETE FROM truelog.tick WHERE topic_id = %s", [ID])


def stored(connection: Connection) -> int:
    found = connection.execute("SELECT FROM truelog.tick WHERE topic_id = %s", [ID]).fetchall()
    return len(found)


def test_no_transaction_waits_for_spark(connection: Connection, ticks: SlowTicks) -> None:
    """PostgreSQL ends a session whose transaction is idle for too long."""
    clock.store_ticks(connection, ID, ticks)  # type: ignore[arg-type]
    assert ticks.found == [TransactionStatus.IDLE]
    assert stored(connection) == 1


def test_ticks_of_a_changed_topic_are_not_stored(connection: Connection, ticks: SlowTicks) -> None:
    def refuse() -> None:
        raise TopicRecreated("ticks was created again")

    with pytest.raises(TopicRecreated):
        clock.store_ticks(connection, ID, ticks, refuse)  # type: ignore[arg-type]
    assert stored(connection) == 0
