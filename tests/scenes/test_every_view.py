"""Every view under the shop's traffic. The stream is killed between a batch's merges and continues on a cluster."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.conftest import World, known
from tests.scenes.exposure import listening_addresses
from truelog.ingest.generator import generate
from truelog.log import ticks
from truelog.log.kafka_producer import KafkaSender
from truelog.support.errors import ServiceDown
from truelog.support.process import is_alive
from truelog.support.wait import until
from truelog.views import catalogue

VIEWS = catalogue.load_all_views()
TOPICS = {topic for view in VIEWS.values() for topic in view.reads}
CLUSTER_SECRET = "5ec2e7" * 8


@pytest.fixture(scope="module")
def ticking(world: World) -> Iterator[None]:
    """Advance the clock, so that views with limited retention drop old rows."""
    service = start(world.settings, str(Path(ticks.__file__)))
    service.kept = True
    yield
    service.die()


def shop(world: World, seed: int) -> None:
    """Send current events, and events that arrive later than `request_rates` keeps rows."""
    now = datetime.now(UTC)
    with KafkaSender(world.settings, TOPICS) as sender:
        for begin in (now, now - timedelta(days=8)):
            for record in generate(seed=seed, begin=begin, rate=1_000, seconds=2, social=0.5):
                sender.send(record)


def catch_up(world: World, stream: Application) -> None:
    for name, view in VIEWS.items():
        world.catch_up(stream, name, view.reads)


def test_killed_between_merges_and_continued_by_executors(
    world: World, archive: Application, ticking: None, batch: Batch, spark_home: Path
) -> None:
    """Some views have merged the batch and others have not. The successor continues each view from its positions."""
    shop(world, seed=1)
    before = {view: world.positions(view) for view in VIEWS}
    stream = start(world.settings, "stream.py", fault="merge.committed:2:kill")
    stream.wait_kill()
    assert {world.positions(view) == before[view] for view in VIEWS} == {True, False}
    shop(world, seed=2)

    with known(world.settings, spark_secret=CLUSTER_SECRET, spark_master="local-cluster[2,1,1024]"):
        survivor = start(world.settings, "stream.py", SPARK_HOME=str(spark_home))
        catch_up(world, survivor)
    family = [each for each in psutil.Process(survivor.process.pid).children(recursive=True) if is_alive(each)]
    assert not [word for each in family for word in each.cmdline() if CLUSTER_SECRET in word]
    assert sum("CoarseGrainedExecutorBackend" in word for each in family for word in each.cmdline()) == 2
    assert {address for each in family for address, _ in listening_addresses(each)} == {"127.0.0.1"}
    assert survivor.end() == 0
    until(lambda: require_none(family), 30, "the end of its executors")

    for view in ("page_views", "page_audience"):
        world.require_total(view)
    batch.require_equal_from_raw(list(VIEWS))


def require_none(family: list[psutil.Process]) -> None:
    if left := [each for each in family if is_alive(each)]:
        raise ServiceDown(str(left))
