"""Tests of what the pages read from the database, without Airflow or a browser."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.builders.comparisons import a_reconciliation
from tests.pages.plausible import HOSTILE, MADE
from truelog.lag import freshness_series
from truelog.lag import report as lag_report
from truelog.lag import series as lag_series
from truelog.lag.time_steps import TimeRange
from truelog.lag.verdict import LagVerdict
from truelog.quality import quality_history
from truelog.reconcile import reconcile_history
from truelog.reconcile.reconcile_history import HistoryQuery, Reconciliation
from truelog.reports import streams as stream_report
from truelog.reports import summary, timeline
from truelog.reports import view as view_report
from truelog.reports.summary import PlatformState, PlatformSummary
from truelog.storage import audit_trail, db_snapshot, exact_json
from truelog.storage.database import Connection, connect, read_value
from truelog.streaming import batch_metrics
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import Settings

ROWS = 300 + len(HOSTILE)


@pytest.fixture
def snapshot(filled: Settings) -> Iterator[Connection]:
    with db_snapshot.read_snapshot(filled) as connection:
        yield connection


def test_lag_over_time_has_a_peak_and_a_gap(snapshot: Connection) -> None:
    """Six hours in steps of two minutes; the poller measured nothing for twenty minutes."""
    course = lag_series.lag_timeline(snapshot, "page_audience", TimeRange(6 * 3600), least=120)
    assert course.step == 120
    assert [(each.topic, each.partition) for each in course.partitions] == [("page_view", p) for p in range(4)]
    events = course.partitions[0].course.events
    assert len(events) == len(course.at) == 181
    assert max(each or 0 for each in events) == 4_000
    gaps = [at for at, each in zip(course.at[1:-1], events[1:-1], strict=True) if each is None]
    assert 9 <= len(gaps) <= 11
    assert gaps == [gaps[0] + 120 * n for n in range(len(gaps))]
    courses = [each.course for each in course.partitions]
    by_step = list(zip(course.total.events, *(each.events for each in courses), strict=True))
    assert {(total is None, None in parts) for total, *parts in by_step} == {(True, True), (False, False)}
    assert all(total == sum(parts) for total, *parts in by_step if total is not None)
    latest = zip(course.total.seconds, *(each.seconds for each in courses), strict=True)
    assert all(total == max(parts) for total, *parts in latest if total is not None)


def test_the_freshness_of_readers_is_compared(snapshot: Connection) -> None:
    """The worst come first. One was behind for a while, and polls that saw nothing leave a gap."""
    known = ["page_views", "page_audience", "archive", "never_polled"]
    course = freshness_series.freshness_timeline(snapshot, [], TimeRange(6 * 3600), 60, known)
    assert sorted(course.readers) == ["archive", "page_audience", "page_views"]
    assert (course.step, len(course.at)) == (180, 121)
    by = {each.reader: each.seconds for each in course.series}
    assert max(each or 0 for each in by["page_audience"]) > 70
    assert max(each or 0 for each in by["page_views"]) == 21 / 50
    assert 6 <= by["page_views"][1:-1].count(None) <= 7
    one = freshness_series.freshness_timeline(snapshot, ["archive", "no"], TimeRange(6 * 3600), 60, known)
    assert [each.reader for each in one.series] == ["archive"]


def test_throughput_is_the_growth_of_positions_and_of_the_log(snapshot: Connection) -> None:
    """300 records arrive per minute in each partition, and the archive reads them all."""
    course = lag_series.lag_timeline(snapshot, "archive", TimeRange(3600), least=60)
    assert [each for each in course.total.rate_in if each]
    for each in course.partitions:
        pairs = zip(each.course.rate_in, each.course.rate_out, strict=True)
        rates = [(arrived, read) for arrived, read in pairs if arrived and read]
        assert len(rates) > 50
        assert {round(arrived) for arrived, _ in rates} <= {5, 10, 0}
        assert [arrived for arrived, _ in rates] == pytest.approx([read for _, read in rates])


def test_the_timeline_has_operations_alerts_silences_and_wrong_comparisons(snapshot: Connection) -> None:
    found = timeline.occurrences(snapshot, timedelta(hours=24))
    assert [each.begins for each in found] == sorted((each.begins for each in found), reverse=True)
    kinds = {each.kind for each in found}
    assert {"launch", "release", "repair", "backfill", "alert", "silence", "different", "unknown"} <= kinds
    open_alerts = {each.subject for each in found if each.kind == "alert" and each.ends is None}
    assert {"stalled/page_audience", "lagging/stream"} <= open_alerts
    [different] = [each for each in found if each.kind == "different"]
    assert (different.subject, different.begins) == ("page_views", different.ends)
    assert {each.kind for each in timeline.occurrences(snapshot, timedelta(minutes=90))}.isdisjoint({"different"})
    resolved = [
        each
        for each in timeline.occurrences(snapshot, timedelta(hours=31))
        if each.subject.startswith("application_down")
    ]
    assert [each.by for each in resolved] == ["admin"]


def test_a_limit_counts_only_the_chosen_kinds(snapshot: Connection) -> None:
    kinds, span = ("release", "repair"), timedelta(hours=24)
    chosen = [each for each in timeline.occurrences(snapshot, span) if each.kind in kinds]
    assert timeline.occurrences(snapshot, span, kinds=kinds, limit=len(chosen)) == chosen
    assert timeline.occurrences(snapshot, span, limit=len(chosen)) != chosen


def test_a_time_range_may_end_in_the_past(snapshot: Connection) -> None:
    """Every course and list of an earlier range has what the same times have in a range that ends now."""
    now = read_value(snapshot, "SELECT now()")
    until = now - timedelta(hours=3)
    whole = lag_series.lag_timeline(snapshot, "archive", TimeRange(6 * 3600), least=60)
    early = lag_series.lag_timeline(snapshot, "archive", TimeRange(3 * 3600, until), least=90)
    assert early.step == whole.step == 90
    by_time = dict(zip(whole.at, whole.total.events, strict=True))
    assert [by_time[at] for at in early.at[1:-1]] == list(early.total.events[1:-1])
    assert len([each for each in early.total.events if each is not None]) > 100
    assert early.at[-1] <= until.timestamp() < early.at[-1] + early.step
    known = ["page_views", "archive"]
    found = freshness_series.freshness_timeline(snapshot, [], TimeRange(3 * 3600, until), 60, known)
    assert sorted(found.readers) == sorted(known)
    assert found.at[-1] <= until.timestamp()
    every = timeline.occurrences(snapshot, timedelta(hours=31))
    earlier = timeline.occurrences(snapshot, timedelta(hours=28), until)
    assert 0 < len(earlier) < len(every)
    assert earlier == [each for each in every if each.begins <= until]


def test_operations_are_found_by_kind_target_and_time(snapshot: Connection) -> None:
    def found(*conditions: object) -> list[str]:
        return [each.kind for each in audit_trail.latest_operations(snapshot, 100, *conditions)]  # type: ignore[arg-type]

    assert found("repair", "PAGE_V") == ["repair"]
    assert found("repair", "no such view") == []
    assert set(found(None, "partials", timedelta(hours=1))) == {"backfill"}
    assert found(None, "", timedelta()) == []


def test_streams_are_reported_with_all_their_readers(filled: Settings) -> None:
    archive, stream = stream_report.application_reports(filled)
    assert (archive.status.epoch, stream.status.epoch) == (3, 17)
    assert archive.launch
    assert (archive.launch.reason, archive.launch.within_a_day) == ("down", 1)
    assert (len(archive.batches), len(stream.batches)) == (0, 12)
    assert stream.batches[0].steps["addBatch"] == 180 + 69
    readers = {each.reader: each for each in stream.readers}
    assert set(readers) == {*MADE, "broken", "request_rates"}
    assert (readers["page_views"].lag_events, readers["page_views"].freshness) == (0 + 7 + 14 + 21, 21 / 50)
    assert (readers["page_views"].version, readers["page_views"].partitions) == (1, 4)
    assert (readers["page_audience"].state, readers["page_audience"].version) == ("STALLED", 1)
    unmade = readers["request_rates"]
    assert (unmade.version, unmade.partitions) == (None, 0)
    assert (unmade.verdict, unmade.lag_events, unmade.freshness) == (LagVerdict.UNKNOWN, None, None)


def test_only_the_latest_batches_are_stored(snapshot: Connection) -> None:
    assert len(batch_metrics.latest_steps(snapshot, "stream", 1000)) == 60


def test_the_lag_is_unknown_if_one_partition_is_unknown(filled: Settings) -> None:
    seen = lag_report.lag_rows_now(filled, ["page_views"])
    blind = [*seen, replace(seen[0], lag_events=None, lag_seconds=None)]
    assert (lag_report.lag_events(blind), lag_report.freshness(blind)) == (None, None)


def test_the_card_shows_the_worst_view(filled: Settings) -> None:
    found = summary.load_summary(filled)
    assert (found.freshness.value, found.lag.value) == (21 / 50, 42)
    assert (found.proof.view, found.proof.value) == ("page_audience", None)  # no certificate: worse than any age


def stated(found: PlatformSummary) -> dict[str, PlatformState]:
    return {each.text: each.state for each in found.problems}


def test_the_summary_lists_current_problems(filled: Settings) -> None:
    found = summary.load_summary(filled)
    assert found.state is PlatformState.CRITICAL
    assert (found.alerts.count, found.alerts.severity) == (3, "critical")
    assert str(found.alerts.worst).startswith("click_through ")
    assert (found.views, found.unmade) == (len(MADE) + 2, 2)
    expected = {
        "alerts are not checked: applications": PlatformState.UNKNOWN,
        "page_audience is stalled": PlatformState.CRITICAL,
        "broken cannot be loaded": PlatformState.CRITICAL,
        "request_rates has no table yet": PlatformState.WARNING,
    }
    assert expected.items() <= stated(found).items()
    assert "archive is down" not in stated(found)


def test_a_stopped_archive_is_a_problem(filled: Settings, archive_down: None) -> None:
    assert stated(summary.load_summary(filled))["archive is down"] is PlatformState.CRITICAL


def test_an_application_that_never_ran_is_starting(filled: Settings) -> None:
    found = summary.load_summary(filled.model_copy(update={"applications": {"click_through": "second"}}))
    assert stated(found)["second is starting"] is PlatformState.WARNING


def test_a_view_stays_different_until_it_is_found_equal(filled: Settings) -> None:
    with connect(filled, autocommit=True) as connection:
        wrong = "click_through was last found DIFFERENT from its rebuild"
        before = "SELECT max(id) FROM truelog.reconciliation"
        [last] = connection.execute(before).fetchone() or (0,)
        try:
            for verdict, different in (("DIFFERENT", True), ("UNKNOWN", True), ("EQUAL", False)):
                a_reconciliation(connection, "click_through", verdict, different=1)
                assert (wrong in stated(summary.load_summary(filled))) == different
        finally:
            connection.execute("DELETE FROM truelog.reconciliation WHERE id > %s", (last,))


def test_old_lag_samples_are_not_shown_as_current(filled: Settings) -> None:
    found = summary.load_summary(filled.model_copy(update={"lag_poll_seconds": 0.1}))
    assert (found.freshness.value, found.lag.value) == (None, None)
    assert stated(found)[f"lag is unknown: archive, {', '.join(sorted(MADE))}"] is PlatformState.UNKNOWN


def test_an_alert_source_that_cannot_check_is_a_problem(filled: Settings) -> None:
    with connect(filled, autocommit=True) as connection:
        connection.execute("UPDATE truelog.alert_source SET blind = 'Kafka did not answer' WHERE source = 'lag'")
        try:
            assert (
                stated(summary.load_summary(filled))["alerts are not checked: applications, lag"]
                is PlatformState.UNKNOWN
            )
        finally:
            connection.execute("UPDATE truelog.alert_source SET blind = '' WHERE source = 'lag'")


def test_without_postgresql_the_summary_fails(filled: Settings) -> None:
    with pytest.raises(ServiceDown):
        summary.load_summary(filled.model_copy(update={"database_name": "none_of_this_name"}))


def test_the_catalogue_shows_declared_and_actual_state(filled: Settings) -> None:
    entries = {each.view: each for each in view_report.view_entries(filled)}
    assert "cannot be loaded: SyntaxError" in entries["broken"].broken
    assert (entries["request_rates"].declared, entries["request_rates"].table) == (1, None)
    views = entries["page_views"]
    assert views.reads == ("page_view",)
    assert views.relations == ["page_views", "page_views_busiest"]
    assert views.table
    assert (views.table.version, views.table.rows) == (1, ROWS)
    assert views.proof
    assert views.proof.verdict == "EQUAL"
    assert views.proof.equal_at == views.proof.certified_at == views.proof.at
    assert views.answer
    assert (views.answer.layer, views.answer.reason) == ("stream", "")


def test_views_and_readers_show_the_serving_layer(filled: Settings) -> None:
    [answer] = [each.answer for each in view_report.view_entries(filled) if each.view == "page_audience"]
    assert answer
    assert (answer.layer, answer.reason) == ("batch", "its stream is stalled")
    assert (answer.age or 0) >= 240
    [_, stream] = stream_report.application_reports(filled)
    [reader] = [each for each in stream.readers if each.reader == "page_audience"]
    assert reader.answer
    assert reader.answer.layer == answer.layer


def test_a_view_is_shown_with_its_columns_and_sources(filled: Settings) -> None:
    detail = view_report.view_detail(filled, "page_views")
    roles = {each.name: (each.role, each.type) for each in detail.columns}
    assert roles["host"] == ("key", "text")
    assert roles["views"] == ("Sum", "bigint")
    assert [(each.event, each.partitions, each.retention) for each in detail.sources] == [("page_view", 4, "7 days")]
    assert (detail.readers[0].reader, detail.readers[0].answers) == ("shop", 1_204)
    [course] = detail.freshness.series
    assert course.reader == "page_views"
    assert any(each is not None for each in course.seconds)
    assert detail.events_per_second is not None
    unmade = view_report.view_detail(filled, "request_rates")
    assert (unmade.readers, unmade.events_per_second) == ([], None)
    assert {each.type for each in unmade.columns} == {None}
    assert view_report.view_relations(filled, "truelog.view") == []


def test_a_repair_belongs_to_the_comparison_that_checked_it(snapshot: Connection) -> None:
    history = reconcile_history.list_reconciliations(snapshot, HistoryQuery(view="page_views", limit=1000))
    assert len(history) == 50
    different = next(each for each in history if each.verdict == "DIFFERENT")
    found = reconcile_history.reconciliation_detail(snapshot, different.id)
    assert found
    assert (found.repairs, len(found.sample)) == ([], 3)
    assert [each.cause for each in found.sample] == [None, "wrong value by hand", None]
    assert [each["about"] for each in found.causes] == [HOSTILE[1]]
    assert found.columns[:2] == ["minute", "host"]
    assert list(reconcile_history.differing_rows(snapshot, found)) == found.sample

    repaired = reconcile_history.reconciliation_detail(snapshot, different.id + 1)
    assert repaired
    assert (repaired.reconciliation.repaired, repaired.reconciliation.judged) == (3, True)
    before = [each.before and each.before["page"] for each in repaired.repairs]
    after = [each.after and each.after["page"] for each in repaired.repairs]
    assert (sorted(map(str, before)), sorted(map(str, after))) == (
        sorted(["None", HOSTILE[4], HOSTILE[3]]),
        sorted(["None", "/lost", HOSTILE[3]]),
    )
    assert reconcile_history.reconciliation_detail(snapshot, 10_000) is None


def test_reconciliations_are_filtered_sorted_and_counted(snapshot: Connection) -> None:
    def found(**conditions: Any) -> list[Reconciliation]:
        query = HistoryQuery(**{"limit": 1000} | conditions)
        rows = reconcile_history.list_reconciliations(snapshot, query)
        assert len(rows) == reconcile_history.count_reconciliations(snapshot, query)
        return rows

    everything = found()
    assert [each.verdict for each in found(verdict="DIFFERENT")] == ["DIFFERENT"]
    middle = everything[len(everything) // 2].finished_at
    newer, older = found(since=middle), found(until=middle)
    assert newer + older == everything
    assert {each.view for each in found(text="PAGE_V")} == {"page_views"}
    assert {each.reason for each in found(text="1,204 events")} == {"the archive is 1,204 events behind"}
    by_repairs = found(order="repaired")
    assert [each.repaired for each in by_repairs] == sorted((each.repaired for each in everything), reverse=True)
    page = reconcile_history.list_reconciliations(snapshot, HistoryQuery(limit=10, skip=10))
    assert page == everything[10:20]
    with pytest.raises(BadInput, match="cannot be sorted by"):
        found(order="sample; --")


def test_log_days_are_shown_with_metrics_and_verdicts(snapshot: Connection) -> None:
    assert [(each.event, each.success) for each in quality_history.newest_days(snapshot)] == [
        ("dead_letter", None),
        ("page_view", False),
    ]
    newest, *earlier = quality_history.days(snapshot, "page_view", 5)
    assert len(earlier) == 4
    assert {each.judged.success for each in earlier} == {True}
    events = next(each for each in newest.figures if each.name == "events")
    assert (events.value, events.usual, events.least, events.most) == (90, 1_050, 525, 2_100)
    assert quality_history.latest_validation(snapshot, "scheduled__1", "page_view") == newest.judged.id
    assert quality_history.latest_validation(snapshot, "scheduled__1", "search") is None


def test_results_are_listed_by_type_and_day_and_ended_days_are_offered(snapshot: Connection) -> None:
    results = quality_history.results_by_day(snapshot, 3)
    assert len({each.day for each in results}) == 3
    newest, *_ = quality_history.newest_days(snapshot)
    assert newest in results
    assert quality_history.why_unchecked(snapshot, newest) == "not enough history: 0 preceding log days, 3 needed"
    ended = quality_history.ended_days(snapshot, 30)
    assert len(ended) == 27
    assert ended[0] < datetime.now(UTC) - timedelta(days=1) < ended[0] + timedelta(days=1)
    assert ended == sorted(ended, reverse=True)


def test_all_differing_rows_are_stored_until_the_next_difference(filled: Settings) -> None:
    with connect(filled) as connection:
        [newest, *_] = reconcile_history.list_reconciliations(connection, HistoryQuery(view="page_views", limit=1))
        connection.execute(
            "CREATE TABLE recon.page_views_v1_diff AS SELECT jsonb_build_array(n) AS _key_json, "
            "jsonb_build_object('views', n + 9007199254740992.01) AS _streamed, NULL::jsonb AS _rebuilt, "
            "NULL AS _cause, %s AS _reconciliation FROM generate_series(1, 1500) n",
            (newest.id,),
        )
        found = reconcile_history.reconciliation_detail(connection, newest.id)
        assert found
        rows = reconcile_history.differing_rows(connection, found)
        assert [exact_json.write(each.streamed) for each in rows] == [
            f'{{"views":{n + 2**53}.01}}' for n in range(1, 1501)
        ]
        connection.rollback()
