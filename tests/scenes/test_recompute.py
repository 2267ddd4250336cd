"""History recomputed day by day from the archive, and rebuilds that stand on it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.laws.lab import Lab
from tests.scenes.applications import Application, start
from tests.scenes.conftest import World
from tests.scenes.test_stream_crashes import catch_up
from truelog import archive, catalogue, partials, ticks, topics
from truelog.advance import Advancer
from truelog.compiled import Compiled
from truelog.errors import ArchiveBehind
from truelog.event import load_events
from truelog.recompute import recompute
from truelog.reconcile import Request, reconcile
from truelog.settings import Settings
from truelog.tiling import tiling

DAY_SECONDS = 5


@pytest.fixture(scope="module")
def short(world: World) -> Settings:
    return world.settings.model_copy(update={"log_day_seconds": DAY_SECONDS})


@pytest.fixture(scope="module")
def days(world: World, short: Settings, _archives: list[Application]) -> list[datetime]:
    """Closed log days with traffic in each, more of it after the last, and a view that has followed all of it."""
    for other in _archives:  # whose log days are longer
        other.die()
    seen = len(archive.closed_days(short, ["page_view"]))
    archiving = start(
        world.settings,
        "archive.py",
        TRUELOG_ARCHIVE_TRIGGER_SECONDS="0.5",
        TRUELOG_LOG_DAY_SECONDS=str(DAY_SECONDS),
    )
    ticking = start(world.settings, str(Path(ticks.__file__)))
    with world.traffic.arriving(20, 0.2):
        archiving.wait(lambda: len(archive.closed_days(short, ["page_view"])) > seen + 2, 90, "log days to close")
    ticking.die()
    world.traffic.send(100)
    stream = start(world.settings, "stream.py")
    catch_up(world, stream)
    assert stream.end() == 0
    archiving.wait(lambda: _archived(world), 60, "the archive at the end of the log")
    archiving.die()
    return archive.closed_days(short, ["page_view"])[seen:]


def _archived(world: World) -> bool:
    ends = topics.end_offsets(world.settings, load_events())
    return archive.positions(world.settings, load_events()).covers(ends)


@pytest.fixture
def compiled(lab: Lab) -> Compiled:
    return lab.compiled("page_views", catalogue.load("page_views"))


@pytest.fixture
def advancer(short: Settings, lab: Lab) -> Advancer:
    return Advancer(short, lab.types)


def test_rebuilds_stand_on_recomputed_days(
    spark: SparkSession, advancer: Advancer, compiled: Compiled, days: list[datetime], world: World
) -> None:
    made = [recompute(spark, advancer, compiled, day) for day in days]
    assert len(made) > 2
    assert [each.tile.begin for each in made[1:]] == [each.tile.end for each in made[:-1]]
    assert all(each.rows > 0 for each in made)

    found = reconcile(spark, advancer, compiled)
    assert (found.verdict, found.missing, found.extra, found.different) == ("EQUAL", 0, 0, 0)
    assert found.rows > sum(each.rows for each in made) / len(made)
    stands = world.stands("page_views")
    tiled = tiling(partials.load(advancer.settings, compiled).tiles, replace(stands, ids=found.positions.ids))
    assert [each.day for each in tiled.tiles] == days


def test_a_spoilt_day_is_seen_and_mended_from_the_raw_bytes(
    spark: SparkSession, advancer: Advancer, compiled: Compiled, days: list[datetime]
) -> None:
    made = recompute(spark, advancer, compiled, days[0])
    rows = partials.load(advancer.settings, compiled).read(spark, [made.tile])
    assert rows is not None
    partials.replace(spark, advancer.settings, compiled, made.tile, rows.limit(0))

    spoilt = reconcile(spark, advancer, compiled)
    assert spoilt.verdict == "DIFFERENT"
    assert spoilt.extra + spoilt.different == made.rows
    assert reconcile(spark, advancer, compiled, Request(from_raw=True)).equal

    proved = reconcile(spark, advancer, compiled, Request(proving=True))
    assert proved.mended_days == (days[0].isoformat(),)
    assert proved.equal


def test_a_day_that_is_not_over_can_be_recomputed_by_hand(
    spark: SparkSession, advancer: Advancer, compiled: Compiled, days: list[datetime], short: Settings
) -> None:
    today = days[-1].timestamp() + DAY_SECONDS
    with pytest.raises(ArchiveBehind, match="still open"):
        recompute(spark, advancer, compiled, datetime.fromtimestamp(today, UTC))

    made = recompute(spark, advancer, compiled, datetime.fromtimestamp(today, UTC), unfinished=True)
    assert made.tile.end == archive.positions(short, ["page_view"])
    assert reconcile(spark, advancer, compiled).equal
