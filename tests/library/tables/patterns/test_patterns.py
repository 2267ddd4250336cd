"""A view of patterns: rules that change between batches, late events, ticks, repairs, and merges that die."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.beds.archived import Archived, change, oversized, require_versions_of_all_records
from tests.dying import dying_at
from tests.library.click_rules import ALONE, MATCHES, PAIR, ends, retire, rows, set_rule
from truelog.patterns.versions import Version
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.tables.fold.compiled import Fold
from truelog.tables.patterns.judging import Judging
from truelog.views.group import INPUTS
from truelog.views.patterns import RULES


def first_clicks(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "5", 1)])
    ground.stream()


pytestmark = pytest.mark.ground(view=MATCHES, filled=first_clicks)


def click(ground: Archived, *clicks: tuple[str, int], page: str = "a") -> None:
    """Archive clicks, each with its `search_id` and its second, and stream what is new."""
    ground.appended = 3 * 3600 + max(second for _, second in clicks)
    ground.click(0, [(page, search, 3 * 3600 + second) for search, second in clicks])
    ground.stream()


def test_rules_that_change_between_batches_judge_the_events_after_their_change(ground: Archived) -> None:
    """The plans of the first batch know no rule. One rule is added, changed and retired, beside another rule."""
    set_rule(ground, "pair", **PAIR)
    click(ground, ("1", 10), ("5", 11))
    assert rows(ground) == [("pair", 1, "a", "found", "0:2 0:3")]
    set_rule(ground, "pair", **PAIR | {"pattern": "a"} | {"steps": {"a": PAIR["steps"]["a"]}})
    set_rule(ground, "other", **PAIR | {"within": "1 hour"})
    click(ground, ("1", 20), ("5", 21))
    other, *pairs = rows(ground)
    assert other == ("other", 1, "a", "found", "0:4 0:5")
    assert pairs == [("pair", 1, "a", "found", "0:2 0:3"), ("pair", 2, "a", "found", "0:4")]
    retire(ground, "pair")
    ground.stream()
    click(ground, ("1", 30), ("5", 31))
    assert rows(ground) == [other, ("other", 1, "a", "found", "0:6 0:7"), *pairs]
    assert compare(ground.rebuilder).verdict == "EQUAL"
    ground.require_output()
    require_versions_of_all_records(ground)


@pytest.mark.nightly
def test_a_rule_that_is_read_late_judges_the_events_from_its_beginning(ground: Archived) -> None:
    """A stream may read the events of a rule before its record."""
    begins = ends(ground)
    click(ground, ("1", 10), ("5", 11))
    click(ground, ("1", 12), page="b")
    assert rows(ground) == []
    set_rule(ground, "pair", begins, **PAIR)
    click(ground, ("5", 13), page="b")
    assert rows(ground) == [("pair", 1, "a", "found", "0:2 0:3"), ("pair", 1, "b", "found", "0:4 0:5")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_late_event_retracts_a_match_and_makes_another(ground: Archived) -> None:
    set_rule(ground, "pair", **PAIR | {"late_after": "5 seconds"})
    click(ground, ("1", 10), ("5", 12))
    assert rows(ground) == [("pair", 1, "a", "found", "0:2 0:3")]
    ground.appended += 60
    ground.click(0, [("a", "9", 3 * 3600 + 11)])
    ground.stream()
    assert rows(ground) == [("pair", 1, "a", "late", "0:2 0:4"), ("pair", 1, "a", "retracted", "0:2 0:3")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_an_absence_is_shown_by_ticks_alone_and_strictly_after_its_deadline(ground: Archived) -> None:
    set_rule(ground, "alone", **ALONE | {"late_after": "5 seconds"})
    click(ground, ("1", 100))
    assert rows(ground) == [("alone", 1, "a", "found", "0:2")]
    click(ground, ("1", 5_000), page="b")  # an event in the far future moves no clock
    assert rows(ground, "_shown") == []
    ground.tick(3 * 3600 + 115)
    ground.stream()
    assert rows(ground, "_shown") == []
    ground.tick(3 * 3600 + 116)
    ground.stream()
    assert rows(ground, "_shown") == [("alone", 1, "a", "found", "0:2")]


def test_wrong_matches_inputs_and_rules_are_repaired(ground: Archived) -> None:
    set_rule(ground, "pair", **PAIR)
    click(ground, ("1", 10), ("5", 11))
    right = rows(ground)
    sides = {each.side: each.name for each in ground.compiled.sides}
    own = ground.compiled.own.name
    change(ground, own, "UPDATE {} SET outcome = 'late'")
    change(ground, sides[RULES], "UPDATE {} SET verb = 'retired'")
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired > 0, rows(ground)) == ("EQUAL", True, right)
    change(ground, own, "DELETE FROM {}")
    change(ground, sides[INPUTS], """UPDATE {} SET event = '{{"search_id": "7"}}' WHERE "offset" = 2""")
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired > 0, rows(ground)) == ("EQUAL", True, right)
    ground.require_output()


@pytest.mark.nightly
def test_a_merge_with_a_changed_rule_that_dies_changes_nothing(
    ground: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rule(ground, "pair", **PAIR)
    click(ground, ("1", 10), ("5", 11))
    before = rows(ground)
    set_rule(ground, "pair", **ALONE)
    ground.click(0, [("a", "1", 3 * 3600 + 20)])
    with dying_at("merge.added", tmp_path, monkeypatch):
        ground.stream()
    assert rows(ground) == before
    ground.stream()
    assert rows(ground) == [*before, ("pair", 2, "a", "found", "0:4")]
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.nightly
def test_an_entity_with_too_many_events_keeps_the_matches_that_it_had(ground: Archived) -> None:
    """A match that is shown stays. A match that waits when the view stops searching might be undone, so it vanishes."""
    set_rule(ground, "pair", **PAIR)
    set_rule(ground, "alone", **ALONE | {"late_after": "5 seconds"})
    click(ground, ("1", 10), ("5", 11))
    ground.tick(3 * 3600 + 30)
    click(ground, *(("5", 40 + number) for number in range(45)))
    click(ground, ("1", 90))
    shown = [("alone", 1, "a", "found", "0:2"), ("pair", 1, "a", "found", "0:2 0:3")]
    assert rows(ground, "_shown") == shown
    assert rows(ground) == [shown[0], ("alone", 1, "a", "found", "0:49"), shown[1]]
    assert oversized(ground) == []

    click(ground, ("5", 91), ("2", 92), ("1", 10), ("9", 10))
    assert rows(ground) == rows(ground, "_shown") == shown
    assert oversized(ground) == [["a", "page", "9999-01-01T00:00:00+00:00"]]
    assert compare(ground.rebuilder).verdict == "EQUAL"
    ground.require_output()


@pytest.mark.nightly
def test_an_entity_whose_matches_fail_is_left_out_in_every_layer(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rule and no event is known that makes a search fail, so a planted defect makes two rows of one match."""
    real = Judging.with_versions

    def with_defect(self: Judging, known: Sequence[Version[Any]]) -> Fold:
        right = real(self, known)

        def run(inputs: DataFrame) -> DataFrame:
            found = right.run(inputs)
            return found.unionAll(found.where("entity_id = 'b'"))

        return replace(right, run=run)

    set_rule(ground, "pair", **PAIR)
    monkeypatch.setattr(Judging, "with_versions", with_defect)
    click(ground, ("1", 10), ("5", 11))
    click(ground, ("1", 12), ("5", 13), page="b")
    assert rows(ground) == [("pair", 1, "a", "found", "0:2 0:3")]
    query = """SELECT "group" ->> 0 FROM truelog.failed_group WHERE view = %s"""
    assert ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall() == [("b",)]
    assert compare(ground.rebuilder).verdict == "EQUAL"
