"""Reconcile and repair while the stream goes on: a planted wrong row is found, mended and gone; no event is lost."""

import pytest

from tests.scenes.applications import Application, start
from tests.scenes.conftest import World
from tests.scenes.test_stream_crashes import catch_up, reconcile, require_each_counted_once

pytestmark = pytest.mark.usefixtures("one_view")


def plant(world: World) -> None:
    """One row altered, one lost, one that nobody sent."""
    world.ask(
        "UPDATE state.page_views_v1 SET views = views + 7 "
        "WHERE ctid = (SELECT min(ctid) FROM state.page_views_v1) RETURNING 1"
    )
    world.ask("DELETE FROM state.page_views_v1 WHERE ctid = (SELECT max(ctid) FROM state.page_views_v1) RETURNING 1")
    world.ask("INSERT INTO state.page_views_v1 (minute, views) VALUES ('2020-01-01', 1) RETURNING 1")


def test_planted_rows_are_repaired_while_events_arrive(
    world: World, archive: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.traffic.send(1_000)
    stream = start(world.settings, "stream.py")
    catch_up(world, stream)
    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "0.1")
    with world.traffic.arriving(100, 0.05):
        plant(world)
        found = reconcile("page_views", "--repair")["page_views"]
    catch_up(world, stream)
    assert stream.end() == 0

    assert found["repaired"] == 3
    assert found["verdict"] == "EQUAL"
    first, second = world.ask("SELECT missing, extra, different FROM truelog.reconciliation ORDER BY id DESC LIMIT 2")[
        ::-1
    ]
    missing, extra, different = first  # an event that came since may have brought the lost row's key again
    assert (missing + different, extra) == (2, 1)
    assert second == (0, 0, 0)
    kept = world.ask("SELECT after IS NULL, count(*) FROM truelog.repair GROUP BY 1 ORDER BY 1")
    assert kept == [(False, 2), (True, 1)]
    require_each_counted_once(world)


def test_more_than_a_share_is_left_to_a_person(
    world: World, archive: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "0")
    plant(world)

    found = reconcile("page_views", "--repair")["page_views"]
    assert (found["missing"], found["extra"], found["different"], found["repaired"]) == (1, 1, 1, 0)
    assert found["verdict"] == "DIFFERENT"

    monkeypatch.setenv("TRUELOG_REPAIR_SHARE", "1")
    assert reconcile("page_views", "--repair")["page_views"]["repaired"] == 3


def test_an_archive_that_is_behind_is_no_difference(
    world: World, archive: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.die()
    world.traffic.send(50)
    stream = start(world.settings, "stream.py")
    catch_up(world, stream)
    assert stream.end() == 0
    monkeypatch.setenv("TRUELOG_ARCHIVE_WAIT_SECONDS", "1")

    found = reconcile("page_views")["page_views"]

    assert (found["verdict"], found["equal"]) == ("UNKNOWN", False)
    assert "50 events behind" in found["reason"]
