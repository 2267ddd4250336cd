"""What makes an application plan again, what does not, and in which state its query ends."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from psycopg.pq import TransactionStatus
from pyspark.errors import StreamingQueryException

from tests.builders.event_types import an_event_type
from tests.deadline import deadline, until
from truelog.schema.loading import trial
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.streaming import change_watch
from truelog.streaming.change_watch import BatchGate, ChangeWatch
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NAME = "causes"
NEVER = 3600.0  # seconds


@dataclass
class Query:
    """A query that runs until it is stopped, or until it fails at once."""

    failure: Exception | None = None
    isActive: bool = True  # noqa: N815 — Spark's name
    lastProgress: None = None  # noqa: N815

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 — Spark's name
        if self.failure is not None:
            raise self.failure
        return threading.Event().wait(0.02)

    def stop(self) -> None:
        self.isActive = False


@dataclass
class Watched:
    """A watch over one query, how often it has looked at the topics, and the sessions with which it has looked."""

    settings: Settings
    connection: Connection
    topics: list[str] = field(default_factory=list)  # the answers of the next looks at the topics
    version: str = ""
    topic_looks: int = 0
    looks: list[tuple[Connection, TransactionStatus]] = field(default_factory=list)
    gate: BatchGate = field(default_factory=BatchGate)
    stop: threading.Event = field(default_factory=threading.Event)
    query: Query = field(default_factory=Query)
    is_late: bool = False

    def __post_init__(self) -> None:
        self.watch = ChangeWatch(self.settings, NAME, self.changed_topics, self.changed_versions)

    def changed_topics(self) -> str:
        self.topic_looks += 1
        return self.topics.pop(0) if self.topics else ""

    def changed_versions(self, connection: Connection) -> str:
        self.looks.append((connection, connection.info.transaction_status))
        return self.version

    def follow(self) -> None:
        with self.in_time():
            self.watch.follow(cast(Any, self.query), self.gate, self.stop)

    def wait(self) -> None:
        with self.in_time():
            self.watch.wait(self.stop)

    @contextmanager
    def in_time(self) -> Iterator[None]:
        """Require that the block ends by itself, and that the watch keeps no session and no transaction open."""
        timer = threading.Timer(deadline(10), self.give_up)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
        assert not self.is_late
        assert {status for _, status in self.looks} <= {TransactionStatus.IDLE}
        assert all(session.closed for session, _ in self.looks)

    def give_up(self) -> None:
        self.is_late, self.query.failure = True, TimeoutError("nothing has ended the query")
        self.stop.set()

    def require_looks(self, more: int) -> None:
        """Wait until the watch has looked so many times again."""
        enough = len(self.looks) + more

        def looked() -> None:
            if len(self.looks) < enough:
                raise ServiceDown("the watch has not looked yet")

        until(looked, 10, "looks")

    @property
    def plans_again(self) -> bool:
        """Whether batches of the query that begin now do nothing."""
        with self.gate.batch() as may_run:
            return not may_run


def sessions(connection: Connection) -> set[object]:
    """The processes of the sessions. One that has just been closed may still be among them."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    return {pid for (pid,) in connection.execute(query).fetchall()}


@pytest.fixture
def views(tmp_path: Path) -> Path:
    (tmp_path / "one.py").touch()
    return tmp_path


@pytest.fixture
def settings(postgresql: Settings, views: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(change_watch, "_POLL_SECONDS", 0.02)
    return postgresql.model_copy(update={"views_folder": views, "topic_check_seconds": NEVER})


@pytest.fixture
def watched(settings: Settings, connection: Connection) -> Watched:
    return Watched(settings, connection)


@pytest.fixture
def followed(watched: Watched) -> Iterator[Watched]:
    """A watch that follows a query, and has found no change yet."""
    others = {*threading.enumerate()}
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(watched.follow)
        watched.require_looks(3)
        assert not following.done()
        yield watched
        following.result()
    assert not watched.query.isActive
    assert watched.plans_again != watched.stop.is_set()
    assert "changes" not in {each.name for each in {*threading.enumerate()} - others}


def test_a_stop_ends_the_query_without_a_plan(followed: Watched) -> None:
    assert followed.topic_looks == 0, "the topics are not due"
    followed.stop.set()


def test_batches_run_until_something_has_changed(followed: Watched) -> None:
    assert not followed.plans_again
    followed.version = "a newer version"
    until(lambda: require(followed.plans_again), 20, "the end of the batches")


def require(condition: bool) -> None:
    if not condition:
        raise ServiceDown("not yet")


def test_a_changed_view_is_a_cause(followed: Watched, views: Path) -> None:
    (views / "one.py").write_text("# changed")


def test_a_new_version_of_an_event_type_is_a_cause(followed: Watched, connection: Connection) -> None:
    an_event_type(connection, load_events()["page_view"], "an-id")


def test_a_declaration_that_gets_its_trial_late_is_a_cause(followed: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "has_caught_up", lambda: True)


def test_a_change_is_found_after_the_session_was_ended(followed: Watched, connection: Connection) -> None:
    session, _ = followed.looks[-1]
    connection.execute("SELECT pg_terminate_backend(%s)", (session.info.backend_pid,))
    followed.require_looks(1)
    followed.version = "a newer version"


def test_a_watch_that_does_not_look_has_no_session(settings: Settings, connection: Connection) -> None:
    before = sessions(connection)
    watched = Watched(settings, connection)
    until(lambda: require(sessions(connection) <= before), 5, "the end of the session")
    watched.stop.set()
    watched.wait()
    assert watched.looks == []


def test_a_wait_ends_with_a_change(watched: Watched) -> None:
    watched.version = "a newer version"
    watched.wait()
    assert len(watched.looks) == 1


def test_the_topics_are_looked_at_once_in_their_interval(settings: Settings, connection: Connection) -> None:
    watched = Watched(settings.model_copy(update={"topic_check_seconds": 0.001}), connection)
    watched.watch._settings = settings  # from the first look on, the interval is long
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watched.wait)
        watched.require_looks(4)
        watched.stop.set()
        waiting.result()
    assert watched.topic_looks == 1


FAILURE = StreamingQueryException("the query failed")


def test_a_failure_that_no_change_explains_is_raised(watched: Watched) -> None:
    watched.query.failure = FAILURE
    with pytest.raises(StreamingQueryException):
        watched.follow()
    assert watched.topic_looks == 3, "the brokers' metadata may be late"
    assert not watched.plans_again


def test_a_failure_that_a_change_explains_is_a_new_plan(watched: Watched) -> None:
    watched.query.failure = FAILURE
    watched.topics = ["", "a topic is bad"]
    watched.follow()
    assert (watched.topic_looks, watched.plans_again, watched.query.isActive) == (2, True, False)


class FailedBetween(Query):
    """A query that fails between two waits for its end."""

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 — Spark's name
        if not self.isActive:
            raise FAILURE
        self.isActive = False
        return False


def test_a_failure_between_two_waits_is_raised(watched: Watched) -> None:
    watched.query = FailedBetween()
    with pytest.raises(StreamingQueryException):
        watched.follow()


def test_a_look_that_outlasts_the_query_keeps_its_session(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of a hanging request may not be closed, nor used by another thread."""
    monkeypatch.setattr(change_watch, "_STOP_SECONDS", 0.05)
    looks, answered = list[Connection](), threading.Event()

    def hang(connection: Connection) -> str:
        looks.append(connection)
        answered.wait(deadline(20))
        return ""

    watched.watch._changed_versions = hang
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(watched.follow)
        try:
            until(lambda: require(bool(looks)), 10, "the look")
            watched.query.failure = FAILURE
            with pytest.raises(StreamingQueryException):
                following.result(deadline(10))
            [session] = looks
            assert not session.closed
        finally:
            answered.set()
    until(lambda: require(session.closed), 10, "the end of the look")


def test_a_closing_gate_waits_for_the_batch_in_progress() -> None:
    gate = BatchGate()
    with ThreadPoolExecutor(1) as pool, gate.batch() as may_run:
        closing = pool.submit(gate.close)
        assert may_run
        with pytest.raises(TimeoutError):
            closing.result(0.1)
    closing.result(deadline(20))
    with gate.batch() as may_run:
        assert not may_run
