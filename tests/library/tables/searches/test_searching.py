"""A view of searches: searches that change between batches, late records, repairs, and merges that die."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.beds.archived import Archived, change, require_versions_of_all_records
from tests.dying import dying_at
from tests.library.click_searches import HITS, click, ends, hits, retire, set_search
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.views.group import INPUTS
from truelog.views.searches import SEARCHES


def first_clicks(ground: Archived) -> None:
    click(ground, "kafka is down", "kafka is up")


pytestmark = pytest.mark.ground(view=HITS, filled=first_clicks)


def test_searches_that_change_between_batches_judge_the_events_after_their_change(ground: Archived) -> None:
    """One search is added, changed and retired, beside another. The first texts came before all searches."""
    set_search(ground, "outage", "kafka down")
    click(ground, "Kafka: DOWN!", "kafka")
    assert hits(ground) == [("outage", 1, "0:2")]
    set_search(ground, "outage", "outage NOT planned")
    set_search(ground, "kafka", "kaf*")
    click(ground, "kafka down", "an outage", "a planned outage")
    second = [("kafka", 1, "0:4"), ("outage", 1, "0:2"), ("outage", 2, "0:5")]
    assert hits(ground) == second
    retire(ground, "outage")
    ground.stream()
    click(ground, "outage of kafka", partition=1)
    assert hits(ground) == [("kafka", 1, "0:4"), ("kafka", 1, "1:0"), *second[1:]]
    assert compare(ground.rebuilder).verdict == "EQUAL"
    ground.require_output()
    require_versions_of_all_records(ground)


@pytest.mark.nightly
def test_a_search_that_is_read_late_judges_the_events_from_its_beginning(ground: Archived) -> None:
    """A stream may read the events of a search before its record."""
    begins = ends(ground)
    click(ground, "kafka down")
    click(ground, "down", partition=1)
    assert hits(ground) == []
    set_search(ground, "outage", "down", begins)
    ground.stream()
    assert hits(ground) == [("outage", 1, "0:2"), ("outage", 1, "1:0")]
    click(ground, "down again")
    assert hits(ground)[1] == ("outage", 1, "0:3")
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.ground(view=replace(HITS, keep="1 hour"), filled=first_clicks)
def test_texts_and_hits_leave_by_the_clock_of_the_log(ground: Archived) -> None:
    set_search(ground, "outage", "down")
    click(ground, "kafka down")
    ground.appended += 1_800
    click(ground, "down again")
    ground.appended = 4 * 3600 + 60
    ground.tick(4 * 3600)
    ground.stream()
    assert hits(ground) == [("outage", 1, "0:2"), ("outage", 1, "0:3")]
    ground.tick(4 * 3600 + 60)
    ground.stream()
    assert hits(ground) == [("outage", 1, "0:3")]
    assert compare(ground.rebuilder).verdict == "EQUAL"
    ground.require_output()


@pytest.mark.nightly
def test_wrong_hits_texts_and_searches_are_repaired(ground: Archived) -> None:
    set_search(ground, "outage", "down")
    click(ground, "kafka down", "up")
    right = hits(ground)
    sides = {each.side: each.name for each in ground.compiled.sides}
    own = ground.compiled.own.name
    change(ground, own, "UPDATE {} SET snippet = 'x'")
    change(ground, sides[SEARCHES], "UPDATE {} SET verb = 'retired'")
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired > 0, hits(ground)) == ("EQUAL", True, right)
    change(ground, own, "DELETE FROM {}")
    change(ground, sides[INPUTS], """UPDATE {} SET event = '{{"url": "up"}}' WHERE "offset" = 2""")
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired > 0, hits(ground)) == ("EQUAL", True, right)
    ground.require_output()


def test_a_merge_with_a_changed_search_that_dies_changes_nothing(
    ground: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_search(ground, "outage", "down")
    click(ground, "kafka down")
    before = hits(ground)
    set_search(ground, "outage", "up")
    ground.click(0, [("up", "1", 3 * 3600)])
    with dying_at("merge.added", tmp_path, monkeypatch):
        ground.stream()
    assert hits(ground) == before
    ground.stream()
    assert hits(ground) == [*before, ("outage", 2, "0:3")]
    assert compare(ground.rebuilder).verdict == "EQUAL"
