"""Tests of the figures of cubes: each figure equals the SQL of the view's measures. Without Airflow or a browser."""

import csv
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from psycopg import sql
from pydantic import create_model

from pages.analytics import Form
from runtime.airflow_client import Airflow
from tests.builders.views import a_batch_answer
from tests.chosen_views import copy_views
from tests.pages.audience import BEGIN, HOSTS, fill_audience
from tests.pages.fetch import fetch
from tests.pages.plausible import HOSTILE
from truelog.archive.schema import arrow_schema
from truelog.control import view_versions
from truelog.exports.query import Condition, Operator
from truelog.log.positions import Positions
from truelog.reports.cubes import analytics, cube, events
from truelog.reports.cubes.analytics import Analysis
from truelog.reports.cubes.events import ArchivedEvents, archived_events
from truelog.reports.cubes.question import Question
from truelog.reports.cubes.readable import readable_sql
from truelog.reports.cubes.statement import statement
from truelog.schema.event import Event, EventType, Topic
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadDeclaration, BadInput
from truelog.support.settings import Settings
from truelog.views.catalogue import load_view

HOUR = timedelta(hours=1)
RANGE = Question(BEGIN + HOUR, BEGIN + 2 * HOUR, by="host")
# Adds sketches two at a time, as the merge does.
REFERENCE = """
CREATE AGGREGATE pg_temp.visitors (integer[]) (sfunc = truelog.distinct_plus, stype = integer[]);
CREATE AGGREGATE pg_temp.waits (bigint[]) (sfunc = truelog.quantiles_plus, stype = bigint[]);
"""


@pytest.fixture(scope="module")
def audience(filled: Settings) -> Settings:
    with connect(filled, autocommit=True) as connection:
        fill_audience(connection)
    return filled


@pytest.fixture
def snapshot(audience: Settings) -> Iterator[Connection]:
    with db_snapshot.read_snapshot(audience) as connection:
        yield connection


def analysed(settings: Settings, connection: Connection, question: Question, view: str = "page_audience") -> Analysis:
    return analytics.analyse(connection, cube.find_cube(settings, connection, view), question)


def by_sql(settings: Settings, since: datetime, until: datetime, host: str | None) -> list[Any]:
    """The figures of a host from sketches that are added two at a time."""
    with connect(settings) as connection:
        connection.execute(REFERENCE.encode())
        [row] = connection.execute(
            "SELECT views, truelog.distinct_estimate(seen, 12), truelog.quantile(waits, 0.5, 6), "
            "truelog.quantile(waits, 0.95, 6), truelog.quantile(waits, 0.99, 6) FROM ("
            "SELECT sum(views) AS views, pg_temp.visitors(visitors) AS seen, pg_temp.waits(response_ms) AS waits "
            "FROM state.page_audience_v1 WHERE minute >= %s AND minute < %s AND host IS NOT DISTINCT FROM %s) AS added",
            (since, until, host),
        ).fetchall()
        connection.rollback()
    return list(row)


def test_the_cubes_are_the_views_with_a_time_and_a_table(audience: Settings, snapshot: Connection) -> None:
    """`click_through` has no time in its key, `request_rates` no table, and `broken` no declaration."""
    assert cube.cube_names(audience, snapshot) == ["page_audience", "page_views"]
    found = cube.find_cube(audience, snapshot, "page_audience")
    assert (found.time, found.keys) == ("minute", ["host"])
    waits = ["response_ms_p50", "response_ms_p95", "response_ms_p99"]
    assert [each.name for each in found.figures] == ["views", "visitors", *waits]
    assert [each.error for each in found.figures] == [0, 0.02, 0.01, 0.01, 0.01]
    with pytest.raises(BadInput, match="is not a cube"):
        cube.find_cube(audience, snapshot, "click_through")


def test_each_figure_equals_sql(audience: Settings, snapshot: Connection) -> None:
    found = analysed(audience, snapshot, RANGE)
    assert {each.value for each in found.rows} == set(HOSTS)
    for row in found.rows:
        now = by_sql(audience, RANGE.since, RANGE.until, row.value)
        before = by_sql(audience, RANGE.since - HOUR, RANGE.since, row.value)
        assert list(row.figures) == now
        assert row.before == before[0]
        assert row.change == pytest.approx(float(now[0] - before[0]) / float(before[0]))


def test_visitors_are_united_and_not_summed(audience: Settings, snapshot: Connection) -> None:
    """Each minute has the same visitors, so an hour has about as many as a minute."""
    found = analysed(audience, snapshot, RANGE)
    total = found.total.figures[1]
    assert sum(row.figures[1] for row in found.rows) > total > max(row.figures[1] for row in found.rows)
    [minute] = snapshot.execute("SELECT max(visitors) FROM views.page_audience").fetchall()
    assert max(row.figures[1] for row in found.rows) == pytest.approx(minute[0], rel=0.05)


def test_the_course_adds_up_to_the_total(audience: Settings, snapshot: Connection) -> None:
    found = analysed(audience, snapshot, RANGE)
    course = found.course
    assert (course.step, len(course.at), course.at[0]) == (60, 60, RANGE.since.timestamp())
    assert sum(course.now) == found.total.figures[0]
    assert sum(course.before) == found.total.before
    assert {line.value: sum(line.values) for line in course.lines} == {r.value: r.figures[0] for r in found.rows}
    day = analysed(audience, snapshot, Question(BEGIN - 22 * HOUR, BEGIN + 2 * HOUR))
    assert (day.course.step, len(day.course.at)) == (900, 96)
    visitors = analysed(audience, snapshot, Question(BEGIN - HOUR, BEGIN + HOUR, order="visitors")).course.now
    assert visitors[:60] == [None] * 60  # no row: the number of visitors is unknown, and not zero


def test_a_point_is_as_long_as_the_interval_of_the_rows(audience: Settings) -> None:
    """Steps of five minutes would leave gaps between the rows of hours. The range begins within an hour."""
    since, until = BEGIN - 2 * HOUR + HOUR / 2, BEGIN + 4 * HOUR + HOUR / 2
    with connect(audience) as connection:
        connection.execute(
            "CREATE TEMP TABLE hourly AS SELECT date_trunc('hour', minute) AS minute, host, "
            "sum(views)::bigint AS views FROM state.page_audience_v1 GROUP BY 1, 2"
        )
        found = cube.find_cube(audience, connection, "page_audience")
        views = replace(found, figures=found.figures[:1], table=sql.Identifier("pg_temp", "hourly"))
        course = analytics.analyse(connection, views, Question(since, until, by="host")).course
        minutes = analytics.analyse(connection, found, Question(since, until, by="host")).course
        connection.rollback()
    assert (course.step, len(course.at), minutes.step) == (3600, 6, 300)
    assert [n for n, views in enumerate(course.now) if views] == [1, 2]
    assert sum(course.now) == sum(minutes.now)
    assert [sum(line.values) for line in course.lines] == [sum(line.values) for line in minutes.lines]


def test_a_row_that_contains_others_is_not_added_to_them(audience: Settings) -> None:
    """In `visitor_sketches`, a row without a page has the whole day, also the events without a page."""
    since = BEGIN.replace(hour=0)
    day = Question(since, since + 24 * HOUR)
    with connect(audience) as connection:
        connection.execute(
            "CREATE TEMP TABLE days AS SELECT * FROM (VALUES (%s::timestamptz, NULL, 10), (%s, 'a', 6), (%s, 'b', 3)) "
            "AS days (minute, host, views)",
            (since, since, since),
        )
        found = cube.find_cube(audience, connection, "page_audience")
        days = replace(found, figures=found.figures[:1], table=sql.Identifier("pg_temp", "days"), all_if_null=("host",))

        def total(question: Question) -> Any:
            return analytics.analyse(connection, days, question).total.figures[0]

        assert total(day) == 10
        assert total(replace(day, by="host")) == 9
        assert total(replace(day, where=[Condition("host", Operator.EQUAL, "a")])) == 6
        assert total(replace(day, by="host", where=[Condition("host", Operator.MISSING)])) == 10
        connection.rollback()
    with pytest.raises(BadDeclaration, match="name key columns"):
        replace(load_view("page_views"), all_if_null=("host", "views"))


def test_a_question_reads_the_rows_once(audience: Settings, snapshot: Connection) -> None:
    found = cube.find_cube(audience, snapshot, "page_audience")
    made, parameters = statement(found, RANGE, found.figures[1])
    plan = [line for (line,) in snapshot.execute(sql.SQL("EXPLAIN ") + made, parameters)]
    assert len([line for line in plan if re.search(r"Scan .*on page_audience_v1", line)]) == 1


@pytest.mark.parametrize("by", [None, "host"])
def test_the_shown_sql_gives_the_figures_of_the_table(audience: Settings, snapshot: Connection, by: str | None) -> None:
    """It has the values of the filters. If every figure is a sum, readers can run it."""
    for where in ([], [Condition("host", Operator.EQUAL, HOSTILE[0])], [Condition("host", Operator.MISSING)]):
        question = Question(RANGE.since, RANGE.until, where, by, "visitors")
        shown = readable_sql(snapshot, cube.find_cube(audience, snapshot, "page_audience"), question)
        found = analysed(audience, snapshot, question)
        rows = [(row.value, *row.figures) for row in found.rows] if by else [(*found.total.figures,)]
        assert snapshot.execute(shown.text.encode()).fetchall() == rows
        assert not shown.for_readers
    sums = readable_sql(snapshot, cube.find_cube(audience, snapshot, "page_views"), Question(RANGE.since, RANGE.until))
    assert sums.for_readers
    assert 'FROM "views"."page_views"' in sums.text


def test_sketches_of_many_rows_are_united_in_linear_time(audience: Settings, snapshot: Connection) -> None:
    """To read each number from the text of 300,000 numbers would take minutes."""
    snapshot.execute("SET LOCAL statement_timeout = '30s'")
    [(buckets, codes)] = snapshot.execute(
        "SELECT truelog.quantiles_united(string_agg(n % 90 || ',' || 1, ',')), "
        "truelog.distinct_united(string_agg((n % 90 * 64 + n % 7)::text, ',')) FROM generate_series(1, 150000) AS n"
    ).fetchall()
    assert (buckets[::2], sum(buckets[1::2])) == (list(range(90)), 150_000)
    assert codes == [64 * register + 6 for register in range(90)]


def test_a_filter_keeps_one_value_and_null_is_a_value(audience: Settings, snapshot: Connection) -> None:
    everything = {row.value: row.figures for row in analysed(audience, snapshot, RANGE).rows}
    for value in HOSTS:
        condition = Condition("host", Operator.MISSING) if value is None else Condition("host", Operator.EQUAL, value)
        question = Question(RANGE.since, RANGE.until, [condition], by="host")
        found = analysed(audience, snapshot, question)
        assert {row.value: row.figures for row in found.rows} == {value: everything[value]}
        assert found.total.figures == everything[value]


def test_only_whole_intervals_that_are_kept_are_compared(audience: Settings, snapshot: Connection) -> None:
    """Rows of a minute that is cut, has not ended, or was removed are not compared with those of a whole period."""
    found = cube.find_cube(audience, snapshot, "page_audience")
    hour = Question(BEGIN + HOUR, BEGIN + 2 * HOUR, by="host")
    cut = replace(hour, since=hour.since + timedelta(seconds=30))
    is_open = Question(BEGIN + HOUR, datetime.now(UTC).replace(second=0, microsecond=0) + 2 * HOUR)
    short = replace(found, keep=timedelta(hours=1))
    for asked, question, why in (
        (found, hour, ""),
        (replace(found, keep=timedelta(days=2)), hour, ""),
        (found, cut, "does not begin and end"),
        (found, is_open, "has not ended"),
        (short, hour, "no longer keeps"),
    ):
        analysis = analytics.analyse(snapshot, asked, question)
        assert why in analysis.incomparable
        assert bool(why) is bool(analysis.incomparable)
        rows = [analysis.total, *analysis.rows]
        assert {each.before is None for each in rows} == {bool(why)}
        assert bool(analysis.course.before) is not bool(why)
    assert not Form(view="page_audience").question(1).until > datetime.now(UTC)


def test_figures_are_those_of_the_version_that_readers_see(audience: Settings, tmp_path: Path) -> None:
    """The file declares a version that is not proved yet, and has other sketches. The file of version 1 is stored."""
    stored = (audience.views_folder / "page_audience.py").read_text()
    settings = audience.model_copy(update={"views_folder": copy_views(tmp_path, "page_audience")})
    file = tmp_path / "page_audience.py"
    file.write_text(file.read_text().replace("Distinct(error=0.02)", "Distinct(error=0.05)"))
    assert load_view("page_audience", tmp_path).measures["visitors"].error == 0.05
    with connect(settings) as connection:
        assert cube.cube_names(settings, connection) == ["page_audience"]
        with pytest.raises(BadInput, match="still see version 1 of page_audience, whose file is not stored"):
            cube.find_cube(settings, connection, "page_audience")
        view_versions.record_source(connection, "page_audience", 1, stored)
        found = cube.find_cube(settings, connection, "page_audience")
        assert not found.is_declared
        assert found == replace(cube.find_cube(audience, connection, "page_audience"), is_declared=False)
        connection.rollback()


def test_values_are_limited_and_the_largest_come_first(audience: Settings, snapshot: Connection) -> None:
    found = analysed(audience, snapshot, Question(RANGE.since, RANGE.until, by="host", limit=2))
    assert (len(found.rows), found.more) == (2, True)
    assert found.rows[0].figures[0] >= found.rows[1].figures[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"by": "minute"}, "no key column 'minute'"),
        ({"by": 'host"; --'}, "no key column"),
        ({"order": "(SELECT 1)"}, "no figure"),
        ({"where": [Condition("views", Operator.EQUAL, "1")]}, "no key column 'views'"),
        ({"where": [Condition("host", Operator.CONTAINS, "a")]}, "a filter is"),
        ({"where": [Condition("host", Operator.EQUAL, "a\0")]}, "NUL"),
    ],
)
def test_an_invalid_question_is_refused(
    audience: Settings, snapshot: Connection, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        analysed(audience, snapshot, Question(RANGE.since, RANGE.until, **given))


def test_the_events_behind_a_figure_are_found_in_the_archive(archived: Settings) -> None:
    """The day has three archived records. Only one is valid, and invalid records have no time of the event."""
    day = Question(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    with db_snapshot.read_snapshot(archived) as connection:
        views = cube.find_cube(archived, connection, "page_views")

    def found(*where: Condition, since: datetime = day.since) -> ArchivedEvents:
        [topic] = archived_events(archived, views, Question(since, day.until, where))
        return topic

    [event] = found().events
    assert (event["partition"], event["offset"], event["event_id"], event["host"]) == (0, 0, "e", "h")
    assert found(Condition("host", Operator.EQUAL, "h")).number == 1
    assert found(Condition("host", Operator.EQUAL, "another")).number == 0
    assert found(Condition("host", Operator.MISSING)).number == 0
    assert found(since=day.since + timedelta(seconds=1)).number == 0
    assert found().open == []
    with pytest.raises(BadInput, match="no key column 'ip'"):
        found(Condition("ip", Operator.EQUAL, "1"))
    with pytest.raises(BadInput, match="a filter is"):
        found(Condition("host", Operator.PRESENT))
    renamed = replace(views, keys=[*views.keys, "kind"])
    [topic] = archived_events(archived, renamed, replace(day, where=[Condition("kind", Operator.EQUAL, "a")]))
    assert (topic.number, topic.applied, topic.open) == (1, [], ["kind"])


def test_a_field_is_told_apart_from_the_archives_column_of_the_same_name() -> None:
    """The archive has a record's raw bytes in `value`, and the event's `value` in another column."""
    day, end = datetime(2026, 3, 1, tzinfo=UTC), time.monotonic() + 3_600
    topic = Topic(key=None, subject=(), partitions=1, retention="1 day")
    measured = EventType("measured", create_model("Measured", __base__=Event, value=(str, ...)), topic)
    place = {"offset": 0, "broker_time": day, "event_time": day, "log_day": day, "erased": False, "value": b"raw"}
    rows = [place | {"partition": n, "event_id": str(n), "_value": value} for n, value in enumerate(("hot", "cold"))]
    archive = ds.dataset(pa.Table.from_pylist(rows, arrow_schema(measured)))
    asked = cube.Cube("by_value", "hour", ["value"], {}, [], {}, sql.Identifier("none"), ["measured"], [])
    where = [Condition("value", Operator.EQUAL, "hot")]
    found = events._found(archive, measured, asked, Question(day, day + timedelta(days=1), where), end)
    assert (found.number, found.applied, found.open) == (1, ["value"], [])
    assert [(event["event_id"], event["value"]) for event in found.events] == [("0", "hot")]


def test_a_long_search_in_the_archive_ends(archived: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SECONDS", -1.0)
    with db_snapshot.read_snapshot(archived) as connection:
        views = cube.find_cube(archived, connection, "page_views")
    with pytest.raises(BadInput, match="Choose a shorter time range"):
        archived_events(archived, views, Question(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)))


def test_only_readers_of_raw_data_see_archived_events(archived: Settings, users: dict[str, Airflow]) -> None:
    path = "data/analytics/events?view=page_views&where=host%3Dh&since=2026-03-01T00:00:00Z&until=2026-03-02T00:00:00Z"
    assert fetch(users["analyst"], "GET", path).status == 403
    [topic] = json.load(fetch(users["oncall"], "GET", path))["topics"]
    assert [event["event_id"] for event in topic["events"]] == ["e"]
    with connect(archived) as connection:
        [entry] = audit_trail.latest_operations(connection, 1, "read")
    about = "2026-03-01T00:00 to 2026-03-02T00:00, host=h"
    assert (entry.doer, entry.subject, entry.about) == ("oncall", "page_view", about)


def test_a_range_without_end_or_of_years_is_refused() -> None:
    for since, until in ((BEGIN, BEGIN), (BEGIN, BEGIN - HOUR), (BEGIN - timedelta(days=401), BEGIN)):
        with pytest.raises(BadInput, match="time range"):
            Question(since, until)


def test_a_slow_question_is_cancelled(audience: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analytics, "SECONDS", 1)
    with connect(audience) as connection:
        found = cube.find_cube(audience, connection, "page_audience")
        slow = {"views": 'sum("views") + count(pg_sleep(1))'}
        asked = replace(found, figures=found.figures[:1], united=slow)
        with pytest.raises(BadInput, match="Choose a shorter time range"):
            analytics.analyse(connection, asked, RANGE)
        connection.rollback()


def test_the_batch_layer_answers_as_for_readers(audience: Settings) -> None:
    """The figures come from the table that readers get."""
    with connect(audience) as connection:
        connection.execute("CREATE TABLE batch.page_audience_v1 AS TABLE state.page_audience_v1")
        connection.execute("UPDATE batch.page_audience_v1 SET views = 7")
        a_batch_answer(connection, "page_audience", Positions({"page_view": {0: 10**6}}, {"page_view": "id"}))
        found = analysed(audience, connection, RANGE)
        assert {row.figures[0] for row in found.rows} == {7 * 60}
        connection.rollback()


def test_the_answer_over_http_has_positions_and_hides_nothing(audience: Settings, users: dict[str, Airflow]) -> None:
    ends = f"since={RANGE.since:%Y-%m-%dT%H:%M:%SZ}&until={RANGE.until:%Y-%m-%dT%H:%M:%SZ}"
    found = json.load(fetch(users["analyst"], "GET", f"data/analytics?view=page_audience&by=host&{ends}"))
    assert {row["value"] for row in found["rows"]} == set(HOSTS)
    assert list(found["positions"]) == ["page_view"]
    assert not found["may_export"]
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert fetch(users["analyst"], "GET", f"data/analytics?view=page_audience&since={now}").status == 400
    assert fetch(users["analyst"], "GET", f"export/analytics.csv?view=page_audience&by=host&{ends}").status == 403
    head, *rows = csv.reader(
        fetch(users["oncall"], "GET", f"export/analytics.csv?view=page_audience&by=host&{ends}")
        .read()
        .decode()
        .splitlines()
    )
    assert head[:3] == ["host", "views", "visitors"]
    assert sorted(row[0] for row in rows) == sorted("" if each is None else json.dumps(each) for each in HOSTS)
    assert json.dumps(HOSTILE[0]) in {row[0] for row in rows}
    with connect(audience) as connection:
        [entry] = audit_trail.latest_operations(connection, 1, "export")
    assert (entry.doer, entry.subject, entry.about) == ("oncall", "page_audience", "csv: figures by host, all rows")
