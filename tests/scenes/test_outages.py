"""Services that stay down for a while: applications wait for them, also while all of Airflow is dead."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import psutil
import psycopg
import pytest

import runtime
from runtime import airflow, keeper
from tests.beds.world import EACH_EVENT, World
from tests.deadline import until
from tests.scenes.airflow_client import whole_platform
from tests.scenes.applications import Application, start
from tests.scenes.conftest import SCENE_VIEWS
from tests.speed import record_speed
from truelog.apps import launcher
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, Settings

OUTAGE_SECONDS = 125.0
SERVICES = ("postgresql", "s3", "kafka")  # in the order in which the stream needs them to plan

pytestmark = [pytest.mark.own_servers, pytest.mark.usefixtures("each_event")]


@pytest.fixture(autouse=True)
def _services_run_again(world: World) -> Iterator[None]:
    yield
    runtime.up(world.settings, SERVICES, tethered=True)


def stop_services(settings: Settings) -> None:
    with ThreadPoolExecutor(len(SERVICES)) as pool:
        list(pool.map(partial(keeper.stop, settings), SERVICES))


def require_complete(world: World, archive: Application, stream: Application, ends: Positions, during: str) -> None:
    """Both are complete soon. Call this function when the services are back."""
    returned = time.monotonic()
    stream.wait(lambda: world.positions(EACH_EVENT).covers(ends), 90, "the view to be complete")
    record_speed(f"the view is fresh after an outage during {during}", time.monotonic() - returned)
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 90, "the archive")
    record_speed(f"the archive is fresh after an outage during {during}", time.monotonic() - returned)


def failed_at(application: Application, words: str) -> None:
    application.wait(lambda: words in application.log.read_text(), 60, f"the failure {words}")


def outlasted_by(*processes: int) -> None:
    """Wait for more than two minutes. The processes go on meanwhile."""
    began = time.monotonic()

    def has_lasted() -> None:
        assert all(psutil.Process(each).status() != psutil.STATUS_ZOMBIE for each in processes)
        if time.monotonic() < began + OUTAGE_SECONDS:
            raise ServiceDown("the outage is not over yet")

    until(has_lasted, 2 * OUTAGE_SECONDS, "the outage")


@pytest.mark.nightly
def test_services_that_are_down_while_applications_plan(world: World, no_archive: None) -> None:
    """The services come back one after the other, so each application fails at each service that it needs."""
    archive = start(world.settings, "archive.py", fault="archive.planning:1:stop")
    stream = start(world.settings, "stream.py", fault="stream.planning:1:stop")
    world.traffic.send(300)
    ends = topics.end_offsets(world.settings, ["page_view"])
    for application in (archive, stream):
        application.wait_fault()
    epochs = world.ask("SELECT application, epoch, incarnation FROM truelog.lease ORDER BY 1")
    stop_services(world.settings)
    for application in (archive, stream):
        application.resume()

    for service, failures in (
        ("postgresql", [(archive, "EndpointConnectionError"), (stream, "OperationalError")]),
        ("s3", [(stream, "EndpointConnectionError")]),
        ("kafka", [(archive, "ServiceDown"), (stream, "ServiceDown")]),
    ):
        for application, failure in failures:
            failed_at(application, f"waits for its services after {failure}")
        runtime.up(world.settings, [service], tethered=True)
    require_complete(world, archive, stream, ends, "planning")
    assert world.ask("SELECT application, epoch, incarnation FROM truelog.lease ORDER BY 1") == epochs
    assert (stream.end(), archive.end()) == (0, 0)
    world.require_each_counted_once()


@pytest.mark.nightly
def test_services_that_are_down_while_applications_start(world: World, no_archive: None) -> None:
    """The applications wait for their leases for more than two minutes, without Airflow, and then go on."""
    world.traffic.send(300)
    ends = topics.end_offsets(world.settings, ["page_view"])
    stop_services(world.settings)
    archive, stream = start(world.settings, "archive.py"), start(world.settings, "stream.py")
    for application in (archive, stream):
        failed_at(application, "a start waits for its services after OperationalError")
    outlasted_by(archive.process.pid, stream.process.pid)
    runtime.up(world.settings, SERVICES, tethered=True)
    require_complete(world, archive, stream, ends, "starts")
    assert (stream.end(), archive.end()) == (0, 0)
    world.require_each_counted_once()


@pytest.mark.nightly
def test_an_outage_while_airflow_starts_an_application(world: World, no_archive: None) -> None:
    """All of Airflow dies during the outage, and its supervisor starts it again before its database is back."""
    with whole_platform(world.settings, views_folder=SCENE_VIEWS) as settings:
        world.traffic.send(300)
        _until(lambda: world.caught_up(EACH_EVENT), "the first start of the stream")
        [(epoch, pid)] = world.ask("SELECT epoch, pid FROM truelog.lease WHERE application = 'stream'")
        world.traffic.send(300)
        killed = time.time()
        psutil.Process(pid).kill()
        starting = _started_since(killed)
        stop_services(settings)
        for each in airflow.SERVICES:
            psutil.Process(keeper.state(settings, each.name)["pid"]).kill()
        log = launcher.log_path(settings, "stream")
        _until(lambda: "a start waits for its services" in log.read_text(), "the failure of the start")
        outlasted_by(starting)

        _return_services(settings)
        returned = time.monotonic()
        world.traffic.send(300)
        ends, ticks = (topics.end_offsets(settings, [name]) for name in ("page_view", "ticks"))

        def is_fresh() -> bool:
            return world.positions(EACH_EVENT).covers(ends) and topics.end_offsets(settings, ["ticks"]) != ticks

        for what, holds in (
            ("every view is fresh", is_fresh),
            ("the archive is fresh", lambda: archived_positions(settings, ["page_view"]).covers(ends)),
            ("every service is ready", lambda: all(each.state == "READY" for each in runtime.status(settings))),
        ):
            _until(holds, what)
            record_speed(f"{what} after an outage during a start by Airflow", time.monotonic() - returned)
        assert world.ask("SELECT epoch FROM truelog.lease WHERE application = 'stream'") == [(epoch + 1,)]
        world.require_each_counted_once()


def _started_since(moment: float) -> int:
    """A process of the stream that Airflow has started since then."""
    script, found = str(PROJECT / "spark_apps" / "stream.py"), list[int]()

    def started() -> bool:
        running = psutil.process_iter(["pid", "cmdline", "create_time"])
        new = [each.info for each in running if each.info["create_time"] > moment]
        found[:] = [each["pid"] for each in new if script in (each["cmdline"] or ())]
        return bool(found)

    _until(started, "the second start of the stream")
    return found[0]


def _return_services(settings: Settings) -> None:
    """Start them as a supervisor does, and wait until they answer. Nothing is configured or registered again."""
    for name in SERVICES:
        keeper.start(settings, name)
    for name in SERVICES:
        until(lambda: runtime.services.SERVICES[name].ready(settings), 90, name)  # noqa: B023  called at once


def _until(holds: Callable[[], bool], what: str) -> None:
    def met() -> None:
        with suppress(psycopg.OperationalError):
            if holds():
                return
        raise ServiceDown("not yet")

    until(met, 120, what)
