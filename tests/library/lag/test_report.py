"""The lag history in PostgreSQL, `truelog lag` and the metrics."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.builders.applications import a_launch, a_lease
from tests.builders.comparisons import a_certificate, a_reconciliation
from tests.builders.log import late_records
from tests.builders.rows import before_now
from tests.builders.views import a_lag_sample, a_tally, a_view, an_exclusion, forget_samples
from tests.command import answer, truelog
from tests.library.judged import judged
from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.lag import history as lag_history
from truelog.lag import limits as lag_limits
from truelog.lag import report as lag_report
from truelog.lag.history import ReaderPoll
from truelog.lag.verdict import Sample
from truelog.lag.window import LagWindow
from truelog.reports import metrics
from truelog.storage.database import Connection, connect
from truelog.streaming import batch_metrics
from truelog.support.settings import Settings

DAY = 86_400.0
PLACE = ("page_view", 0)
FINE, FALLING, UNSEEN = "fine", "falling", "unseen"


def reading(
    reader: str, at: float, version: int = 1, batch_at: float | None = None, **values: float | str | None
) -> ReaderPoll:
    """A reader of two partitions: a hundred records behind in one, and with the given values in the other."""
    batch_at = batch_at or at - 1
    usual = Sample(at, position=900, earliest=0, end=1000, seconds=2.5, batch_at=batch_at, retention=7 * DAY)
    samples = {("page_view", 1): usual, PLACE: replace(usual, **values)}  # type: ignore[arg-type]
    return ReaderPoll(reader, version, at, batch_at, samples)


@pytest.fixture
def sampled(postgresql: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A database with fresh samples of two views and the archive; a third view has no table yet."""
    for name in (FINE, FALLING, UNSEEN):
        (tmp_path / f"{name}.py").touch()
    now = time.time()
    dead = ReaderPoll(ARCHIVE, 0, now, None, {("dead_letter", p): Sample(now, 5, 0, 5) for p in (0, 1)})
    with connect(postgresql) as connection:
        readings = [reading(FINE, now), reading(FALLING, now, position=10, seconds=7 * DAY - 60), dead]
        lag_history.append(connection, judged(postgresql, readings), seconds=3600)
    yield postgresql.model_copy(update={"views_folder": tmp_path})
    with connect(postgresql) as connection:
        forget_samples(connection)


def environment(sampled: Settings) -> dict[str, str]:
    """The command's environment, with the folder that contains these views."""
    return {"TRUELOG_VIEWS_FOLDER": str(sampled.views_folder)}


def test_stored_readings_are_read_back(sampled: Settings) -> None:
    now = time.time()
    blind = reading(FINE, now, blind="no topic", retention=None, topic_id="an id")
    with connect(sampled) as connection:
        lag_history.append(connection, [blind], seconds=3600)
        found = lag_history.since(connection, now - 60)[FINE]
    assert [round(each.at - now) for each in found] == [0, 0]
    assert found[-1].samples == {
        place: replace(sample, at=found[-1].at, batch_at=found[-1].batch_at) for place, sample in blind.samples.items()
    }
    assert abs(found[-1].at - now) < 0.001


def test_a_new_version_starts_a_new_history_and_old_readings_are_deleted(sampled: Settings) -> None:
    now = time.time()
    given = [reading(FINE, now - 7000), reading(FINE, now - 50, 2), reading(FINE, now - 60), reading(FINE, now + 1, 2)]
    with connect(sampled) as connection:
        lag_history.append(connection, given[:1], seconds=8000)
        assert len(lag_history.since(connection, 0)[FINE]) == 2
        assert lag_history.since(connection, 0, FINE) == {FINE: lag_history.since(connection, 0)[FINE]}
        lag_history.append(connection, given[1:], seconds=3600)
        found = lag_history.since(connection, 0)[FINE]
        rows = connection.execute("SELECT count(*) FROM truelog.lag_sample WHERE reader = %s", (FINE,)).fetchone()
    assert [(each.version, round(each.at - now)) for each in found] == [(2, 1)]
    assert rows == (4,)


def test_a_reading_from_the_future_is_ignored_and_deleted(sampled: Settings) -> None:
    """Such a reading exists if the clock was set back."""
    now = time.time()
    with connect(sampled) as connection:
        a_lag_sample(connection, FINE, at=before_now(timedelta(hours=-1)))
        assert [round(each.at - now) for each in lag_history.since(connection, now - 60)[FINE]] == [0]
        lag_history.append(connection, [], seconds=3600)
        rows = connection.execute("SELECT count(*) FROM truelog.lag_sample WHERE reader = %s", (FINE,)).fetchone()
    assert rows == (1,)


def test_an_old_sample_gives_its_time_but_no_numbers(sampled: Settings) -> None:
    """If one partition has no current sample, the reader has no freshness."""
    then = time.time() - 60
    with connect(sampled) as connection:
        forget_samples(connection)
        readings = [reading(FINE, then), reading(FALLING, then + 60, blind="no topic")]
        lag_history.append(connection, judged(sampled, readings), seconds=3600)
    rows = lag_report.lag_rows_now(sampled, [FINE, FALLING])
    assert [(row.reader, row.rule, row.lag_events, row.end) for row in rows] == [
        *((FINE, 1, None, None) for _ in (0, 1)),
        (FALLING, 1, None, None),
        (FALLING, 12, 100, 1000),
    ]
    assert all(row.sampled_at is not None for row in rows)
    text = metrics.scrape(sampled)
    place = 'application="stream",partition="1",reader="{}",topic="page_view"'
    assert f"truelog_lag_events{{{place.format('fine')}}}" not in text
    assert f"truelog_lag_sampled_timestamp_seconds{{{place.format('fine')}}}" in text
    assert "truelog_freshness_seconds{" not in text
    assert f"truelog_lag_events{{{place.format('falling')}}} 100" in text


def test_the_least_fresh_reader_is_an_unknown_one_or_else_the_latest(sampled: Settings) -> None:
    now = time.time()

    def least_fresh(*polls: ReaderPoll) -> str:
        with connect(sampled) as connection:
            forget_samples(connection)
            lag_history.append(connection, judged(sampled, polls), seconds=3600)
        return lag_report.least_fresh(lag_report.by_reader(lag_report.lag_rows_now(sampled, [UNSEEN, FINE, FALLING])))

    assert least_fresh(reading(FINE, now, seconds=3.0), reading(FALLING, now)) == FINE
    assert least_fresh(reading(FINE, now), reading(FALLING, now, seconds=3.0)) == FALLING
    assert least_fresh(reading(FINE, now, seconds=3.0), reading(FALLING, now, blind="no topic")) == FALLING


def test_only_the_archive_loses_what_the_log_drops(sampled: Settings) -> None:
    """Views read dropped records from the archive."""
    now = time.time()
    with connect(sampled) as connection:
        forget_samples(connection)
        readings = [reading(name, now, position=10, earliest=30) for name in (FINE, ARCHIVE)]
        lag_history.append(connection, judged(sampled, readings), seconds=3600)
    verdicts = {row.reader: (row.verdict, row.rule) for row in lag_report.lag_rows_now(sampled) if row.partition == 0}
    assert verdicts == {ARCHIVE: ("FALLING_OFF", 2), FINE: ("OK", 12)}


def test_long_limits_use_a_long_history(sampled: Settings) -> None:
    now = time.time()
    patient = sampled.model_copy(update={"archive_trigger_seconds": 600.0})
    with connect(sampled) as connection:
        forget_samples(connection)
        motionless = [reading(ARCHIVE, now - ago, batch_at=now - 1000, seconds=1000.0) for ago in range(890, -1, -10)]
        lag_history.append(connection, judged(patient, motionless), seconds=3600)
    assert lag_report.lag_rows_now(patient, [ARCHIVE])[0].verdict == "STOP"


def test_a_partition_missing_from_the_newest_poll_is_dropped(sampled: Settings) -> None:
    now = time.time()
    fewer = replace(reading(FINE, now), samples={PLACE: Sample(now)})
    [_, last] = judged(sampled, [reading(FINE, now - 10), fewer])
    assert last.assessments.keys() == {PLACE}


def test_a_window_continues_the_stored_history(sampled: Settings) -> None:
    """The verdict of a service that has just started is that of a service that has seen every poll."""
    now = time.time()
    polls = [reading(FINE, now - ago, seconds=1000.0, batch_at=now - 1000) for ago in range(600, -1, -10)]
    with connect(sampled) as connection:
        forget_samples(connection)
        lag_history.append(connection, polls[:-1], seconds=3600)
        continued = LagWindow.loaded(connection, sampled).judged(polls[-1])
    assert continued.assessments[PLACE].verdict == judged(sampled, polls)[-1].assessments[PLACE].verdict == "STOP"
    assert judged(sampled, polls[-1:])[0].assessments[PLACE].verdict == "UNKNOWN"


def test_a_sample_without_a_verdict_is_unknown(sampled: Settings) -> None:
    with connect(sampled) as connection:
        connection.execute("UPDATE truelog.lag_sample SET verdicts = NULL")
    rows = lag_report.lag_rows_now(sampled, [FINE])
    assert {(row.verdict, row.reason) for row in rows} == {
        ("UNKNOWN", "the lag service has not judged its last sample")
    }


def test_every_reader_has_its_rows(sampled: Settings) -> None:
    rows = {(row.reader, row.topic, row.partition): row for row in lag_report.lag_rows_now(sampled)}
    assert list(rows) == [
        *((ARCHIVE, "dead_letter", p) for p in (0, 1)),
        *((view, "page_view", p) for view in (FALLING, FINE) for p in (0, 1)),
        (UNSEEN, None, None),
    ]
    falling = rows[FALLING, "page_view", 0]
    assert (falling.verdict, falling.rule, falling.lag_events, falling.lag_seconds) == (
        "FALLING_OFF",
        4,
        990,
        7 * DAY - 60,
    )
    assert (rows[UNSEEN, None, None].verdict, rows[ARCHIVE, "dead_letter", 0].application) == ("UNKNOWN", ARCHIVE)


def test_the_limits_depend_on_the_reader(sampled: Settings) -> None:
    """Between two of its batches, the archive is always behind."""
    archive, view = lag_limits.limits(sampled, ARCHIVE), lag_limits.limits(sampled, FINE)
    assert archive.fine == sampled.archive_trigger_seconds + 10
    assert archive.late == sampled.archive_trigger_seconds + sampled.lag_late_seconds
    assert archive.still > view.still > sampled.silence_seconds


def test_the_exit_code_of_the_command_follows_the_verdicts(sampled: Settings) -> None:
    """0 if every verdict is OK, 1 if any is bad, otherwise 3 if any is UNKNOWN; 2 if the view does not exist."""
    rows = answer("lag", FINE, exit_code=0, **environment(sampled))["lag"]
    assert [(row["topic"], row["partition"], row["position"], row["end"], row["earliest"]) for row in rows] == [
        ("page_view", p, 900, 1000, 0) for p in (0, 1)
    ]
    assert {(row["lag_events"], row["lag_seconds"], row["verdict"]) for row in rows} == {(100, 2.5, "OK")}
    wrong = truelog("lag", ARCHIVE, FALLING, COLUMNS="80", **environment(sampled))
    assert wrong.returncode == 1, wrong.stderr
    lines = [line.split() for line in wrong.stdout.splitlines()]
    assert ["page_view", "0", "10", "990", "604,740", "FALLING_OFF"] in lines  # no number is truncated
    [reason] = [line for line in wrong.stdout.splitlines() if line.startswith("falling page_view 0")]
    assert reason.startswith("falling page_view 0: FALLING_OFF, the log will drop unread records in 60 s")
    totals = truelog("lag", COLUMNS="80", **environment(sampled))
    lines = [line.split() for line in totals.stdout.splitlines()]
    assert [line[1:2] + line[-1:] for line in lines if line[:1] == [FINE]] == [["200", "OK"]]  # both partitions
    assert not any(line[:1] == ["page_view"] for line in lines)
    by_partition = truelog("lag", "--partitions", COLUMNS="80", **environment(sampled)).stdout
    assert "page_view 0" in by_partition
    assert truelog("lag", FINE, UNSEEN, **environment(sampled)).returncode == 3
    rows = answer("lag", exit_code=1, **environment(sampled))["lag"]
    assert {row["verdict"] for row in rows} == {"OK", "FALLING_OFF", "UNKNOWN"}
    assert truelog("lag", "nothing", **environment(sampled)).returncode == 2


def plant(connection: Connection) -> None:
    """Rows behind the values of the metrics. The size of `falling` is unknown, because its table is not analysed."""
    for view, version, days, batch_only in (
        *(("fine", version, 0, False) for version in (1, 2)),
        ("falling", 1, 3, False),
        ("gone", 1, 0, False),
        ("built", 1, 2, True),
    ):
        a_view(connection, view, version, ago=timedelta(days=days), batch_only=batch_only)
    for version, offset in ((1, 1), (2, 1), (2, 2)):
        an_exclusion(connection, "fine", offset, version=version)
    connection.execute("CREATE TABLE state.falling_v1 AS SELECT 1")
    connection.execute("CREATE TABLE state.fine_v2 AS SELECT generate_series(1, 7)")
    connection.execute("ANALYZE state.fine_v2")
    _plant_application(connection, "planted")
    for version, verdict, days in ((2, "EQUAL", 9), (2, "EQUAL", 2), (2, "UNKNOWN", 1), (1, "EQUAL", 0)):
        compared = a_reconciliation(connection, "fine", verdict, ago=timedelta(days=days), version=version)
        if verdict == "EQUAL":
            a_certificate(connection, compared)
    a_reconciliation(connection, "gone", "DIFFERENT", ago=timedelta(days=1))
    a_tally(connection, "fine", 1, merges=90, rows=90, preparing=90, merging=90)
    a_tally(connection, "fine", 2, merges=4, rows=12, preparing=5, merging=3)


def _plant_application(connection: Connection, name: str) -> None:
    application.declare(connection, [name])
    a_lease(connection, name, batch=timedelta(seconds=90))
    for _ in range(2):
        a_launch(connection, name)
    now = datetime.now(UTC)
    for ago, steps in ((2, {"addBatch": 900_000}), (1, {"addBatch": 3_000, "triggerExecution": 4_000})):
        batch_metrics.record_steps(connection, name, (now - timedelta(seconds=ago)).isoformat(), steps)
    late_records(connection, name, 7)


# The planted durations and counts of batches and merges.
WORK = {
    'truelog_batch_step_seconds{application="planted",step="addBatch"}': 3,
    'truelog_batch_step_seconds{application="planted",step="triggerExecution"}': 4,
    'truelog_stragglers_total{topic="planted"}': 7,
    'truelog_merges_total{view="fine"}': 4,
    'truelog_merged_rows_total{view="fine"}': 12,
    'truelog_prepare_seconds_total{view="fine"}': 5,
    'truelog_merge_seconds_total{view="fine"}': 3,
}


def test_a_scrape_has_every_metric(sampled: Settings) -> None:
    """Each metric family has a point, and the scrape contains the planted values. The planted rows are rolled back."""
    assert sampled.views_folder
    (sampled.views_folder / "built.py").touch()
    with psycopg.connect(**sampled.database()) as connection:
        plant(connection)
        text = metrics.format_families(sampled, connection)
        connection.rollback()
    points = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert {point.partition("{")[0] for point in points} == set(metrics.FAMILIES)
    found = {point: round(float(value)) for point, value in points.items()}
    place = 'application="stream",partition="0",reader="falling",topic="page_view"'
    assert {
        f"truelog_lag_events{{{place}}}": 990,
        f'truelog_lag_verdict{{{place},verdict="FALLING_OFF"}}': 1,
        'truelog_lag_verdict{application="stream",reader="unseen",verdict="UNKNOWN"}': 1,
        'truelog_freshness_seconds{reader="archive"}': 0,
        "truelog_dead_letters_total": 10,
        'truelog_application_alive{application="planted"}': 0,
        'truelog_application_batch_age_seconds{application="planted"}': 90,
        'truelog_application_launches_total{application="planted"}': 2,
        'truelog_reconcile_verdict{verdict="UNKNOWN",view="fine"}': 1,
        'truelog_reconcile_age_seconds{view="fine"}': DAY,
        'truelog_reconcile_equal_age_seconds{view="fine"}': 2 * DAY,
        'truelog_reconcile_equal_age_seconds{view="falling"}': 3 * DAY,
        'truelog_certificates{view="fine"}': 2,
        'truelog_certificates{view="falling"}': 0,
        'truelog_certificate_age_seconds{view="fine"}': 2 * DAY,
        'truelog_excluded_records{view="fine"}': 2,
        'truelog_view_rows{view="fine"}': 7,
        'truelog_build_age_seconds{view="built"}': 2 * DAY,
    }.items() <= found.items()
    assert WORK.items() <= found.items()
    assert not [point for point in points if 'view="gone"' in point]
    without_value = {
        f'truelog_{name}{{view="falling"}}'
        for name in ("view_rows", "reconcile_age_seconds", "certificate_age_seconds")
    }
    assert not without_value & points.keys()
