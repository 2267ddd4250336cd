"""Tests of hourly cubes: figures of long ranges are those of the minutes, from fewer rows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from psycopg import sql

from pages.analytics import Form
from tests.builders.comparisons import a_reconciliation
from tests.builders.views import a_lag_sample, a_view, merged_to
from tests.chosen_views import copy_views
from tests.pages.plausible import at_version_1
from truelog.control import view_versions
from truelog.exports.query import Condition, Operator
from truelog.log.positions import Positions
from truelog.reports.cubes import analytics, cube
from truelog.reports.cubes.hourly import cube_to_read
from truelog.reports.cubes.question import Question
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

# Midnight is a multiple of any interval that the rows may seem to have. The next one is after all rows.
UNTIL = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
MONTH = Question(UNTIL - timedelta(days=30), UNTIL, by="host")
HOURLY = """
CREATE TABLE state.hourly_views_v1 AS SELECT date_trunc('hour', minute) AS hour, host, browser,
    sum(views)::bigint AS views, 0::bigint AS bytes, NULL::integer[] AS visitors
    FROM state.page_views_v1 GROUP BY 1, 2, 3;
CREATE VIEW views.hourly_views AS SELECT hour, host, browser, views, bytes, 0::bigint AS visitors
    FROM state.hourly_views_v1
"""


@pytest.fixture
def hourly(filled: Settings, tmp_path: Path) -> Iterator[tuple[Settings, Connection]]:
    """`hourly_views` with the rows of `page_views`, as fresh as they are, until the end of the test."""
    settings = filled.model_copy(update={"views_folder": copy_views(tmp_path, "page_views", "hourly_views")})
    at_version_1(tmp_path / "page_views.py")
    with connect(filled) as connection:
        connection.execute(HOURLY.encode())
        a_view(connection, "hourly_views")
        merged_to(connection, "hourly_views", Positions({"page_view": {0: 120_000}}, {"page_view": "id"}))
        for view in ("page_views", "hourly_views"):
            sampled(connection, view, seconds=0)
        yield settings, connection
        connection.rollback()


def sampled(connection: Connection, view: str, *, seconds: float) -> None:
    partitions = [{"topic": "page_view", "partition": 0, "seconds": seconds, "blind": ""}]
    a_lag_sample(connection, view, partitions, at=sql.SQL("clock_timestamp()"))


def test_a_long_range_is_read_from_the_hourly_cube(hourly: tuple[Settings, Connection]) -> None:
    """The figures are the same. Other ranges, and columns that it does not have, are read from the minutes."""
    settings, connection = hourly
    asked = cube.find_cube(settings, connection, "page_views")
    source = cube_to_read(settings, connection, asked, MONTH)
    assert (source.view, [each.name for each in source.figures]) == ("hourly_views", ["views"])
    hours, minutes = (analytics.analyse(connection, each, MONTH) for each in (source, asked))
    assert hours.state_rows < minutes.state_rows
    assert (hours.rows, hours.total, hours.course) == (minutes.rows, minutes.total, minutes.course)
    for question in (
        replace(MONTH, since=UNTIL - timedelta(days=7)),
        replace(MONTH, since=MONTH.since + timedelta(minutes=1)),
        replace(MONTH, until=UNTIL + timedelta(minutes=1)),
        replace(MONTH, by="page"),
        replace(MONTH, where=[Condition("page", Operator.EQUAL, "/")]),
    ):
        assert cube_to_read(settings, connection, asked, question) is asked
    for where in ([Condition("browser", Operator.EQUAL, "firefox")], [Condition("host", Operator.MISSING)]):
        filtered = replace(MONTH, by=None, where=where)
        found = [analytics.analyse(connection, each, filtered).total for each in (source, asked)]
        assert cube_to_read(settings, connection, asked, filtered).view == "hourly_views"
        assert found[0] == found[1]
    other = cube.find_cube(settings, connection, "hourly_views")
    assert cube_to_read(settings, connection, other, MONTH) is other
    long = Form(view="page_views", hours=24 * 30).question(1)
    assert (long.until.minute, long.until - long.since) == (0, timedelta(days=30))


def test_an_hourly_cube_that_lacks_events_or_is_wrong_is_not_read(hourly: tuple[Settings, Connection]) -> None:
    settings, connection = hourly
    asked = cube.find_cube(settings, connection, "page_views")

    def read() -> str:
        return cube_to_read(settings, connection, asked, MONTH).view

    assert read() == "hourly_views"
    sampled(connection, "hourly_views", seconds=120)
    assert read() == "page_views"
    sampled(connection, "hourly_views", seconds=10)
    assert read() == "hourly_views"
    a_reconciliation(connection, "hourly_views", "DIFFERENT", different=1)
    assert read() == "page_views"


@pytest.mark.parametrize("changed", ["page_views", "hourly_views"])
def test_versions_that_the_files_do_not_declare_are_not_taken_for_equal(
    hourly: tuple[Settings, Connection], changed: str
) -> None:
    settings, connection = hourly
    file = settings.views_folder / f"{changed}.py"
    view_versions.record_source(connection, changed, 1, file.read_text())
    file.write_text(file.read_text().replace("VIEW = View(", "VIEW = View(\n    version=3,"))
    asked = cube.find_cube(settings, connection, "page_views")
    assert asked.is_declared is (changed == "hourly_views")
    assert cube_to_read(settings, connection, asked, MONTH) is asked
