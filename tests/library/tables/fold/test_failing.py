"""Groups on which a fold fails: they have no rows in any layer, and all other groups go on."""

from dataclasses import replace

import pytest
from psycopg import sql

from tests.beds.archived import Archived, new_archive
from tests.beds.lab import Lab
from tests.library.tables.fold.spent import HUGE, IN_STEPS, SPENT, THREE, TWICE
from truelog.history.explain import explain
from truelog.reconcile import certificate_store, certificate_verifier
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.support.errors import BadInput, TooManyExcluded
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.fold import failing
from truelog.tables.staging.failed_group import FailedGroup


def three_urls(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("b", "2", 1), ("c", "3", 2)])
    ground.stream()


pytestmark = pytest.mark.ground(view=SPENT, filled=three_urls)


def rows(ground: Archived) -> dict[str, int]:
    query = sql.SQL("SELECT url, spent FROM {}").format(sql.Identifier("views", ground.compiled.name))
    return dict(ground.lab.connection.execute(query).fetchall())


def failed(ground: Archived) -> dict[str, str]:
    """The URLs of the groups that are recorded, with the error."""
    query = """SELECT "group" ->> 0, error FROM truelog.failed_group WHERE view = %s"""
    return dict(ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall())


def staged(ground: Archived) -> int:
    """How many rows are staged in the tables of the view."""
    counts = (sql.SQL("SELECT count(*) FROM {}").format(stage.table(each)) for each in ground.compiled.tables)
    return sum(int(str(n)) for each in counts for (n,) in ground.lab.connection.execute(each).fetchall())


def require_equal(ground: Archived, *, from_raw: bool = False) -> None:
    assert compare(replace(ground.rebuilder, from_raw=from_raw)).verdict == "EQUAL"


def test_a_group_whose_sum_overflows_is_left_out_and_the_others_go_on(ground: Archived) -> None:
    ground.click(1, [("a", HUGE, 3), ("b", "5", 4)])
    ground.stream()
    assert rows(ground) == {"b": 7, "c": 3}
    assert set(failed(ground)) == {"a"}
    assert "OVERFLOW" in failed(ground)["a"]
    ground.click(0, [("a", "1", 5), ("c", "1", 6)])
    ground.stream()
    assert rows(ground) == {"b": 7, "c": 4}
    require_equal(ground)
    require_equal(ground, from_raw=True)


def test_a_group_with_two_rows_of_one_key_is_left_out(ground: Archived) -> None:
    ground.click(1, [("b", TWICE, 3), ("c", "5", 4)])
    ground.stream()
    assert rows(ground) == {"a": 1, "c": 8}
    assert "two rows with one key" in failed(ground)["b"]
    require_equal(ground)


def test_a_group_on_which_the_fold_no_longer_fails_has_rows_again(ground: Archived) -> None:
    ground.click(1, [("b", THREE, 3)])
    ground.stream()
    assert (rows(ground), set(failed(ground))) == ({"a": 1, "c": 3}, {"b"})
    ground.click(1, [("b", "1", 4)])
    ground.stream()
    assert (rows(ground), failed(ground)) == ({"a": 1, "b": 336, "c": 3}, {})
    require_equal(ground)


def test_a_bad_record_and_a_failing_group_of_one_batch_are_both_left_out(ground: Archived) -> None:
    ground.click(1, [("a", HUGE, 3), ("c", "no number", 4), ("c", "4", 5)])
    ground.stream()
    assert (rows(ground), set(failed(ground))) == ({"b": 2, "c": 7}, {"a"})
    require_equal(ground, from_raw=True)


@pytest.mark.nightly
def test_a_certificate_of_a_view_with_a_failing_group_is_verified(ground: Archived) -> None:
    ground.click(1, [("a", HUGE, 3)])
    ground.stream()
    context = ground.lab.context
    made = reconcile(context, ground.compiled).certificate
    assert made is not None
    certified = certificate_store.find_certificate(context.settings, made)
    verifier = certificate_verifier.CertificateVerifier(
        context.spark, context.settings, context.event_types, ground.compiled
    )
    assert verifier.verify(certified).answer == "EQUAL"


def test_a_group_that_is_left_out_without_reason_is_found_and_repaired(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = failing._find

    def with_another(*given: object) -> list[FailedGroup]:
        [found] = find(*given)  # type: ignore[arg-type]
        return [found, FailedGroup(found.values.replace('"a"', '"b"'), "out of luck")]

    ground.click(1, [("a", HUGE, 3), ("b", "5", 4)])
    with monkeypatch.context() as patched:
        patched.setattr(failing, "_find", with_another)
        ground.stream()
    assert (rows(ground), set(failed(ground))) == ({"c": 3}, {"a", "b"})
    assert compare(ground.rebuilder).verdict == "DIFFERENT"
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired) == ("EQUAL", 1)
    assert (rows(ground), set(failed(ground))) == ({"b": 7, "c": 3}, {"a"})


def test_a_fold_that_fails_on_many_groups_stops_the_view(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "MOST", 1)
    ground.click(1, [("a", HUGE, 3)])
    ground.stream()
    before = rows(ground)
    ground.click(1, [("b", HUGE, 4)])
    with pytest.raises(TooManyExcluded, match="fails on more than 1 groups"):
        ground.stream()
    assert (rows(ground), set(failed(ground))) == (before, {"a"})


def test_a_batch_on_whose_many_groups_a_fold_fails_leaves_nothing_staged(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its inputs are staged before the fold fails, again in each attempt."""
    monkeypatch.setattr(failing, "MOST", 1)
    ground.click(1, [("a", HUGE, 3), ("b", HUGE, 4)])
    for _ in range(2):
        with pytest.raises(TooManyExcluded, match="fails on more than 1 groups"):
            ground.stream()
    assert staged(ground) == 0


def test_few_groups_are_found_among_many(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search halves the hashes of groups before it lists them."""
    monkeypatch.setattr(failing, "_FEW", 2)
    urls = [f"u{number}" for number in range(40)]
    ground.click(1, [(url, HUGE if url in ("u7", "u30") else "1", 3) for url in urls for _ in range(2)])
    ground.stream()
    assert set(failed(ground)) == {"u7", "u30"}
    assert rows(ground) == {"a": 1, "b": 2, "c": 3} | {url: 2 for url in urls if url not in ("u7", "u30")}


@pytest.mark.nightly
def test_a_failing_step_leaves_no_checkpoint(lab: Lab, s3: Settings) -> None:
    ground = new_archive(lab, s3, IN_STEPS)
    ground.click(0, [("a", "1", 0)] * 5 + [("b", "2", 0)] * 3)
    ground.stream()
    ground.click(0, [("a", HUGE, 1), ("b", "2", 1)])
    ground.stream()
    checkpoints = sql.SQL("SELECT url, number FROM {} ORDER BY url, number").format(
        sql.Identifier("views", f"{ground.compiled.name}_checkpoints")
    )
    assert (rows(ground), set(failed(ground))) == ({"b": 8}, {"a"})
    assert lab.connection.execute(checkpoints).fetchall() == [("b", 2), ("b", 4)]
    ground.click(0, [("a", "1", 2), ("b", "2", 2)])
    ground.stream()
    assert (rows(ground), set(failed(ground))) == ({"b": 10}, {"a"})
    require_equal(ground)


def test_the_search_does_not_blame_groups_for_an_error_of_the_transform(ground: Archived) -> None:
    ground.click(1, [("a", "no number", 3)])
    ground.stream()
    assert (rows(ground), failed(ground)) == ({"a": 1, "b": 2, "c": 3}, {})
    query = "SELECT count(*) FROM truelog.exclusion WHERE view = %s"
    assert ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall() == [(1,)]


def test_a_group_on_which_the_fold_fails_is_not_explained(ground: Archived) -> None:
    ground.click(1, [("a", HUGE, 3)])
    ground.stream()
    with pytest.raises(BadInput, match=r"its fold fails on the events: .*OVERFLOW"):
        explain(ground.lab.context, ground.compiled, {"url": "a", "minute": "2026-03-01T00:00:00Z"})
