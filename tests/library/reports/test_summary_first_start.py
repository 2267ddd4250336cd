"""A platform that was just set up: summary, pages and `truelog status` say that it is starting, in few lines."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests.builders.applications import a_database_of
from tests.chosen_views import copy_views
from truelog.cli.commands import streaming
from truelog.control.application import ARCHIVE
from truelog.reports import flow, health, summary, view
from truelog.reports import streams as stream_report
from truelog.reports.summary import PlatformState
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEWS = ("page_views", "click_through", "request_rates")


@pytest.fixture
def empty(postgresql: Settings, tmp_path: Path) -> Settings:
    """A new database, in which no process has done anything."""
    copy_views(tmp_path, *VIEWS)
    with connect(postgresql) as connection:
        a_database_of(connection, timedelta())
    return postgresql.model_copy(update={"views_folder": tmp_path, "s3_endpoint": "http://127.0.0.1:1"})


def test_an_empty_platform_is_starting_and_each_fact_is_said_once(empty: Settings) -> None:
    found = summary.load_summary(empty)
    assert (found.state, found.views, found.unmade) == (PlatformState.STARTING, 3, 3)
    assert [each.text for each in found.problems] == [
        "alerts are not checked yet",
        "archive is starting",
        "stream is starting",
        "3 views are being created",
    ]


def test_a_platform_that_does_not_start_is_no_longer_called_starting(empty: Settings) -> None:
    with connect(empty) as connection:
        a_database_of(connection, timedelta(minutes=16))
    found = summary.load_summary(empty)
    assert found.state is PlatformState.UNKNOWN
    assert "3 views have no table yet: click_through, page_views, request_rates" in [e.text for e in found.problems]


def test_pages_and_status_agree_on_views_that_no_application_has_run(empty: Settings) -> None:
    pages = {each.reader: each.state for of in stream_report.application_reports(empty) for each in of.readers}
    entries = {each.view: each.state for each in view.view_entries(empty)}
    nodes = {each.reader: each.state for each in flow.flow_report(empty).views}
    status = {each.view: each.state for of in health.application_health(empty) for each in of.views}
    assert entries == nodes == status == dict.fromkeys(VIEWS, "STARTING")
    assert pages == entries | {ARCHIVE: ""}


def test_status_shows_one_row_for_them(empty: Settings) -> None:
    _, views = streaming.tables(streaming.streams(empty))
    assert views.row_count == 1
