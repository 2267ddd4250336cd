"""Tests in Chromium of the jobs of engineers and analysts, each from Airflow's home page, with a limit of clicks.

`ways` says in which ways a job is done. A user who may not do a job sees the disabled button and what it requires. The
summary shows the clicks and the seconds.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product

import pytest
from playwright.sync_api import expect

from runtime.airflow_client import Airflow
from tests.builders.alerts import an_alert
from tests.builders.applications import a_launch, forget_requests
from tests.builders.quality import an_event_validation
from tests.pages.conftest import USERS
from tests.pages.job import Job
from tests.pages.rejected_click import reject_click
from tests.pages.ways import HANDS, IN_GATE, SIZES, THEMES, each_job_in_its_ways, ways_of
from truelog.alerts import store as alert_store
from truelog.apps import launcher
from truelog.control.application import ARCHIVE
from truelog.quality import gx_docs, quality_history
from truelog.quality.gx_docs import DocsHead
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings

Begin = Callable[[], Job]
pytest_generate_tests = each_job_in_its_ways


@pytest.fixture
def unhandled(pages: Settings) -> Iterator[None]:
    """No alert is acknowledged during the test, and none stays acknowledged."""
    statement = (
        "UPDATE truelog.alert SET acknowledged_at = NULL, acknowledged_by = NULL "
        "WHERE (kind, subject) = ('view_different', 'click_through')"
    )
    with connect(pages, autocommit=True) as connection:
        connection.execute(statement)
        yield
        connection.execute(statement)


@pytest.fixture
def resting(planned: Settings, archive_down: None) -> Iterator[None]:
    """The archive died too often and rests. Its log ends with the error, and an alert is open with an effect."""
    log = launcher.log_path(planned, ARCHIVE)
    log.parent.mkdir(exist_ok=True)
    log.write_text(
        "starting\nTraceback (most recent call last):\ntruelog.support.errors.StoreDown: S3 refused: disk full\n"
    )
    with connect(planned, autocommit=True) as connection:
        for _ in range(5):
            a_launch(connection, ARCHIVE, ago=timedelta(seconds=200))
        for kind, subject in (("application_down", ARCHIVE), ("reconcile_inconclusive", "page_views")):
            an_alert(connection, kind, subject, "no lease")
        yield
        connection.execute("DELETE FROM truelog.launch WHERE launched_at > now() - interval '1 hour'")
        connection.execute("DELETE FROM truelog.alert WHERE cause = 'no lease' AND resolved_at IS NULL")
        forget_requests(connection)
    log.unlink()


def test_find_and_acknowledge_an_alert(begin: Begin, pages: Settings, unhandled: None) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="Open alerts"))
    alert = job.frame.locator("[data-alert='view_different/click_through']")
    button = alert.get_by_role("button", name="Acknowledge")
    if job.is_refused(button, "trigger the streams DAG"):
        return
    job.click(button)
    expect(alert).to_contain_text(f"Acknowledged by {job.user}")
    job.done("find and acknowledge an alert", 2)
    with connect(pages) as connection:
        [newest] = audit_trail.latest_operations(connection, 1, "acknowledge")
    assert (newest.subject, newest.doer) == ("view_different/click_through", job.user)


def test_silence_an_alert(begin: Begin, pages: Settings) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="Open alerts"))
    button = job.frame.locator("[data-alert='view_different/click_through']").get_by_role("button", name="Silence…")
    if job.is_refused(button, "trigger the streams DAG"):
        return
    job.click(button)
    dialog = job.frame.get_by_role("dialog")
    expect(dialog.get_by_label("Alerts")).to_have_value("view_different/click_through")
    expect(dialog.get_by_label("Duration")).to_have_value("2")
    job.write(dialog.get_by_label("Reason"), "a repair is running")
    job.click(dialog.get_by_role("button", name="Silence"))
    expect(job.frame.get_by_role("row", name="view_different/click_through")).to_contain_text("a repair is running")
    job.done("silence an alert", 3)
    with connect(pages, autocommit=True) as connection:
        [made] = [each for each in alert_store.active_silences(connection) if each.pattern.startswith("view_different")]
        alert_store.end_silence(connection, made.id or 0, job.user)


def test_find_why_an_application_is_down(resting: None, begin: Begin) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="archive is down and rests"))
    archive = job.frame.locator(f"[data-application={ARCHIVE}]")
    expect(archive.locator(".badge").first).to_have_text("Resting")
    expect(archive).to_contain_text("StoreDown: S3 refused: disk full")
    expect(archive).to_contain_text("Next try at")
    expect(archive.get_by_role("link", name="DAG stream_archive")).to_be_visible()
    job.done("find why an application is down", 1)


def test_effects_are_listed_under_their_cause(resting: None, begin: Begin) -> None:
    job = begin()
    expect(job.card.get_by_role("status")).to_contain_text("4 open alerts")
    job.click(job.card.get_by_role("link", name="Open alerts"))
    down = job.frame.locator("[data-alert='application_down/archive']")
    job.click(down.locator("summary", has_text="1 effect"))
    expect(down.locator("[data-effect='reconcile_inconclusive/page_views']")).to_be_visible()
    expect(job.frame.locator("[data-alert='reconcile_inconclusive/page_views']")).to_have_count(0)
    job.click(down.get_by_role("link", name="Streams"))
    expect(job.frame.locator("[data-application]")).to_have_count(1)
    job.done("from an alert to its page", 3)


def test_restart_an_application(resting: None, begin: Begin, pages: Settings) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="archive is down"))
    button = job.frame.locator(f"[data-application={ARCHIVE}]").get_by_role("button", name="Restart")
    if job.is_refused(button, "clear tasks of its DAG"):
        return
    job.click(button)
    job.click(job.frame.get_by_role("button", name=f"Restart {ARCHIVE}"))
    expect(job.frame.get_by_role("dialog")).to_be_hidden()
    job.done("restart an application", 3)
    with connect(pages) as connection:
        assert audit_trail.latest_operations(connection, 1, "restart")[0].doer == job.user


def test_find_what_changed_before_an_incident(begin: Begin) -> None:
    job = begin()
    job.open_tab("Timeline")
    job.choose(job.frame.get_by_label("Time range"), "3 days")
    for text in ("Alert", "Release", "Repair", "Backfill", "Silence", "View different"):
        expect(job.frame.locator("tbody tr td:nth-child(2)", has_text=text).first).to_be_visible()
    expect(job.frame.locator("tbody").get_by_role("link", name="view_different/click_through").first).to_be_visible()
    comparison = job.frame.get_by_role("link", name="Reconciliation 59")
    expect(comparison).to_have_attribute("href", "reconciliation?id=59")
    job.done("find what changed", 3)


def test_send_a_dead_letter_again(begin: Begin, rejected: Settings) -> None:
    job = begin()
    if job.user != "analyst":
        reject_click(rejected)
    job.open_tab("Dead letters")
    button = job.frame.get_by_role("button", name=re.compile(r"Send \d+ dead letters? again"))
    if job.is_refused(button, "trigger the reconcile DAG"):
        return
    job.choose(job.frame.get_by_label("Event type"), "click")
    job.click(button)
    job.click(job.frame.get_by_role("button", name="Send 1 event"))
    expect(job.frame.get_by_role("heading", name="Sent 1 event")).to_be_visible()
    job.done("send a dead letter again", 5)


@pytest.mark.usefixtures("polled")
def test_see_the_lag_of_the_last_minutes(begin: Begin) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="Lag: unprocessed records"))
    job.choose(job.frame.get_by_label("Time range"), "15 minutes")
    expect(job.frame.locator("figure.chart")).to_have_count(3)
    expect(job.page).to_have_url(re.compile("hours=0.25"))
    job.done("see the lag of the last 15 minutes", 2)


def test_find_a_view_with_its_columns_readers_and_freshness(begin: Begin) -> None:
    job = begin()
    job.search_view("views", "page_views")
    facts = job.frame.locator("dl.facts")
    expect(facts).to_contain_text("shop 1,204 answers")
    expect(facts).to_contain_text("Ownerweb analytics")
    expect(facts.locator(".badge").first).to_have_text("Fresh")
    expect(job.frame.get_by_text("host of the URL; NULL if the URL is invalid")).to_be_visible()
    job.done("find a view, its columns, readers and freshness", 3)


def test_verify_a_certificate(begin: Begin, idle: None, users: dict[str, Airflow]) -> None:
    job = begin()
    job.open_tab("Certificates")
    buttons = job.frame.get_by_role("button", name="Verify")
    if job.is_refused(buttons, "trigger the verify DAG"):
        return
    job.click(buttons.first)
    job.click(job.frame.get_by_role("dialog").get_by_role("button", name="Verify"))
    expect(job.frame.locator("main tbody")).to_contain_text("Pending")
    job.done("verify a certificate", 4)
    [run] = users["oncall"].runs("verify")
    assert run["triggering_user_name"] == job.user


def test_learn_what_a_user_may_not_do(begin: Begin, pages: Settings) -> None:
    job = begin()
    job.open_tab("Views")
    job.click(job.frame.get_by_role("link", name="Find a record"))
    expect(job.frame.locator("main h1")).to_have_text("Records")
    rights = job.frame.locator("#rights")
    if job.user == "admin":
        expect(rights).to_be_hidden()
        return
    said, action = {
        "analyst": ("Read only", "Compare, repair and explain; see and save raw data"),
        "oncall": ("Some actions are not yours", "Stop or start an application"),
    }[job.user]
    job.click(rights.locator("summary", has_text=said))
    expect(job.frame.get_by_text(action)).to_be_visible()
    reason = job.frame.locator("main").get_by_text("Requires permission to trigger the reconcile DAG.")
    assert (reason.count() > 0) is (job.user == "analyst")
    job.done("learn what a user may not do", 4)


def test_validate_a_day_and_open_its_report(
    begin: Begin, idle: None, planned: Settings, users: dict[str, Airflow]
) -> None:
    job = begin()
    job.open_tab("Quality")
    button = job.frame.get_by_role("button", name="Validate now")
    if job.is_refused(button, "trigger the quality DAG"):
        return
    job.click(button)
    job.click(job.frame.get_by_role("dialog").get_by_role("button", name="Validate"))
    expect(job.frame.locator("#form")).to_contain_text("Started: ")
    [run] = users["oncall"].runs("quality")
    with connect(planned, autocommit=True) as connection:
        an_event_validation(connection, "click", run["conf"]["day"], run=run["dag_run_id"])
        number = quality_history.latest_validation(connection, run["dag_run_id"], "click") or 0
        gx_docs.store_page(planned, number, gx_docs.render_page(DocsHead("click", ["no history"]), {"results": []}))
    job.click(job.frame.get_by_role("link", name="click", exact=True).last)
    row = job.frame.get_by_role("row").filter(has=job.frame.get_by_role("link", name=run["dag_run_id"]))
    job.click(row.get_by_role("link", name="Data Docs"))
    expect(job.frame.get_by_text("No metric could be checked.")).to_be_visible()
    job.done("validate a day and open its report", 6)


def test_a_job_has_every_size_theme_hand_and_role() -> None:
    jobs = [name for name in globals() if name.startswith("test_") and "a_job_has" not in name]
    for ways in map(ways_of, range(len(jobs))):
        assert {(way.size, way.theme, way.hand) for way in ways} == {*product(SIZES, THEMES, HANDS)}
        assert {way.user for way in ways} == {*USERS}
        often, other = ways[:IN_GATE]
        assert often.user == "analyst" != other.user
        assert all(getattr(often, part) != getattr(other, part) for part in ("size", "theme", "hand"))
    in_gate = [way for number in range(len(jobs)) for way in ways_of(number)[:IN_GATE]]
    for is_analyst in (True, False):
        done = {(way.size, way.theme, way.hand) for way in in_gate if (way.user == "analyst") == is_analyst}
        assert done == {*product(SIZES, THEMES, HANDS)}
