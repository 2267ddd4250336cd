"""Reconcile: what it compares, waits for, repairs and stores."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import pytest
from psycopg import sql

from tests.deadline import deadline, until
from tests.library.advisory_lock import require_waiting
from tests.library.letters import Letters, archive, send
from truelog.archive import reader as archive_reader
from truelog.batch.base import Rebuilt
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.reconcile import partial_audit, row_diff
from truelog.reconcile import reconcile as module
from truelog.reconcile.comparison import hashed_rebuild
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.partial_audit import PartialAudit
from truelog.reconcile.reconcile import may_be_repaired, reconcile, refused_result
from truelog.reconcile.reconcile_result import NOWHERE, ReconcileRequest, ReconcileResult, exit_code
from truelog.storage.database import connect
from truelog.support.errors import CodeChanged, MeaningChanged
from truelog.support.settings import Settings
from truelog.tables import table_hash
from truelog.tables.table_hash import TableHash

FOUND = ReconcileResult("v", 1, Positions(), rows=1000, verdict="DIFFERENT")


def test_an_exempt_view_is_not_repaired() -> None:
    request = ReconcileRequest(repair=True, exempt=frozenset({"a"}))
    assert (request.for_view("a").repair, request.for_view("b").repair) == (False, True)
    assert not ReconcileRequest().for_view("b").repair


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (FOUND, False),
        (replace(FOUND, missing=2, extra=2, different=1), True),
        (replace(FOUND, missing=2, extra=2, different=2), False),
        (replace(FOUND, rows=10_000, different=10), True),
        (replace(FOUND, rows=10_000, different=11), False),
        (replace(FOUND, different=1, causes=({"cause": Cause.FILE},)), False),
        (replace(FOUND, different=1, causes=({"cause": Cause.PARTIAL},)), False),
    ],
)
def test_only_few_rows_are_repaired(settings: Settings, result: ReconcileResult, expected: bool) -> None:
    few = settings.model_copy(update={"repair_rows": 5, "repair_share": 0.001})
    assert may_be_repaired(few, result) == expected
    assert not may_be_repaired(few.model_copy(update={"repair_share": 0.0}), result)


def test_the_exit_code_says_the_worst_verdict() -> None:
    results = {verdict: replace(FOUND, verdict=verdict) for verdict in ("EQUAL", "DIFFERENT", "UNKNOWN")}
    assert [exit_code([each]) for each in results.values()] == [0, 1, 3]
    assert exit_code(results.values()) == 1
    assert exit_code([]) == 0


def test_scripts_get_every_field_but_the_hash() -> None:
    plain = replace(FOUND, verdict="EQUAL", rebuilt=Rebuilt({})).as_dict()
    assert (plain["equal"], plain["rows"], plain["positions"]) == (True, 1000, {})
    assert plain.keys() == {each.name for each in fields(ReconcileResult)} - {"rebuilt"} | {"equal"}


def test_a_comparison_changes_no_row_and_stores_a_sample(letters: Letters) -> None:
    letters.lose("lost")
    for number in range(101):
        letters.plant(f"wrong {number:03}", 7)
    before = letters.rows()
    found = reconcile(letters.rebuilder.context, letters.compiled)
    assert (found.verdict, found.missing, found.extra, found.different) == ("DIFFERENT", 1, 101, 0)
    assert (found.rows, found.repaired, len(found.sample)) == (1, 0, 100)
    assert letters.rows() == before
    differing = sql.SQL("SELECT DISTINCT _reconciliation FROM {}").format(
        sql.Identifier("recon", f"{letters.compiled.own.name}_diff")
    )
    assert letters.lab.connection.execute(differing).fetchall() == [(found.id,)]


def test_rows_that_become_equal_while_they_are_compared_get_no_certificate(
    letters: Letters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hashes are of different moments, and a certificate contains a hash."""
    letters.plant("wrong", 7)
    monkeypatch.setattr(hashed_rebuild, "of_everything", lambda *_, **__: Rebuilt({"": _without_rows(letters)}))
    found = reconcile(letters.rebuilder.context, letters.compiled)
    assert (found.verdict, found.rebuilt, found.certificate) == ("EQUAL", None, None)


def _without_rows(letters: Letters) -> TableHash:
    """The hash of a rebuild before the row is deleted, as if the stream had deleted it meanwhile."""
    query = sql.SQL("DELETE FROM {}").format(sql.Identifier("state", letters.compiled.own.name))
    letters.lab.connection.execute(query)
    return {}


def test_a_comparison_waits_for_the_archive(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, begin = letters.lab.settings, letters.positions()
    send(settings, "late")
    end = letters.ends()
    merge.apply(letters.lab.connection, letters.compiled, Merge(begin, end, letters.staged(begin, end)))
    waited: list[Positions] = []

    def wait_for(_: Settings, wanted: Positions, *, seconds: float) -> None:
        if not waited:
            archive(settings, begin, end, "late")
        waited.append(wanted)
        assert seconds == settings.archive_wait_seconds

    monkeypatch.setattr(archive_reader, "wait_for", wait_for)
    assert compare(letters.rebuilder).equal
    assert waited == [end]


def test_rows_are_rebuilt_only_as_far_as_the_archive_is(
    letters: Letters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream may go on between the hashes and the rows, so the rows wait for the archive again."""
    letters.plant("wrong", 7)
    waited: list[Positions] = []
    monkeypatch.setattr(archive_reader, "wait_for", lambda _, wanted, *, seconds: waited.append(wanted))
    assert compare(letters.rebuilder).verdict == "DIFFERENT"
    assert waited == [letters.positions()] * 2


def test_the_hash_and_the_positions_are_of_one_moment(
    letters: Letters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream merges a letter after the positions were read and before the table is hashed."""
    settings, begin, original = letters.lab.settings, letters.positions(), table_hash.hash_table
    send(settings, "meanwhile")
    end = letters.ends()
    late = Merge(begin, end, letters.staged(begin, end))

    def hash_later(*given: Any) -> TableHash:
        with connect(settings, autocommit=True) as streaming:
            merge.apply(streaming, letters.compiled, late)
        return original(*given)

    monkeypatch.setattr(table_hash, "hash_table", hash_later)
    monkeypatch.setattr(archive_reader, "wait_for", lambda *_, seconds: None)
    found = compare(letters.rebuilder)
    assert (found.verdict, found.positions) == ("EQUAL", begin)
    assert letters.positions() == end


def test_a_second_comparison_of_a_view_waits_for_the_first(letters: Letters) -> None:
    """Both would write the same tables."""
    settings = letters.lab.settings
    with ThreadPoolExecutor(1) as pool, connect(settings, autocommit=True) as first:
        row_diff.lock_comparisons(first, letters.compiled.own.name)
        second = pool.submit(reconcile, letters.rebuilder.context, letters.compiled)
        until(lambda: require_waiting(settings), 30, "the second comparison to wait")
        first.close()
        assert second.result(deadline(60)).equal


def test_a_view_of_another_reading_is_not_compared(letters: Letters) -> None:
    letters.lab.connection.execute("UPDATE truelog.position SET reading = 1 WHERE view = %s", (letters.compiled.name,))
    found = reconcile(letters.rebuilder.context, letters.compiled)
    assert (found.verdict, found.positions) == ("UNKNOWN", NOWHERE)
    with pytest.raises(MeaningChanged):
        compare(letters.rebuilder)


DUE, EVERY, VIEW = "the due partials", "every partial", "the view"
# What each request compares with its source, in this order.
COMPARED = {
    "a comparison": (ReconcileRequest(), [VIEW]),
    "a comparison from raw bytes": (ReconcileRequest(from_raw=True), [VIEW]),
    "a comparison with an audit": (ReconcileRequest(audit=True), [DUE, VIEW]),
    "a comparison from raw bytes with an audit": (ReconcileRequest(from_raw=True, audit=True), [DUE, VIEW]),
    "a repair": (ReconcileRequest(repair=True), [VIEW]),
    "a repair with an audit": (ReconcileRequest(repair=True, audit=True), [DUE, VIEW]),
    "a repair from raw bytes": (ReconcileRequest(from_raw=True, repair=True), [EVERY, VIEW]),
    "a repair from raw bytes with an audit": (
        ReconcileRequest(from_raw=True, repair=True, audit=True),
        [EVERY, VIEW],
    ),
}


def test_a_repair_from_raw_bytes_proves_every_partial_first(
    letters: Letters,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def audit_partials(rebuilder: Rebuilder, *, every: bool) -> PartialAudit:
        compared.append(EVERY if every else DUE)
        return partial_audit.audit_partials(rebuilder, every=every)

    def compare_view(rebuilder: Rebuilder, *, incremental: bool) -> ReconcileResult:
        compared.append(VIEW)
        return compare(rebuilder, incremental=incremental)

    monkeypatch.setattr(module, "audit_partials", audit_partials)
    monkeypatch.setattr(module, "compare", compare_view)
    found = {}
    for case, (request, _) in COMPARED.items():
        compared.clear()
        assert reconcile(letters.rebuilder.context, letters.compiled, request).equal, case
        found[case] = [*compared]
    assert found == {case: expected for case, (_, expected) in COMPARED.items()}


def test_a_refusal_is_stored_with_its_cause_and_a_short_reason(letters: Letters) -> None:
    settings, request = letters.lab.settings, ReconcileRequest(run="r")
    changed = refused_result(settings, letters.compiled, request, reason=CodeChanged("x" * 1000), at=letters.ends())
    assert (changed.reason, changed.positions, changed.rows) == ("x" * 500, letters.ends(), 0)
    assert [(each["cause"], each["rows"]) for each in changed.causes] == [(Cause.CODE, 0)]
    failed = refused_result(settings, "no_such_view", request, reason=ValueError("a bad value"))
    assert (failed.reason, failed.version, failed.causes) == ("ValueError: a bad value", None, ())
    query = "SELECT run, verdict, version FROM truelog.reconciliation WHERE id = ANY(%s) ORDER BY id"
    stored = letters.lab.connection.execute(query, ([changed.id, failed.id],)).fetchall()
    assert stored == [("r", "UNKNOWN", letters.compiled.view.version), ("r", "UNKNOWN", None)]
