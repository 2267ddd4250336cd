"""The lease: what blocks a new holder, and how a holder that lost its lock takes the lease again."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest

from tests.builders.applications import took_lease
from tests.deadline import deadline, until
from tests.library.databases import neighbour
from truelog.control import lease
from truelog.control.lease import Lease
from truelog.storage.database import Connection, connect, session_name
from truelog.support.errors import Fenced, LeaseInterrupted, ServiceDown
from truelog.support.settings import Settings

NAME = "leased"


@pytest.fixture
def held(postgresql: Settings, connection: Connection) -> Iterator[Lease]:
    taken = lease.take_lease(postgresql, NAME)
    yield taken
    with connect(postgresql, autocommit=True) as other:  # a test may have closed its own connection
        release(taken, other)


def release(taken: Lease, connection: Connection) -> None:
    """Release a lease and wait until PostgreSQL has freed its lock, a moment after the session has ended."""
    taken.release()

    def freed() -> None:
        if is_locked(connection):
            raise ServiceDown("the lock is still held")

    until(freed, 10, "the release")


@pytest.fixture
def merging(postgresql: Settings, held: Lease) -> Iterator[Connection]:
    """A session in the middle of a merge, which has checked the lease."""
    with connect(postgresql) as opened:
        lease.require_lease(opened, held.holder)
        yield opened
        opened.rollback()


def test_a_merge_in_progress_does_not_delay_the_end_of_a_batch(
    connection: Connection, merging: Connection, held: Lease
) -> None:
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = '{deadline(2):.0f}s'")
        lease.record_batch(connection, held.holder)
        lease.record_code(connection, held.holder, "code")


def test_a_merge_in_progress_blocks_a_new_holder_even_after_the_end_of_a_batch(
    connection: Connection, merging: Connection, held: Lease
) -> None:
    lease.record_batch(connection, held.holder)
    succeed = "UPDATE truelog.lease SET epoch = epoch + 1 WHERE application = %s"
    connection.execute("SET lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        connection.execute(succeed, (NAME,))
    merging.rollback()
    connection.execute(succeed, (NAME,))


def session_pids(connection: Connection) -> set[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    rows = connection.execute(query, (session_name(NAME),))
    return {int(str(pid)) for (pid,) in rows.fetchall()}


def is_locked(connection: Connection) -> bool:
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)"
    )
    return connection.execute(query, (NAME,)).fetchone() == (1,)


def test_a_second_process_of_an_application_is_refused(
    postgresql: Settings, connection: Connection, held: Lease
) -> None:
    with pytest.raises(Fenced):
        lease.take_lease(postgresql, NAME)
    release(held, connection)
    second = lease.take_lease(postgresql, NAME)
    assert second.holder.epoch == held.holder.epoch + 1
    release(second, connection)


def test_a_holder_that_loses_its_lock_takes_the_lease_again_and_ends_no_other_session(
    postgresql: Settings, connection: Connection, held: Lease
) -> None:
    """Its other sessions go on; the epoch stays, so a merge that began before the outage need not be repeated."""
    with connect(postgresql, autocommit=True, writer=NAME) as other:
        before = held.holder.epoch, other.info.backend_pid, held.session
        connection.execute("SELECT pg_terminate_backend(%s)", (held.session[0],))
        assert held.outlast(0, threading.Event())
        assert held.session != before[2]
        assert is_locked(connection)
        assert session_pids(connection) == {other.info.backend_pid}
        lease.require_lease(other, held.holder)
        assert (held.holder.epoch, held.interruptions) == (before[0], 1)


def test_a_holder_has_the_lease_from_the_moment_at_which_it_takes_it_again(connection: Connection, held: Lease) -> None:
    """It could do nothing before, so it must not be taken for hung."""
    took_lease(connection, NAME, ago=timedelta(hours=1))
    connection.execute("SELECT pg_terminate_backend(%s)", (held.session[0],))
    assert held.outlast(0, threading.Event())
    age = connection.execute("SELECT now() - taken_at FROM truelog.lease WHERE application = %s", (NAME,)).fetchone()
    assert age is not None
    assert age[0] < timedelta(minutes=30)


def test_the_old_session_is_ended_if_it_still_has_the_lock(connection: Connection, held: Lease) -> None:
    """As if the process had lost its connection, but PostgreSQL had not noticed."""
    old, session = held.connection, held.session

    def retaken() -> None:
        if not held.retake():
            raise ServiceDown("the old session has not ended yet")

    until(retaken, 10, "the lease")
    assert held.session != session
    with pytest.raises(psycopg.OperationalError):
        old.execute("SELECT 1")


def test_nothing_is_merged_without_the_lock(connection: Connection, held: Lease) -> None:
    held.holder.held.clear()
    with pytest.raises(LeaseInterrupted):
        lease.require_lease(connection, held.holder)


@pytest.mark.parametrize("change", ["epoch = epoch + 1", "incarnation = gen_random_uuid()"])
def test_a_holder_with_a_successor_never_takes_the_lease_again(
    connection: Connection, held: Lease, change: LiteralString
) -> None:
    """A restored database issues the same epoch to the successor. The successor may have ended already."""
    connection.execute("UPDATE truelog.lease SET " + change + " WHERE application = %s", (NAME,))
    with pytest.raises(Fenced):
        held.retake()
    with pytest.raises(Fenced):
        lease.require_lease(connection, held.holder)


def test_a_successor_that_holds_the_lock_is_left_alone(
    postgresql: Settings, connection: Connection, held: Lease
) -> None:
    release(held, connection)
    successor = lease.take_lease(postgresql, NAME)
    with pytest.raises(Fenced):
        held.retake()
    assert is_locked(connection)
    assert successor.connection.execute("SELECT 1").fetchone() == (1,)
    release(successor, connection)


def test_a_new_holder_ends_its_predecessors_sessions_but_none_in_another_database(
    postgresql: Settings, connection: Connection
) -> None:
    """Another Truelog on this server has applications of the same names."""
    with (
        neighbour(postgresql) as other,
        connect(postgresql, autocommit=True, writer=NAME) as own,
        connect(other, autocommit=True, writer=NAME) as foreign,
    ):
        release(lease.take_lease(postgresql, NAME), connection)
        with pytest.raises(psycopg.errors.AdminShutdown):
            own.execute("SELECT 1")
        assert foreign.execute("SELECT 1").fetchone() == (1,)
