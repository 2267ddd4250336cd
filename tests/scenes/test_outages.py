"""Services that stay down for a while: applications wait for them."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import runtime
from runtime import keeper
from tests.beds.world import EACH_EVENT, World
from tests.deadline import until
from tests.scenes.applications import Application, start
from tests.speed import record_speed
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

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
    began = time.monotonic()

    def has_lasted() -> None:
        assert archive.process.poll() is stream.process.poll() is None
        if time.monotonic() < began + OUTAGE_SECONDS:
            raise ServiceDown("the outage is not over yet")

    until(has_lasted, 2 * OUTAGE_SECONDS, "the outage")
    runtime.up(world.settings, SERVICES, tethered=True)
    require_complete(world, archive, stream, ends, "starts")
    assert (stream.end(), archive.end()) == (0, 0)
    world.require_each_counted_once()
