"""One view never keeps an application from planning the others: real views, topics and leases, without a query."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import sql

from tests.beds.lab import with_own
from tests.deadline import deadline
from tests.library.kernel.zombie import counter
from truelog.control import application as control_application
from truelog.control import lease, view_status, view_versions
from truelog.control.view_loader import LoadedViews
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.streaming import archive_app, batch_files, stream, view_deployment
from truelog.streaming.stream import Stream
from truelog.support.errors import Fenced
from truelog.support.settings import Settings
from truelog.tables import deploy, stage
from truelog.tables.compiled_view import CompiledView

READ, OTHER = "page_view", "search"


@pytest.fixture
def application(platform: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Stream]]:
    """A stream application of the given views."""
    made: list[Stream] = []

    def start(*views: CompiledView) -> Stream:
        monkeypatch.setattr(view_deployment, "load_views", lambda *_: LoadedViews([*views], {}, "code"))
        made.append(Stream(platform, "planned", threading.Event()))
        return made[-1]

    monkeypatch.setattr(stream, "session", lambda *_: None)
    monkeypatch.setattr(batch_files, "small_session", lambda *_: None)
    monkeypatch.setattr(view_deployment, "_SHOW_SECONDS", 0.0)
    yield start
    for each in made:
        each.connection.close()
        each.lease.release()


def view(topic: str = READ) -> CompiledView:
    made = counter(f"v{uuid.uuid4().hex[:8]}")
    return with_own(made, view=replace(made.view, reads=(topic,)))


def merge_until(settings: Settings, connection: Connection, compiled: CompiledView, offset: int) -> None:
    [topic] = compiled.view.reads
    ids = topics.topic_ids(settings, [topic])
    begin, end = (Positions({topic: {0: at}}, ids) for at in (0, offset))
    merge.apply(connection, compiled, Merge(begin, end, stage.NO_ROWS))


def send(settings: Settings, records: int) -> None:
    producer = Producer(settings.kafka())
    for _ in range(records):
        producer.produce(READ, b"{}", partition=0)
    assert producer.flush(deadline(10)) == 0


def planned(application: Stream) -> set[str]:
    """The views that the application runs after a plan, which must not take long."""
    application._plan()
    return {each.compiled.name for each in application.workers}


def test_an_application_takes_the_digest_of_its_files_before_it_waits_for_its_lease(
    platform: Settings, application: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may change meanwhile, and it has imported them already."""
    digest = mock.Mock(return_value="digest")
    monkeypatch.setattr(control_application, "library_digest", digest)
    other = lease.take_lease(platform, "planned")
    try:
        with pytest.raises(Fenced):
            application()
    finally:
        other.release()
    digest.assert_called_once_with()


def test_a_log_that_is_shorter_than_a_position_suspends_its_views_alone(
    platform: Settings, connection: Connection, application: Callable[..., Stream]
) -> None:
    """Spark cannot begin past the end of the log, so a query from this position would end the application."""
    short, beside, elsewhere = view(), view(), view(OTHER)
    deploy.deploy_table(connection, short)
    end = topics.end_offsets(platform, [READ]).at(READ, 0)
    merge_until(platform, connection, short, end + 5)
    running = application(short, beside, elsewhere)
    assert planned(running) == {beside.name, elsewhere.name}
    [status] = [each for each in view_status.view_statuses(connection) if each.view == short.name]
    assert status.reason.startswith(f"{READ} 0: the log ends at {end}, before the view's position {end + 5}.")
    assert topics.end_offsets(platform, running.topics).covers(running.begin)

    send(platform, 4)
    assert running._changed() == ""
    send(platform, 1)
    assert running._changed() == f"the log has reached {short.own.name}"
    assert planned(running) == {short.name, beside.name, elsewhere.name}
    assert running._changed() == ""


def test_a_process_of_a_former_library_creates_no_version_before_a_release(
    platform: Settings, connection: Connection, application: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would compile the new file with modules as they were, and no later process would have this fingerprint."""
    made, new = view(), view()
    running = application(made)
    assert planned(running) == {made.name}
    library = control_application.library_digest()
    monkeypatch.setattr(control_application, "library_digest", lambda: f"{library} has changed")
    monkeypatch.setattr(view_deployment, "load_views", lambda *_: LoadedViews([made, new], {}, "code"))
    assert planned(running) == {made.name}
    [status] = [each for each in view_status.view_statuses(connection) if each.view == new.name]
    assert status.reason.startswith("the library has changed")
    assert not view_versions.is_made(connection, new.name, new.view.version)
    assert running.deployment.versions_changed(connection) == ""

    control_application.set_code(connection, "planned", "code", control_application.source_digest(platform))
    assert running.deployment.versions_changed(connection) == "a release has found that the library makes the same code"
    assert planned(running) == {made.name, new.name}
    assert running.deployment.versions_changed(connection) == ""


def test_a_query_begins_no_later_than_the_log_ends(
    platform: Settings, connection: Connection, application: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may lose its end after the views were examined."""
    short = view()
    deploy.deploy_table(connection, short)
    merge_until(platform, connection, short, topics.end_offsets(platform, [READ]).at(READ, 0) + 5)
    monkeypatch.setattr(view_deployment.ViewDeployment, "_cut_short", lambda *_: "")
    running = application(short)
    assert planned(running) == {short.name}
    assert topics.end_offsets(platform, running.topics).covers(running.begin)


def test_a_first_deployment_is_planned_once(
    connection: Connection, application: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the version from then on. The application does not plan all views again for it."""
    first = view()
    monkeypatch.setattr(control_application, "views_of", lambda *_: [first.name])
    running = application(first)
    assert planned(running) == {first.name}
    assert running.deployment.versions_changed(connection) == ""


def test_a_long_query_delays_only_what_readers_see(
    platform: Settings, connection: Connection, application: Callable[..., Stream]
) -> None:
    first, other = view(), view(OTHER)
    deploy.deploy_table(connection, first)
    second = with_own(first, view=replace(first.view, version=2))
    running = application(second, other)
    with ThreadPoolExecutor(1) as pool, connect(platform) as reader:
        reader.execute("SET idle_in_transaction_session_timeout = 0")
        reader.execute(sql.SQL("SELECT FROM {}").format(sql.Identifier("views", first.name)))
        try:
            plan = pool.submit(planned, running)
            assert plan.result(deadline(30)) == {first.name, other.name}
            assert shown(connection) >= {(first.name, 1), (other.name, 1)}
            merge_until(platform, connection, second, 0)
            running._record_batch()
            assert (first.name, 1) in shown(connection), "the query still runs"
        finally:
            reader.rollback()
    running._record_batch()
    assert shown(connection) >= {(first.name, 2), (other.name, 1)}


def test_an_application_that_starts_in_an_outage_waits(
    connection: Connection, application: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is down for its first attempt, and again between the lease and the next connection."""
    down = iter([True, False, True])

    def connect_after_outages(*given: Any, **options: Any) -> Connection:
        if next(down, False):
            raise psycopg.OperationalError("the database is starting")
        return connect(*given, **options)

    for module in (lease, stream):
        monkeypatch.setattr(module, "connect", connect_after_outages)
    running = application()
    assert planned(running) == set()
    assert next(down, None) is None, "both connections were refused once"


def test_an_archive_that_starts_in_an_outage_waits(platform: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    down, stop = iter([True]), threading.Event()

    def archive(*_: object) -> None:
        stop.set()

    def take_after_outage(settings: Settings, name: str) -> lease.Lease:
        if next(down, False):
            raise psycopg.OperationalError("the database is starting")
        return lease.take_lease(settings, name)

    monkeypatch.setattr(archive_app, "lease", SimpleNamespace(take_lease=take_after_outage))
    monkeypatch.setattr(archive_app, "session", lambda *_: None)
    monkeypatch.setattr(archive_app, "_archive_as_declared", archive)
    archive_app.run_archive(platform, stop)
    assert stop.is_set()


def shown(connection: Connection) -> set[tuple[object, ...]]:
    """The version of each view that readers see."""
    return set(connection.execute("SELECT view, version FROM truelog.deployed").fetchall())
