"""Batch-only views from a real archive: their builds, what readers see, and how they are compared and repaired."""

from dataclasses import replace
from datetime import UTC, datetime, time
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import Archived
from tests.beds.lab import with_own
from tests.builders.erasures import an_erasure
from tests.builders.views import a_batch_refusal, a_view
from truelog import Join, Latest, Match, Totals, View, latest
from truelog.alerts.sources import omissions as alert_omissions
from truelog.batch import answer
from truelog.batch.rejudge import rebuild_under_reading
from truelog.control import application, view_tables
from truelog.erasure.erasure import Erasure
from truelog.erasure.subject import Subject
from truelog.history.explain import explain
from truelog.history.explanation import Verdict
from truelog.lag import poll as lag_poll
from truelog.lag import report as lag_report
from truelog.log.positions import Positions
from truelog.maintenance import superseded
from truelog.maintenance.superseded import Version
from truelog.reconcile import certificate_store, reconcile_history
from truelog.reconcile.certificate_verifier import CertificateVerifier, VerificationVerdict
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.reports import health, metrics, summary
from truelog.reports import streams as stream_report
from truelog.reports import view as view_report
from truelog.serving import batch_views, build_schedule, fallback, fallback_policy
from truelog.serving import status as serving_status
from truelog.serving.batch_views import build_batch_view
from truelog.serving.status import BATCH, ServingStatus
from truelog.storage.database import read_value
from truelog.support.errors import ArchiveBehind, CodeChanged, PartitionsAdded, Stale
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView

FROM_RAW = ReconcileRequest(from_raw=True)


def _visits(click: DataFrame) -> DataFrame:
    """Who visited which page. A `search_id` of 0 takes a visit back."""
    last = latest("event_time", deleted=F.col("search_id") == "0")
    return click.select(F.split_part("url", F.lit(":"), F.lit(1)).alias("who"), "url", last.alias("last"))


TOGETHER = Join(
    sides={"visits": View(reads=("click",), transform=_visits, key=("who", "url"), measures={"last": Latest()})},
    totals={"people": Totals(key=("who",), counts={"pages": Match(("visits",), key={"who": "visits.who"})})},
    key=("who",),
    counts={
        "pairs": Match(
            ("visits", "others"),
            aliases={"others": "visits"},
            on=(("visits.who", "others.who"),),
            key={"who": "visits.who"},
        )
    },
    batch_only=True,
)


def three_clicks(ground: Archived) -> None:
    """An archive with clicks, and a batch-only view that was never built."""
    ground.click(0, [("ann:1", "1", 1), ("ann:2", "1", 2), ("bob:1", "1", 3)])


pytestmark = pytest.mark.ground(view=TOGETHER, filled=three_clicks)


def read(ground: Archived, relation: str = "") -> dict[str, int]:
    """The rows that readers see."""
    name = sql.Identifier("views", f"{ground.compiled.name}{relation}")
    return {str(w): int(str(n)) for w, n in ground.lab.connection.execute(sql.SQL("SELECT * FROM {}").format(name))}


def status(ground: Archived) -> ServingStatus:
    return serving_status.serving_statuses(ground.lab.connection)[ground.compiled.name]


def spoil(ground: Archived) -> None:
    batch = sql.Identifier("batch", ground.compiled.own.name)
    assert ground.lab.connection.execute(sql.SQL("UPDATE {} SET pairs = 7 WHERE who = 'ann'").format(batch)).rowcount


def build(ground: Archived) -> Positions | None:
    return build_batch_view(ground.rebuilder)


def test_readers_see_the_rows_of_the_last_build_and_when_it_was(ground: Archived) -> None:
    assert (read(ground), status(ground).layer, status(ground).age) == ({}, BATCH, None)
    assert status(ground).reason == "batch-only and not built yet"

    built = build(ground)
    assert built == ground.positions.only(["click"])
    assert (read(ground), read(ground, "_people")) == ({"ann": 4, "bob": 1}, {"ann": 2, "bob": 1})
    assert status(ground).layer == BATCH
    made_at = "SELECT made_at FROM truelog.batch_answer WHERE view = %s"
    built_at = read_value(ground.lab.connection, made_at, (ground.compiled.name,)).astimezone(UTC)
    assert status(ground).reason.startswith(f"batch-only, built at {built_at:%Y-%m-%d %H:%M:%S} UTC")
    ground.click(1, [("bob:2", "1", 4), ("ann:2", "0", 5)])
    assert read(ground) == {"ann": 4, "bob": 1}
    assert fallback_policy.drop_unneeded_fallbacks(ground.lab.connection) == []

    assert build(ground) == ground.positions.only(["click"])
    assert (read(ground), read(ground, "_people")) == ({"ann": 1, "bob": 4}, {"ann": 1, "bob": 2})


def test_a_row_is_explained_at_the_positions_of_its_build(ground: Archived) -> None:
    """A later click is not part of the row until the next build."""
    for pairs in ([1, 4], [1, 4, 9]):
        build(ground)
        ground.click(1, [("ann:3", "1", 4)])
        found = explain(ground.lab.context, ground.compiled, {"who": "ann"})
        assert (found.verdict, [row["pairs"] for each in found.events for row in each.rows]) == (Verdict.EQUAL, pairs)


def test_a_build_without_new_records_only_says_that_the_rows_are_current(ground: Archived) -> None:
    build(ground)
    old = "UPDATE truelog.batch_answer SET made_at = made_at - interval '1 day' WHERE view = %s"
    ground.lab.connection.execute(old, (ground.compiled.name,))
    spoil(ground)
    assert build(ground) is None
    assert read(ground)["ann"] == 7
    [(age,)] = ground.lab.connection.execute(
        "SELECT age FROM truelog.batch_only WHERE view = %s", (ground.compiled.name,)
    ).fetchall()
    assert float(str(age)) < 60


def test_a_build_that_began_before_an_erasure_is_not_shown(ground: Archived) -> None:
    build(ground)
    ground.click(0, [("eve:1", "1", 9)])
    subjects = frozenset({Subject.of(b"secret", "visitor_id", "eve")})
    erasure = Erasure(UUID(int=1), subjects, {"click": ("visitor_id",)}, ground.positions.only(["click"]))
    looks = iter((None, partial(an_erasure, ground.lab.connection, erasure)))

    def improves(_: Positions) -> bool:
        if rewrite := next(looks):
            rewrite()
        return True

    with pytest.raises(Stale, match="read before erasure"):
        answer.build_answer(ground.rebuilder, improves)
    assert read(ground) == {"ann": 4, "bob": 1}
    build(ground)
    assert read(ground) == {"ann": 4, "bob": 1, "eve": 1}


def test_rows_are_compared_at_the_positions_of_their_build(ground: Archived) -> None:
    """The archive contains later records. The certificate is verified from the archive alone."""
    build(ground)
    ground.click(0, [("eve:1", "1", 9)])
    found = reconcile(ground.lab.context, ground.compiled, FROM_RAW)
    assert (found.verdict, found.rows, found.positions.at("click", 0)) == ("EQUAL", 2, 3)
    assert found.certificate is not None
    made = certificate_store.find_certificate(ground.lab.settings, found.certificate)
    verifier = CertificateVerifier(ground.lab.spark, ground.lab.settings, ground.lab.types, ground.compiled)
    assert verifier.verify(made).answer == VerificationVerdict.EQUAL
    assert made.sides is not None
    assert set(made.sides) == {"visits", "people"}


def test_wrong_rows_are_found_and_the_view_is_built_again(ground: Archived) -> None:
    build(ground)
    spoil(ground)
    found = reconcile(ground.lab.context, ground.compiled, FROM_RAW)
    assert (found.verdict, found.missing, found.extra, found.different) == ("DIFFERENT", 0, 0, 1)
    [row] = found.sample
    assert (row["streamed"]["pairs"], row["rebuilt"]["pairs"]) == (7, 4)
    assert f"rows of the batch layer differ from the rebuild (reconciliation {found.id})" in status(ground).line

    ground.click(0, [("eve:1", "1", 9)])
    repaired = reconcile(ground.lab.context, ground.compiled, ReconcileRequest(repair=True))
    assert (repaired.verdict, repaired.repaired, repaired.rows) == ("EQUAL", 1, 3)
    assert read(ground) == {"ann": 4, "bob": 1, "eve": 1}
    assert repaired.id is not None
    detail = reconcile_history.reconciliation_detail(ground.lab.connection, repaired.id)
    assert detail is not None
    assert [((r.before or {})["pairs"], (r.after or {})["pairs"]) for r in detail.repairs] == [(7, 4)]


@pytest.mark.nightly
def test_the_next_build_replaces_wrong_rows_even_if_the_archive_has_nothing_new(ground: Archived) -> None:
    build(ground)
    spoil(ground)
    reconcile(ground.lab.context, ground.compiled)
    assert build(ground) is not None
    assert (read(ground)["ann"], "differ" in status(ground).reason) == (4, False)


@pytest.mark.nightly
def test_an_archive_that_has_gone_back_does_not_take_readers_back(ground: Archived) -> None:
    build(ground)
    ahead = "UPDATE truelog.batch_position SET next_offset = next_offset + 1 WHERE view = %s"
    ground.lab.connection.execute(ahead, (ground.compiled.name,))
    with pytest.raises(ArchiveBehind, match="restored from a backup"):
        build(ground)


@pytest.mark.nightly
def test_rows_of_another_reading_are_built_again(ground: Archived) -> None:
    build(ground)
    spoil(ground)
    other = "UPDATE truelog.batch_position SET reading = 1 WHERE view = %s"
    ground.lab.connection.execute(other, (ground.compiled.name,))
    assert reconcile(ground.lab.context, ground.compiled).verdict == "UNKNOWN"
    assert build(ground) is not None
    assert read(ground)["ann"] == 4
    spoil(ground)
    rebuild_under_reading(ground.rebuilder)
    assert read(ground)["ann"] == 4


def test_a_new_version_is_shown_when_it_is_built(ground: Archived) -> None:
    build(ground)
    connection, name = ground.lab.connection, ground.compiled.name
    changed = ground.lab.compiled(name, replace(TOGETHER, version=2, key=("who", "url"), counts=_per_page()))
    newer = replace(ground, compiled=changed)
    table.deploy_table(connection, changed)
    assert (read(ground), status(ground).layer) == ({"ann": 4, "bob": 1}, BATCH)
    assert superseded.Version(name, 1) not in superseded._superseded(connection, 0.0)

    assert build(newer) is not None
    rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("views", name))).fetchall()
    assert len(rows) == 3
    assert fallback_policy.drop_unneeded_fallbacks(connection) == [name]
    assert superseded._superseded(connection, 0.0) == [Version(name, 1)]
    connection.execute("DELETE FROM truelog.view WHERE (view, version) = (%s, 1)", (name,))


def _per_page() -> dict[str, Match]:
    return {"pages": Match(("visits",), key={"who": "visits.who", "url": "visits.url"})}


def test_changed_code_under_the_same_version_is_refused(ground: Archived) -> None:
    build(ground)
    streamed: CompiledView = ground.lab.compiled(ground.compiled.name, replace(TOGETHER, batch_only=False))
    with pytest.raises(CodeChanged):
        build_batch_view(replace(ground, compiled=streamed).rebuilder)


def test_a_batch_only_view_has_no_lag_and_no_application(ground: Archived, tmp_path: Path) -> None:
    name, connection = ground.compiled.name, ground.lab.connection
    (tmp_path / f"{name}.py").write_text("broken")
    settings = ground.lab.settings.model_copy(update={"views_folder": tmp_path})
    assert view_tables.streamed_views(settings, connection) == []
    assert lag_poll.polled_views(settings) == {}
    assert [row.reader for row in lag_report.rows(settings, connection)] == ["archive"]
    assert [each.views for each in health.application_health(settings) if each.application == "stream"] == [[]]
    [entry] = view_report.view_entries(settings)
    assert (entry.batch_only, entry.application, entry.state, entry.since) == (True, "", "BATCH_ONLY", None)
    assert entry.reason.startswith("the next build begins at ")

    assert [each.readers for each in stream_report.application_reports(settings) if each.readers][1:] == []
    shown = summary.load_summary(settings)
    assert (shown.views, shown.unmade, shown.lag.view, shown.freshness.view) == (1, 0, None, None)

    build(ground)
    [entry] = view_report.view_entries(settings)
    assert entry.since is not None
    assert view_report.view_detail(settings, name).positions == ground.positions.only(["click"]).plain()
    assert f'truelog_build_age_seconds{{view="{name}"}}' in metrics.format_families(settings, connection)
    assert batch_views._batch_only_views(settings) == [name]  # although its file is broken
    assert fallback_policy.views_due(settings) == []


_FILE = """
from truelog import Sum, View

VIEW = View(
    reads=("click",),
    transform=lambda click: click,
    key=("url",),
    measures={"clicks": Sum()},
    batch_only=True,
    version=%d,
)
"""


def test_the_first_build_is_due_as_soon_as_the_archive_has_events(ground: Archived, tmp_path: Path) -> None:
    name, connection = ground.compiled.name, ground.lab.connection
    settings = ground.lab.settings.model_copy(update={"views_folder": tmp_path})
    for view in (name, without := f"{name}_without"):
        (tmp_path / f"{view}.py").write_text(_FILE % 1)
    a_view(connection, without, reads=["nothing"], batch_only=True)  # the archive has no event that it reads
    assert build_schedule.first_builds_due(settings) == [name]

    a_batch_refusal(connection, name, "its code changed", files=application.source_digest(settings))
    assert build_schedule.first_builds_due(settings) == []
    (tmp_path / f"{name}.py").write_text(_FILE % 1 + "# repaired")
    assert build_schedule.first_builds_due(settings) == [name]
    (tmp_path / f"{name}.py").write_text(_FILE % 2)
    assert build_schedule.first_builds_due(settings) == []  # the file declares another version, which has no table yet
    (tmp_path / f"{name}.py").write_text(_FILE % 1)

    assert fallback._build(ground.rebuilder) == ground.positions.only(["click"])  # as in the DAG `first_builds`
    assert read(ground) == {"ann": 4, "bob": 1}
    assert build_schedule.first_builds_due(settings) == []
    ground.click(0, [("eve:1", "1", 4)])
    assert build_schedule.first_builds_due(settings) == []  # later events wait for the daily build


def test_an_alert_says_that_a_view_was_not_built(ground: Archived, tmp_path: Path) -> None:
    name, connection = ground.compiled.name, ground.lab.connection
    (tmp_path / f"{name}.py").write_text("")
    settings = ground.lab.settings.model_copy(update={"views_folder": tmp_path, "alert_unbuilt_seconds": 3600.0})
    assert alert_omissions.observe(settings).findings == ()
    connection.execute("UPDATE truelog.view SET made_at = now() - interval '2 hours' WHERE view = %s", (name,))
    [never] = alert_omissions.observe(settings).findings
    assert (never.key, never.cause) == (f"build_overdue/{name}", "created 2 h ago and never built")
    build(ground)
    assert alert_omissions.observe(settings).findings == ()
    connection.execute("UPDATE truelog.batch_answer SET made_at = now() - interval '3 hours' WHERE view = %s", (name,))
    a_batch_refusal(connection, name, "its code changed")
    [old] = alert_omissions.observe(settings).findings
    assert old.cause == "its last build ended 3 h ago; it cannot be built: its code changed"
    assert "it cannot be rebuilt: its code changed" in status(ground).reason
    fallback_policy.views_due(settings)
    assert alert_omissions.observe(settings).findings == (old,)  # the refusal stays
    connection.execute("DELETE FROM truelog.batch_refusal WHERE view = %s", (name,))


@pytest.mark.parametrize(
    ("now", "expected"),
    [("02:29:59", "2026-03-01 02:30"), ("02:30:00", "2026-03-02 02:30"), ("23:00:00", "2026-03-02 02:30")],
)
def test_the_next_build_is_at_the_time_in_the_settings(settings: Settings, now: str, expected: str) -> None:
    given = settings.model_copy(update={"batch_views_at": time(2, 30)})
    assert build_schedule.cron(given) == "30 2 * * *"
    following = build_schedule.next_build(given, datetime.fromisoformat(f"2026-03-01T{now}Z"))
    assert f"{following:%Y-%m-%d %H:%M}" == expected


def test_a_view_that_needs_order_is_not_built_from_a_topic_with_more_partitions(ground: Archived) -> None:
    build(ground)
    ordered = replace(ground.rebuilder, compiled=with_own(ground.compiled, reads_offsets=True))
    build(ground)
    ground.ends["click"][2] = 0
    ground.click(2, [("eve:1", "1", 4)])
    with pytest.raises(PartitionsAdded):
        build_batch_view(ordered)
    assert read(ground) == {"ann": 4, "bob": 1}
