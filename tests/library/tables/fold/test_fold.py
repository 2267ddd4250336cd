"""The rows of a Group: bounded, replaced as a whole, repaired after its inputs, and guarded against repairs."""

from dataclasses import replace

import pytest
from psycopg import sql
from pyspark.sql import DataFrame

from tests.beds.archived import Archived, change, oversized
from tests.beds.lab import with_own
from tests.library.click_views import ABOVE, MOST, above_average
from truelog.batch import rejudge
from truelog.kernel import merge
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.reconcile.repair import repair
from truelog.serving import fallback
from truelog.support.errors import Stale
from truelog.tables.fold import merge as groups
from truelog.tables.fold.compiled import fold_of


def two_urls(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "5", 1), ("b", "3", 2)])
    ground.stream()


pytestmark = pytest.mark.ground(view=ABOVE, filled=two_urls)


def rows(ground: Archived) -> list[tuple[object, ...]]:
    view = sql.Identifier("views", ground.compiled.name)
    query = sql.SQL("SELECT url, spent, clicks FROM {} ORDER BY url, spent").format(view)
    return ground.lab.connection.execute(query).fetchall()


def test_a_group_is_replaced_as_a_whole_and_rows_vanish(ground: Archived) -> None:
    assert rows(ground) == [("a", 5, 1), ("b", 3, 1)]
    ground.click(1, [("a", "9", 3)])
    ground.stream()
    assert rows(ground) == [("a", 5, 1), ("a", 9, 1), ("b", 3, 1)]
    ground.click(0, [("a", "99", 4)])
    ground.stream()
    assert rows(ground) == [("a", 99, 1), ("b", 3, 1)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_group_with_too_many_inputs_has_no_rows(ground: Archived) -> None:
    ground.click(1, [("a", "7", 3)] * (MOST - 1))
    ground.stream()
    assert rows(ground) == [("b", 3, 1)]
    assert oversized(ground) == [["a"]]
    ground.click(0, [("a", "7", 4), ("b", "9", 5)])
    ground.stream()
    assert (rows(ground), oversized(ground)) == ([("b", 9, 1)], [["a"]])
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_group_recovers_when_a_repair_removes_its_surplus(ground: Archived) -> None:
    insert = "INSERT INTO {} SELECT url, topic, partition, 100 + n, spent FROM {} CROSS JOIN generate_series(1, 3) AS n"
    table = sql.Identifier("state", ground.compiled.sides[0].name)
    ground.lab.connection.execute(sql.SQL(insert + " WHERE url = 'b'").format(table, table))
    ground.click(1, [("b", "2", 3)])
    ground.stream()
    assert oversized(ground) == [["b"]]
    assert reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True)).verdict == "EQUAL"
    assert oversized(ground) == [], "the repair records it, and waits for no batch"
    ground.click(1, [("b", "4", 4)])
    ground.stream()
    assert (rows(ground), oversized(ground)) == ([("a", 5, 1), ("b", 3, 1), ("b", 4, 1)], [])


def test_a_row_that_does_not_follow_from_its_inputs_is_repaired(ground: Archived) -> None:
    change(ground, ground.compiled.own.name, "UPDATE {} SET clicks = 7 WHERE url = 'b'")
    found = compare(ground.rebuilder)
    assert (found.verdict, found.different, [each["cause"] for each in found.causes]) == ("DIFFERENT", 1, [Cause.HAND])
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired, rows(ground)) == ("EQUAL", 1, [("a", 5, 1), ("b", 3, 1)])
    ground.require_output()


def test_a_repair_records_the_rows_of_the_group_that_have_changed_since_the_comparison(ground: Archived) -> None:
    [inputs] = ground.compiled.sides
    change(ground, inputs.name, "DELETE FROM {} WHERE spent = 1")
    found = compare(ground.rebuilder)
    assert (found.missing, found.extra, found.sample[0]["side"]) == (1, 0, "inputs")
    change(ground, ground.compiled.own.name, "INSERT INTO {} (url, spent, clicks) VALUES ('a', 9, 1)")
    assert repair(ground.rebuilder, found.positions) == 2
    assert rows(ground) == [("a", 5, 1), ("b", 3, 1)]
    query = (
        "SELECT side, key ->> 1, before ->> 'spent', after ->> 'spent' FROM truelog.repair WHERE view = %s ORDER BY 1"
    )
    recorded = ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall()
    assert recorded == [("", "9", "9", None), ("inputs", "click", None, "1")]


@pytest.mark.nightly
def test_a_wrong_input_and_the_rows_that_follow_from_it_are_repaired(ground: Archived) -> None:
    [inputs] = ground.compiled.sides
    change(ground, inputs.name, "UPDATE {} SET spent = 8 WHERE spent = 1")
    ground.click(1, [("a", "6", 3)])
    ground.stream()  # folds the wrong input
    assert rows(ground) == [("a", 8, 1), ("b", 3, 1)]
    found = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (found.verdict, rows(ground)) == ("EQUAL", [("a", 5, 1), ("a", 6, 1), ("b", 3, 1)])


def test_a_merge_that_has_read_inputs_before_a_repair_is_refused(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage_touched = groups.stage_touched

    def repaired_meanwhile(*given: object) -> object:
        staged = stage_touched(*given)  # type: ignore[arg-type]
        with ground.lab.connection.transaction():
            merge.record_repair(ground.lab.connection, ground.compiled)
        return staged

    ground.click(1, [("a", "6", 3)])
    with monkeypatch.context() as patched:
        patched.setattr(groups, "stage_touched", repaired_meanwhile)
        with pytest.raises(Stale, match="was repaired while"):
            ground.stream()
    ground.stream()
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_certificate_a_fallback_and_another_reading_cover_a_group(ground: Archived) -> None:
    found = reconcile(ground.lab.context, ground.compiled)
    assert found.certificate is not None
    ground.click(1, [("b", "4", 3)])
    try:
        assert fallback.build_fallback(ground.rebuilder) == ground.positions.only(["click"])
        assert rows(ground) == [("a", 5, 1), ("b", 4, 1)]
    finally:
        ground.lab.connection.execute("DELETE FROM truelog.batch_answer WHERE view = %s", (ground.compiled.name,))
    ground.stream()
    rejudge.rebuild_under_reading(ground.rebuilder)
    ground.require_output()
    assert rows(ground) == [("a", 5, 1), ("b", 4, 1)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_the_executors_role_may_read_the_inputs_and_no_other_table(ground: Archived) -> None:
    [inputs] = ground.compiled.sides
    query = "SELECT has_table_privilege('stager', format('state.%%I', %s::text), 'SELECT')"
    allowed = {
        each.name: ground.lab.connection.execute(query, (each.name,)).fetchone() for each in ground.compiled.tables
    }
    assert allowed == {ground.compiled.own.name: (False,), inputs.name: (True,)}


def test_only_touched_groups_are_loaded(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = list[list[str]]()
    noted = replace(fold_of(ground.compiled.own), run=lambda inputs: _noted(inputs, loaded))
    ground.click(1, [("a", "6", 3)])
    with monkeypatch.context() as patched:
        patched.setattr(ground, "compiled", with_own(ground.compiled, derivation=noted))
        ground.stream()
    assert loaded == [["a", "a", "a"]]


def _noted(inputs: DataFrame, loaded: list[list[str]]) -> DataFrame:
    loaded.append(sorted(row.url for row in inputs.collect()))
    return above_average(inputs)
