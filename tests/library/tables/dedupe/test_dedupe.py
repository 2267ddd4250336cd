"""Copies of events: what counts, which rows are kept, what happens after a kill, and how a wrong row is repaired."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import DataFrame

from tests.beds.archived import LATER, Archived, Click, new_archive
from tests.beds.lab import Lab
from tests.deadline import deadline
from tests.library.click_views import ABOVE, ONCE
from truelog import Join, Latest, Match, View, latest
from truelog.batch import log_with_archive, partials, rejudge
from truelog.batch.partial_selection import PartialRange
from truelog.history.explain import explain
from truelog.history.explanation import Verdict
from truelog.kernel import merge
from truelog.log import records
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate_verifier import CertificateVerifier, VerificationVerdict
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause
from truelog.reconcile.partial_audit import audit_partials
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.reconcile.repair import repair
from truelog.schema.event import EventTypes
from truelog.serving import fallback
from truelog.storage.database import connect
from truelog.support import faults
from truelog.support.errors import BadDeclaration, Stale
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.dedupe import merge as copies

REPAIR = ReconcileRequest(repair=True)


pytestmark = pytest.mark.ground(view=ONCE)


def test_two_applications_deploy_their_views_at_the_same_time(lab: Lab) -> None:
    """A deployment never waits for the deployment of another view. PostgreSQL would refuse it after the wait."""
    first, second = (lab.compiled(f"v{uuid.uuid4().hex[:8]}", ONCE) for _ in range(2))
    with connect(lab.settings) as other, other.transaction(force_rollback=True):
        table.deploy_table(other, first)
        lab.connection.execute(f"SET lock_timeout = '{deadline(1):.0f}s'")
        table.deploy_table(lab.connection, second)
    assert rows_of(lab, second) == {}


def rows(ground: Archived) -> dict[str, int]:
    return rows_of(ground.lab, ground.compiled)


def rows_of(lab: Lab, compiled: CompiledView) -> dict[str, int]:
    view = sql.Identifier("views", compiled.name)
    found = lab.connection.execute(sql.SQL("SELECT url, spent FROM {}").format(view)).fetchall()
    return {str(url): int(str(spent)) for url, spent in found}


def seen(ground: Archived) -> list[tuple[object, ...]]:
    """The partition, id and second of log time of each remembered event."""
    view = sql.Identifier("views", f"{ground.compiled.name}_seen")
    query = 'SELECT partition, event_id, extract(epoch FROM log_time - %s)::int FROM {} ORDER BY partition, "offset"'
    return ground.lab.connection.execute(sql.SQL(query).format(view), (LATER,)).fetchall()


def change(ground: Archived, statement: str, side: str = "seen") -> None:
    [table] = (each.name for each in ground.compiled.tables if each.side == side)
    name = sql.Identifier("state", table)
    assert ground.lab.connection.execute(sql.SQL(statement).format(name)).rowcount == 1


def test_an_event_that_is_sent_again_counts_once(ground: Archived) -> None:
    ground.append(0, [Click("x", 0, "a"), Click("x", 1, "a"), Click("y", 2, "a")])
    ground.stream()
    ground.append(0, [Click("x", 3, "changed"), Click("y", 3, "b")])
    ground.stream()
    assert rows(ground) == {"a": 2}
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_the_horizon_includes_its_end_and_a_copy_prolongs_it(ground: Archived) -> None:
    ground.append(0, [Click("x", 0, "first"), Click("y", 0, "first")])
    ground.stream()
    ground.append(0, [Click("x", 60, "at the end"), Click("y", 61, "after the end")])
    ground.stream()
    ground.append(0, [Click("x", 120, "a copy of the copy"), Click("x", 181, "after a pause")])
    ground.stream()
    assert rows(ground) == {"first": 2, "after the end": 1, "after a pause": 1}
    assert seen(ground) == [(0, "x", 181)]


def test_each_partition_has_its_own_ids_and_its_own_time(ground: Archived) -> None:
    ground.append(0, [Click("x", 0, "a"), Click("z", 500, "a")])
    ground.append(1, [Click("x", 0, "b"), Click("x", 60, "b")])
    ground.stream()
    assert rows(ground) == {"a": 2, "b": 1}
    assert seen(ground) == [(0, "z", 500), (1, "x", 0), (1, "x", 60)]


def test_log_time_never_goes_back(ground: Archived) -> None:
    """A broker whose clock was fast moves it on, and a broker whose clock is slow does not move it back."""
    ground.append(0, [Click("x", 100, "a"), Click("y", 30, "a")])
    ground.stream()
    ground.append(0, [Click("x", 10, "b"), Click("z", 160, "b"), Click("y", 0, "b"), Click("y", 161, "c")])
    ground.stream()
    assert rows(ground) == {"a": 2, "b": 1}
    assert seen(ground) == [(0, "z", 160), (0, "y", 160), (0, "y", 161)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_an_event_on_which_the_transform_fails_has_copies_too(ground: Archived) -> None:
    """Whether an event is a copy follows from the log, and not from the code of a view."""
    ground.append(0, [Click("x", 0, "a", spent="none"), Click("x", 1, "a"), Click("y", 1, "b")])
    ground.stream()
    assert (rows(ground), len(ground.rebuilder.excluded(ground.positions))) == ({"b": 1}, 1)
    assert [name for _, name, _ in seen(ground)] == ["x", "x", "y"]
    assert reconcile(ground.lab.context, ground.compiled, ReconcileRequest(from_raw=True)).verdict == "EQUAL"


class _KilledError(BaseException):
    """Ends a merge without the cleanup that an error gets."""


@pytest.mark.parametrize(
    ("point", "staged"),
    [
        pytest.param("merge.staged", 2, marks=pytest.mark.nightly),
        ("merge.added", 2),
        pytest.param("merge.committed", 0, marks=pytest.mark.nightly),
    ],
)
def test_after_a_kill_the_batch_counts_once(
    ground: Archived, monkeypatch: pytest.MonkeyPatch, point: str, staged: int
) -> None:
    """The process dies before its merge, in the middle of its merge, or after it: PostgreSQL loses the connection."""
    ground.append(0, [Click("x", 0), Click("x", 1)])
    own = connect(ground.lab.settings, autocommit=True)

    def die(reached: str) -> None:
        if reached == point:
            own.close()
            raise _KilledError

    with monkeypatch.context() as patched:
        patched.setattr(faults, "reach", die)
        with pytest.raises((_KilledError, psycopg.OperationalError)):
            replace(ground, lab=replace(ground.lab, connection=own)).stream()
    assert own.closed
    [side] = ground.compiled.sides
    query = sql.SQL("SELECT count(*) FROM {}").format(stage.table(side))
    assert ground.lab.connection.execute(query).fetchone() == (staged,), "a killed process leaves its staged rows"
    ground.stream()
    assert (rows(ground), len(seen(ground))) == ({"a": 1}, 2)
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_row_of_seen_that_was_deleted_is_repaired(ground: Archived) -> None:
    ground.append(0, [Click("x", 0)])
    ground.stream()
    change(ground, "DELETE FROM {}")
    found = compare(ground.rebuilder)
    assert (found.verdict, found.missing, {each["cause"] for each in found.causes}) == ("DIFFERENT", 1, {Cause.UNKNOWN})
    assert reconcile(ground.lab.context, ground.compiled, REPAIR).verdict == "EQUAL"
    ground.append(0, [Click("x", 1)])
    ground.stream()
    assert rows(ground) == {"a": 1}


def test_rows_that_follow_from_a_wrong_row_of_seen_are_repaired(ground: Archived) -> None:
    """An id was forgotten, so a copy has counted, and later log times follow from the wrong one."""
    ground.append(0, [Click("x", 0), Click("y", 0)])
    ground.stream()
    change(ground, "UPDATE {} SET log_time = log_time + interval '1 day' WHERE event_id = 'y'")
    ground.append(0, [Click("x", 1), Click("z", 1)])
    ground.stream()
    assert rows(ground) == {"a": 4}
    causes = compare(ground.rebuilder).causes
    assert {(each["cause"], each["rows"]) for each in causes} == {(Cause.UNKNOWN, 1), (Cause.UNKNOWN, 4)}
    repaired = reconcile(ground.lab.context, ground.compiled, REPAIR)
    assert (repaired.verdict, rows(ground)) == ("EQUAL", {"a": 3})
    assert [time for _, _, time in seen(ground)] == [0, 0, 1, 1]


@pytest.mark.nightly
def test_what_the_stream_adds_before_a_repair_is_repaired_with_it(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log times follow from the wrong row. The next comparison finds the forgotten id and the copy that counted."""
    monkeypatch.setattr(log_with_archive, "read_events", _log_of(ground))
    ground.append(0, [Click("x", 0), Click("y", 0)])
    ground.stream()
    change(ground, "UPDATE {} SET log_time = log_time + interval '1 day' WHERE event_id = 'y'")
    compared = compare(ground.rebuilder).positions
    ground.append(0, [Click("x", 1), Click("z", 1)])
    ground.stream()
    assert [time for _, _, time in seen(ground)] == [86_400] * 3
    assert repair(ground.rebuilder, compared) == 3
    assert [time for _, _, time in seen(ground)] == [0, 1, 1]
    assert reconcile(ground.lab.context, ground.compiled, REPAIR).verdict == "EQUAL"
    assert rows(ground) == {"a": 3}
    assert [time for _, _, time in seen(ground)] == [0, 0, 1, 1]


def _log_of(ground: Archived) -> Callable[..., EventFrames]:
    def read(spark: object, settings: object, types: EventTypes, begin: Positions, end: Positions) -> EventFrames:
        raw = ground.lab.spark.createDataFrame(pa.Table.from_batches(ground.raw))
        ranges = begin.only(types).ranges_to(end)
        return records.events(
            records.decoded(raw.where("topic = 'click'").where(records.in_ranges(ranges)), types), types
        )

    return read


def test_a_merge_that_has_read_seen_before_a_repair_is_refused(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_times = copies._log_times

    def repaired_meanwhile(*given: Any) -> Any:
        found = log_times(*given)
        with ground.lab.connection.transaction():
            merge.record_repair(ground.lab.connection, ground.compiled)
        return found

    ground.append(0, [Click("x", 0)])
    with monkeypatch.context() as patched:
        patched.setattr(copies, "_log_times", repaired_meanwhile)
        with pytest.raises(Stale, match="was repaired while"):
            ground.stream()
    ground.stream()
    assert compare(ground.rebuilder).verdict == "EQUAL"


@pytest.mark.nightly
def test_a_fallback_and_another_reading_leave_out_copies(ground: Archived) -> None:
    ground.append(0, [Click("x", 0), Click("x", 1)])
    ground.stream()
    ground.append(0, [Click("x", 2, "b"), Click("y", 2, "b")])
    try:
        assert fallback.build_fallback(ground.rebuilder) == ground.positions.only(["click"])
        assert (rows(ground), len(seen(ground))) == ({"a": 1, "b": 1}, 4)
    finally:
        ground.lab.connection.execute("DELETE FROM truelog.batch_answer WHERE view = %s", (ground.compiled.name,))
    ground.stream()
    rejudge.rebuild_under_reading(ground.rebuilder)
    assert rows(ground) == {"a": 1, "b": 1}
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_the_executors_role_may_read_seen_and_no_other_table(ground: Archived) -> None:
    query = "SELECT has_table_privilege('stager', format('state.%%I', %s::text), 'SELECT')"
    allowed = [ground.lab.connection.execute(query, (each.name,)).fetchone() for each in ground.compiled.tables]
    assert ([each.side for each in ground.compiled.tables], allowed) == (["", "seen"], [(False,), (True,)])


@pytest.mark.nightly
def test_a_wrong_partial_is_a_proved_cause(ground: Archived) -> None:
    """The records, each event once, add up to the streamed rows."""
    ground.append(0, [Click("x", 0), Click("x", 1)])
    ground.stream()
    begin, end = Positions({"click": {0: 0, 1: 0}}, ground.ids), ground.positions.only(["click"])
    covered, own = PartialRange(LATER, begin, end), ground.compiled.own
    states = ground.rebuilder.states_between(own, begin, end)
    partials.replace(ground.lab.spark, ground.lab.settings, own, covered, states.unionByName(states))
    assert [each["cause"] for each in compare(ground.rebuilder).causes] == [Cause.PARTIAL]
    assert audit_partials(ground.rebuilder, every=True).wrong == [covered.day]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_recompute_makes_no_partial_of_seen(ground: Archived) -> None:
    assert [each.side for each in ground.compiled.sources] == ["", "seen"]
    assert kinds.daily(ground.compiled) == (ground.compiled.own,)


@pytest.mark.nightly
def test_a_late_event_and_its_copy_are_dropped_once(lab: Lab, s3: Settings) -> None:
    """The clicks happened up to three hours before they reached the log."""
    ground = new_archive(lab, s3, replace(ONCE, allowed_lateness="1 hour"))
    ground.append(0, [Click("x", 0), Click("x", 1), Click("y", 1)])
    ground.stream()
    view = sql.Identifier("views", f"{ground.compiled.name}_dropped")
    query = sql.SQL("SELECT events::int, dropped::int FROM {}").format(view)
    assert ground.lab.connection.execute(query).fetchall() == [(2, 2)]
    assert compare(ground.rebuilder).verdict == "EQUAL"


def test_a_group_gets_each_event_once(lab: Lab, s3: Settings) -> None:
    ground = new_archive(lab, s3, replace(ABOVE, dedupe="1 minute"))
    ground.append(0, [Click("x", 0), Click("x", 1), Click("y", 2)])
    ground.stream()
    ground.append(0, [Click("y", 3), Click("z", 4)])
    ground.stream()
    query = sql.SQL("SELECT url, clicks FROM {}").format(sql.Identifier("views", ground.compiled.name))
    assert ground.lab.connection.execute(query).fetchall() == [("a", 3)]
    certificate = reconcile(lab.context, ground.compiled).certificate
    assert certificate is not None
    made = certificate_store.find_certificate(lab.settings, certificate)
    check = CertificateVerifier(lab.spark, lab.settings, lab.types, ground.compiled).verify(made)
    assert check.answer == VerificationVerdict.EQUAL
    change(ground, "DELETE FROM {} WHERE event_id = 'z'")
    assert reconcile(lab.context, ground.compiled, REPAIR).verdict == "EQUAL"


def test_an_explanation_lists_each_event_once(ground: Archived) -> None:
    ground.append(0, [Click("x", 0), Click("x", 1), Click("y", 2)])
    ground.stream()
    found = explain(ground.lab.context, ground.compiled, {"url": "a"})
    assert (found.verdict, [each.offset for each in found.events]) == (Verdict.EQUAL, [0, 2])


def _sides(click: DataFrame) -> DataFrame:
    return click.select("event_id", latest("event_time", url="url", spent="search_id").alias("clicked"))


SIDE = View(reads=("click",), transform=_sides, key=("event_id",), measures={"clicked": Latest()})
PAIRS = Join(
    sides={"clicks": SIDE},
    key=("url",),
    counts={"clicks": Match(("clicks",), key={"url": "clicks.url"})},
    dedupe="1 minute",
)


def test_a_side_of_a_join_gets_the_first_of_equal_events(lab: Lab, s3: Settings) -> None:
    """Without `dedupe`, the later event would replace the first one."""
    ground = new_archive(lab, s3, PAIRS)
    ground.append(0, [Click("x", 0, "a"), Click("x", 1, "b")])
    ground.stream()
    ground.append(0, [Click("x", 2, "c"), Click("y", 2, "c")])
    ground.stream()
    query = sql.SQL("SELECT url FROM {} ORDER BY url").format(sql.Identifier("views", ground.compiled.name))
    assert ground.lab.connection.execute(query).fetchall() == [("a",), ("c",)]
    assert compare(ground.rebuilder).verdict == "EQUAL"
    change(ground, "UPDATE {} SET log_time = log_time - interval '1 hour' WHERE event_id = 'y'")
    assert reconcile(lab.context, ground.compiled, REPAIR).verdict == "EQUAL"


def test_dedupe_is_declared_for_a_whole_join_and_needs_a_free_name(lab: Lab) -> None:
    with pytest.raises(BadDeclaration, match="declare it in the Join"):
        replace(PAIRS, sides={"clicks": replace(SIDE, dedupe="1 minute")})
    counts = {"clicks": Match(("seen",), key={"url": "seen.url"})}
    for dedupe in (PAIRS.dedupe, None):
        with pytest.raises(BadDeclaration, match="seen: Truelog uses this name itself"):
            lab.compiled("taken", replace(PAIRS, sides={"seen": SIDE}, counts=counts, dedupe=dedupe))
    with pytest.raises(BadDeclaration, match="not a duration"):
        replace(ONCE, dedupe="an hour")
