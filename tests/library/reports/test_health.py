"""Status and pages show the same lag, taken from the lag service's newest samples, and the samples' age."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.views import a_view, forget, forget_samples
from tests.library.judged import judged
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, STREAM
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.lag.verdict import Sample
from truelog.reports import health
from truelog.reports import streams as stream_report
from truelog.reports.health import ApplicationHealth, ViewHealth
from truelog.reports.streams import ReaderReport
from truelog.storage.database import connect
from truelog.support.settings import Settings

MADE, UNMADE = "health_made", "health_unmade"


@pytest.fixture
def sampled(postgresql: Settings, tmp_path: Path) -> Iterator[Settings]:
    """Two views. Only one of them has a table, and neither has a lag sample yet."""
    for name in (MADE, UNMADE):
        (tmp_path / f"{name}.py").touch()
    with connect(postgresql) as connection:
        forget_samples(connection)
        a_view(connection, MADE)
    yield postgresql.model_copy(update={"views_folder": tmp_path, "s3_endpoint": "http://127.0.0.1:1"})
    with connect(postgresql) as connection:
        forget_samples(connection)
        forget(connection, MADE)


def sample(settings: Settings, age: float, *unseen: int) -> None:
    """Store a poll of this age: partition 0 is 4 records behind, partition 1 is 6, and `unseen` has no leader."""
    at = time.time() - age
    partitions = {
        ("page_view", p): Sample(at, position=10, end=end, seconds=seconds, blind="no leader" if p in unseen else "")
        for p, end, seconds in ((0, 14, 2.5), (1, 16, 1.5))
    }
    with connect(settings) as connection:
        readings = [ReaderPoll(reader, 0 if reader == ARCHIVE else 1, at, at, partitions) for reader in (MADE, ARCHIVE)]
        lag_history.append(connection, judged(settings, readings), seconds=3600)


def status(settings: Settings) -> tuple[ApplicationHealth, ApplicationHealth, ViewHealth, ViewHealth]:
    archive, stream = health.application_health(settings)
    made, unmade = stream.views
    return archive, stream, made, unmade


def page(settings: Settings) -> ReaderReport:
    _, stream = stream_report.application_reports(settings)
    return next(reader for reader in stream.readers if reader.reader == MADE)


def test_lag_is_that_of_the_newest_sample_and_its_age_is_shown(sampled: Settings) -> None:
    sample(sampled, age=20)
    sample(sampled, age=5)
    archive, stream, made, unmade = status(sampled)
    for each in (archive, stream, made):
        assert (each.lag_events, each.lag_seconds) == (10, 2.5)
        assert each.lag_age is not None
        assert 5 <= each.lag_age < 15
    assert (archive.reason, stream.reason) == ("", "")
    assert (unmade.lag_events, unmade.lag_age, unmade.reason) == (None, None, "no application has run it yet")
    shown = page(sampled)
    assert (shown.lag_events, shown.freshness, shown.lag_unknown) == (10, 2.5, "")
    assert shown.lag_age is not None
    assert 5 <= shown.lag_age < 15


def test_an_old_sample_is_not_shown_as_if_it_were_current(sampled: Settings) -> None:
    sample(sampled, age=90)
    archive, stream, made, _ = status(sampled)
    for each in (archive, stream, made):
        assert (each.lag_events, each.lag_seconds) == (None, None)
        assert each.lag_age is not None
        assert each.lag_age >= 90
    old = "the lag service's last sample is "  # and then its age, which grows between the two questions
    assert stream.reason.startswith(old)
    shown = page(sampled)
    assert (shown.lag_events, shown.freshness, (shown.lag_unknown or "")[: len(old)]) == (None, None, old)


def test_without_any_sample_the_lag_of_views_that_have_a_table_is_unknown(sampled: Settings) -> None:
    archive, stream, made, unmade = status(sampled)
    assert (archive.reason, stream.reason) == ("the lag service has no sample",) * 2
    assert (made.lag_events, made.lag_age, unmade.lag_events) == (None, None, None)
    assert page(sampled).lag_unknown == "the lag service has no sample"


def test_the_lag_of_a_reader_is_unknown_where_one_partition_was_not_seen(sampled: Settings) -> None:
    sample(sampled, 1, 1)
    _, stream, made, _ = status(sampled)
    assert (stream.lag_events, stream.lag_seconds, stream.reason) == (None, None, "no leader")
    assert (made.lag_events, made.lag_seconds) == (None, None)


def test_a_view_that_runs_says_why_its_lag_is_unknown(sampled: Settings) -> None:
    with connect(sampled) as connection:
        alive = "SELECT pg_try_advisory_lock(hashtextextended('stream', 0))"
        application.declare(connection, [STREAM])
        view_status.record_state(connection, STREAM, MADE, 1)
        connection.execute(alive)
        connection.commit()
        _, _, made, _ = status(sampled)
        assert (made.state, made.reason) == ("UP_TO_DATE", "lag unknown: the lag service has no sample")
