"""Services that stay down for a while: applications wait for them."""

import pytest

import runtime
from runtime import keeper
from tests.scenes.applications import Application, start
from tests.scenes.conftest import EACH_EVENT, World
from truelog.archive.archive_table import archived_positions
from truelog.log import topics

pytestmark = pytest.mark.usefixtures("each_event")


def failed_at(application: Application, words: str) -> None:
    application.wait(lambda: words in application.log.read_text(), 60, f"the failure {words}")


def test_services_that_are_down_while_applications_plan(world: World, archives: list[Application]) -> None:
    """The services come back one after the other, so each application fails at each service that it needs."""
    for each in archives:
        each.die()
    archive, stream = (
        start(world.settings, f"{name}.py", fault=f"{name}.planning:1:stop") for name in ("archive", "stream")
    )
    world.traffic.send(300)
    ends = topics.end_offsets(world.settings, ["page_view"])
    for application in (archive, stream):
        application.wait_fault()
    epochs = world.ask("SELECT application, epoch, incarnation FROM truelog.lease ORDER BY 1")
    for service in ("postgresql", "kafka", "s3"):
        keeper.stop(world.settings, service)
    for application in (archive, stream):
        application.resume()

    for service, failure, failing in (
        ("postgresql", "waits for its services after OperationalError", (archive, stream)),
        ("kafka", "waits for its services after ServiceDown", (archive, stream)),
        ("s3", "waits for its services after EndpointConnectionError", (archive,)),
    ):
        for application in failing:
            failed_at(application, failure)
        runtime.up(world.settings, [service], tethered=True)
    stream.wait(lambda: world.positions(EACH_EVENT).covers(ends), 90, "the view to be complete")
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 90, "the archive")
    assert world.ask("SELECT application, epoch, incarnation FROM truelog.lease ORDER BY 1") == epochs
    assert (stream.end(), archive.end()) == (0, 0)
    world.require_each_counted_once()
