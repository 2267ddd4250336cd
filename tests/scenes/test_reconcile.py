"""Reconcile and repair beside a running stream: planted wrong rows are found and repaired, and no event is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds.world import World
from tests.command import answer, shared_spark
from tests.deadline import deadline
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.speed import record_speed
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.reconcile.reconcile_result import ReconcileRequest

pytestmark = pytest.mark.usefixtures("one_view", "patient_search")


@pytest.fixture
def patient_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for causes that runs out of time names none, so a busy machine gets more time."""
    monkeypatch.setenv("TRUELOG_CAUSE_SECONDS", str(deadline(60)))


@pytest.fixture(scope="module")
def stream(world: World, only_page_views: Path) -> Iterator[Application]:
    """One stream for all scenes of this file, which put little load on it."""
    running = start(world.settings, "stream.py", TRUELOG_VIEWS_FOLDER=str(only_page_views))
    running.kept = True
    yield running
    running.die()


def plant(world: World) -> None:
    """Change one row, delete another, and add a row that has no events."""
    world.ask(
        "UPDATE state.page_views_v2 SET views = views + 7 "
        "WHERE ctid = (SELECT min(ctid) FROM state.page_views_v2) RETURNING 1"
    )
    world.ask("DELETE FROM state.page_views_v2 WHERE ctid = (SELECT max(ctid) FROM state.page_views_v2) RETURNING 1")
    world.ask("INSERT INTO state.page_views_v2 (minute, views) VALUES ('2020-01-01', 1) RETURNING 1")


@pytest.mark.nightly
def test_planted_rows_are_repaired_while_events_arrive(
    world: World, archive: Application, stream: Application, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.traffic.send(1_000)
    world.catch_up(stream)
    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "0.1")
    with world.traffic.arriving(20, 0.05) as arrived:
        plant(world)
        before = world.positions("page_views")
        found = batch.reconcile("page_views", ReconcileRequest(repair=True))
        merged = sum(each.end - each.start for each in before.ranges_to(world.positions("page_views")))
    record_speed("traffic during a repair", arrived.per_second, "events/s")
    assert merged > 0, "the stream merged nothing between the planted rows and their repair"
    world.catch_up(stream)

    assert (found.repaired, found.verdict) == (3, "EQUAL")
    first, second = world.ask("SELECT missing, extra, different FROM truelog.reconciliation ORDER BY id DESC LIMIT 2")[
        ::-1
    ]
    missing, extra, different = first  # a newer event may have recreated the deleted row's key
    assert (missing + different, extra) == (2, 1)
    assert second == (0, 0, 0)
    kept = world.ask(
        "SELECT after IS NULL, count(*) FROM truelog.repair "
        "WHERE repaired_at = (SELECT max(repaired_at) FROM truelog.repair) GROUP BY 1 ORDER BY 1"
    )
    assert kept == [(False, 2), (True, 1)]
    world.require_total("page_views")
    batch.require_equal_from_raw(["page_views"])

    with shared_spark():
        proved = answer("verify", "latest:page_views")
    assert (proved["answer"], proved["rows"]) == ("EQUAL", world.ask("SELECT count(*) FROM views.page_views")[0][0])
    [newest, *_] = answer("certificates", "page_views")["certificates"]
    assert (newest["id"], newest["row_count"]) == (proved["certificate"], proved["rows"])


@pytest.mark.nightly
def test_more_differences_than_the_allowed_share_are_not_repaired(
    world: World, archive: Application, stream: Application, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line finds the rows from raw bytes."""
    world.traffic.send(1_000)
    world.catch_up(stream)
    plant(world)
    with shared_spark():
        [found] = answer("reconcile", "page_views", "--from-raw", exit_code=1)["views"]
    assert (found["missing"], found["extra"], found["different"], found["repaired"]) == (1, 1, 1, 0)
    assert (found["verdict"], found["equal"]) == ("DIFFERENT", False)
    assert world.ask("SELECT from_raw FROM truelog.reconciliation WHERE id = %s", found["id"]) == [(True,)]

    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "0")
    left = batch.reconcile("page_views", ReconcileRequest(repair=True))
    assert (left.verdict, left.repaired) == ("DIFFERENT", 0)
    assert [row["cause"] for row in left.sample if row["rebuilt"] is None] == ["wrong value by hand"]
    assert sum(each["rows"] for each in left.causes) == 3

    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "1")
    assert batch.reconcile("page_views", ReconcileRequest(repair=True)).repaired == 3


@pytest.mark.nightly
def test_an_archive_that_is_behind_gives_no_verdict(
    world: World, archive: Application, stream: Application, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = topics.end_offsets(world.settings, ["page_view"])
    archive.wait(lambda: archived_positions(world.settings, ["page_view"]).covers(ends), 60, "the end of the log")
    monkeypatch.setenv("TRUELOG_ARCHIVE_WAIT_SECONDS", "1")
    with archive.suspended():
        world.traffic.send(50)
        world.catch_up(stream)
        found = batch.reconcile("page_views")

    assert (found.verdict, found.equal) == ("UNKNOWN", False)
    assert "50 events behind" in found.reason
