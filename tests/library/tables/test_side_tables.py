"""A side table is compared, repaired, certified, audited, answered from the archive and dropped with its view."""

from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg import sql

from tests.beds.archived import MORNING, PER_URL, Archived
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.control.view_tables import diff_tables, tables_of
from truelog.log.positions import Positions
from truelog.maintenance import superseded
from truelog.maintenance.superseded import Version
from truelog.reconcile import certificate_store, reconcile_history
from truelog.reconcile.certificate import read_certificate
from truelog.reconcile.certificate_verifier import CertificateVerifier, VerificationVerdict
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.partial_audit import audit_partials
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.serving import fallback
from truelog.tables import deploy as table
from truelog.tables.table import Table

# The records reach the log at 03:00. Clicks before 01:00 are too late.
ON_TIME = replace(PER_URL, keep=None, allowed_lateness="2 hours")
LATE, IN_TIME = 3_599, 3_600


def late_and_in_time(ground: Archived) -> None:
    ground.click(0, [("late", "1", LATE), ("a", "2", IN_TIME), ("b", "3", IN_TIME)])
    ground.click(1, [("late", "4", 0), ("a", "5", IN_TIME)])
    ground.stream()


pytestmark = pytest.mark.ground(view=ON_TIME, filled=late_and_in_time)


def side(ground: Archived) -> Table:
    [found] = ground.compiled.sides
    return found


def counted(ground: Archived) -> tuple[int, int]:
    """The events and the dropped events, as readers see them."""
    view = sql.Identifier("views", f"{ground.compiled.name}_dropped")
    query = sql.SQL("SELECT sum(events)::int, sum(dropped)::int FROM {}").format(view)
    [(events, dropped)] = ground.lab.connection.execute(query).fetchall()
    return int(str(events)), int(str(dropped))


def spoil(ground: Archived) -> None:
    state = sql.Identifier("state", side(ground).name)
    assert ground.lab.connection.execute(sql.SQL("UPDATE {} SET dropped = 3").format(state)).rowcount == 1


def test_readers_see_how_many_events_came_too_late(ground: Archived) -> None:
    assert counted(ground) == (5, 2)


def test_a_certificate_covers_the_side_table(ground: Archived) -> None:
    found = reconcile(ground.lab.context, ground.compiled)
    assert (found.verdict, found.rows) == ("EQUAL", 2)
    assert found.certificate is not None
    made = certificate_store.find_certificate(ground.lab.settings, found.certificate)
    assert made.sides is not None
    assert made.sides["dropped"].key == ("topic", "hour")
    assert read_certificate(made.as_bytes()) == made

    verifier = CertificateVerifier(ground.lab.spark, ground.lab.settings, ground.lab.types, ground.compiled)
    assert verifier.verify(made).answer == VerificationVerdict.EQUAL
    [(bucket, (rows, hashed))] = made.sides["dropped"].buckets.items()
    altered = replace(made.sides["dropped"], buckets={bucket: (rows, f"{int(hashed, 16) ^ 1:032x}")})
    check = verifier.verify(replace(made, sides={"dropped": altered}))
    assert (check.answer, check.unequal_buckets) == (VerificationVerdict.DIFFERENT, 1)


def test_a_wrong_row_of_a_side_table_is_found_and_repaired(ground: Archived) -> None:
    spoil(ground)
    found = compare(ground.rebuilder)
    assert (found.verdict, found.rows, found.missing, found.extra, found.different) == ("DIFFERENT", 2, 0, 0, 1)
    [row] = found.sample
    assert (row["side"], row["streamed"]["dropped"], row["rebuilt"]["dropped"]) == ("dropped", 3, 2)

    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired, counted(ground)) == ("EQUAL", 1, (5, 2))
    assert repaired.id is not None
    detail = reconcile_history.reconciliation_detail(ground.lab.connection, repaired.id)
    assert detail is not None
    assert [(each.side, (each.before or {})["dropped"]) for each in detail.repairs] == [("dropped", 3)]


def test_the_differing_rows_of_all_tables_are_listed(ground: Archived) -> None:
    spoil(ground)
    own = sql.Identifier("state", ground.compiled.own.name)
    ground.lab.connection.execute(sql.SQL("DELETE FROM {} WHERE url = 'b'").format(own))
    found = reconcile(ground.lab.context, ground.compiled)
    assert found.id is not None
    detail = reconcile_history.reconciliation_detail(ground.lab.connection, found.id)
    assert detail is not None
    with ground.lab.connection.transaction():  # a cursor reads them
        rows = list(reconcile_history.differing_rows(ground.lab.connection, detail))
    assert [(row.side, row.streamed is None) for row in rows] == [("", True), ("dropped", False)]


@pytest.mark.nightly
def test_a_wrong_partial_of_a_side_table_is_replaced(ground: Archived) -> None:
    spark, settings, rebuilder = ground.lab.spark, ground.lab.settings, ground.rebuilder
    begin, end = Positions({"click": {0: 0, 1: 0}}, ground.ids), ground.positions.only(["click"])
    covered = PartialRange(MORNING + timedelta(hours=3), begin, end)
    for each in ground.compiled.tables:
        states = rebuilder.states_between(each, begin, end)
        partials.replace(spark, settings, each, covered, states.limit(0) if each.side else states)
    assert compare(rebuilder).verdict == "DIFFERENT"
    assert audit_partials(rebuilder, every=True).wrong == [covered.day]
    assert compare(rebuilder).verdict == "EQUAL"
    assert audit_partials(rebuilder, every=True).wrong == []


@pytest.mark.nightly
def test_a_fallback_answers_for_the_side_table_too(ground: Archived) -> None:
    ground.click(0, [("late", "6", LATE)])
    try:
        assert fallback.build_fallback(ground.rebuilder) == ground.positions.only(["click"])
        assert counted(ground) == (6, 3)
    finally:
        ground.lab.connection.execute("DELETE FROM truelog.batch_answer WHERE view = %s", (ground.compiled.name,))


def test_the_tables_of_a_version_are_dropped_together(ground: Archived) -> None:
    connection, name = ground.lab.connection, ground.compiled.name
    own, dropped = tables_of(connection, name, 1)
    assert dropped == f"{own}_dropped"
    assert diff_tables(connection, name, 1) == {"": f"{own}_diff", "dropped": f"{dropped}_diff"}
    for relation in (name, f"{name}_dropped"):
        connection.execute(sql.SQL("DROP VIEW {} CASCADE").format(sql.Identifier("views", relation)))
    assert superseded.drop_version(ground.lab.settings, connection, Version(name, 1))
    [left] = connection.execute("SELECT to_regclass(%s), to_regclass(%s)", (f"state.{own}", f"state.{dropped}"))
    assert left == (None, None)
    table.deploy_table(connection, ground.compiled)
