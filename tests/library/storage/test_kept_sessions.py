"""The sessions that a process keeps: one for polls that do not overlap, and a new one after PostgreSQL has ended it."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from truelog.storage import kept_sessions
from truelog.storage.database import Connection, read_value
from truelog.storage.kept_sessions import kept
from truelog.support.settings import Settings


@pytest.fixture(autouse=True)
def _no_session_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    of_process: dict[int, kept_sessions._Kept] = {}
    monkeypatch.setattr(kept_sessions, "_of_process", of_process)
    yield
    for each in of_process.values():
        each.close()


def poll(settings: Settings) -> int:
    """The process of the session that a poll uses."""
    with kept(settings) as session:
        return session.info.backend_pid


def test_polls_share_a_session_which_is_idle_between_them(postgresql: Settings, connection: Connection) -> None:
    used = poll(postgresql)
    assert poll(postgresql) == used
    with kept(postgresql) as session, session.transaction():
        assert session.info.backend_pid == used
        session.execute("SELECT pg_advisory_xact_lock(1)")
    state = "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid = %s"
    assert read_value(connection, state, (used,)) == "idle"
    held = (
        "SELECT count(*) FROM pg_locks WHERE pid = %s "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert read_value(connection, held, (used,)) == 0


def test_a_poll_after_the_end_of_the_session_succeeds_at_once(postgresql: Settings, connection: Connection) -> None:
    """As after a restart of PostgreSQL."""
    used = poll(postgresql)
    assert read_value(connection, "SELECT pg_terminate_backend(%s, 10000)", (used,))
    with kept(postgresql) as session:
        assert read_value(session, "SELECT 1") == 1
        assert session.info.backend_pid != used


def test_a_poll_does_not_wait_for_a_session_that_hangs(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_sessions, "_PATIENCE", 100)
    used = poll(postgresql)
    os.kill(used, signal.SIGSTOP)
    try:
        assert poll(postgresql) != used
    finally:
        os.kill(used, signal.SIGCONT)


def test_a_poll_that_fails_ends_its_session(postgresql: Settings) -> None:
    used = poll(postgresql)
    with suppress(ZeroDivisionError), kept(postgresql) as session:
        raise ZeroDivisionError
    assert session.closed
    assert poll(postgresql) != used


def test_polls_that_overlap_have_sessions_of_their_own_of_which_few_are_kept(postgresql: Settings) -> None:
    with ExitStack() as polls:
        sessions = [polls.enter_context(kept(postgresql)) for _ in range(kept_sessions._MOST_IDLE + 2)]
        assert len({each.info.backend_pid for each in sessions}) == len(sessions)
    assert sum(not each.closed for each in sessions) == kept_sessions._MOST_IDLE


def test_a_session_that_was_idle_for_long_ends(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(postgresql) as one, kept(postgresql):
        pass
    monkeypatch.setattr(kept_sessions, "_LONGEST_IDLE", -1.0)
    with kept(postgresql) as other:
        assert other is one  # it was used last
    assert [each.session for kept_by in kept_sessions._of_process.values() for each in kept_by.idle] == [one]


def test_other_settings_and_other_processes_have_other_sessions(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = poll(postgresql)
    assert (
        poll(
            postgresql.model_copy(
                update={
                    "database_name": "postgres",
                    "database_user": "postgres",
                    "database_password": postgresql.postgres_password,
                }
            )
        )
        != used
    )
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)  # as in a process that was forked
    assert poll(postgresql) != used


def test_a_relation_may_get_other_columns_between_polls(postgresql: Settings, connection: Connection) -> None:
    """A prepared statement would fail, as in a cut-over."""
    connection.execute("CREATE VIEW views.kept AS SELECT 1 AS one")
    for _ in range(7):
        with kept(postgresql) as session:
            assert session.execute("SELECT * FROM views.kept").fetchall() == [(1,)]
    connection.execute("DROP VIEW views.kept")
    connection.execute("CREATE VIEW views.kept AS SELECT 'a' AS one, 2 AS two")
    with kept(postgresql) as session:
        assert session.execute("SELECT * FROM views.kept").fetchall() == [("a", 2)]
    connection.execute("DROP VIEW views.kept")
