"""Tests in Chromium of the jobs of an on-call engineer: each from Airflow's home page, with a limit of clicks.

Each test logs its clicks and its seconds. `--log-cli-level=INFO` shows them.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import BrowserContext, Frame, Locator, Page, expect

from tests.builders.alerts import an_alert
from tests.builders.applications import a_launch
from tests.pages.browsing import Clicks, framed
from truelog.alerts import store as alert_store
from truelog.apps import launcher
from truelog.control.application import ARCHIVE
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings


class Job(Clicks):
    """The clicks of one user from Airflow's home page on."""

    def __init__(self, context: BrowserContext) -> None:
        super().__init__()
        self.page = context.new_page()
        self.page.goto("/")

    @property
    def card(self) -> Locator:
        return self.page.get_by_role("region", name="Truelog", exact=True)

    @property
    def frame(self) -> Frame:
        return framed(self.page)

    def done(self, name: str, limit: int) -> None:
        self.page.close()
        super().done(name, limit)


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
    log.unlink()


def test_find_and_acknowledge_an_alert(signed_in: dict[str, BrowserContext], pages: Settings, unhandled: None) -> None:
    job = Job(signed_in["oncall"])
    job.click(job.card.get_by_role("link", name="Open alerts"))
    alert = job.frame.locator("[data-alert='view_different/click_through']")
    job.click(alert.get_by_role("button", name="Acknowledge"))
    expect(alert).to_contain_text("Acknowledged by oncall")
    job.done("find and acknowledge an alert", 3)
    with connect(pages) as connection:
        [newest] = audit_trail.latest_operations(connection, 1, "acknowledge")
    assert (newest.subject, newest.doer) == ("view_different/click_through", "oncall")


def test_silence_an_alert(signed_in: dict[str, BrowserContext], pages: Settings) -> None:
    job = Job(signed_in["oncall"])
    job.click(job.card.get_by_role("link", name="Open alerts"))
    job.click(job.frame.locator("[data-alert='view_different/click_through']").get_by_role("button", name="Silence…"))
    dialog = job.frame.get_by_role("dialog")
    expect(dialog.get_by_label("Alerts")).to_have_value("view_different/click_through")
    expect(dialog.get_by_label("Duration")).to_have_value("2")
    dialog.get_by_label("Reason").fill("a repair is running")
    job.click(dialog.get_by_role("button", name="Silence"))
    expect(job.frame.get_by_role("row", name="view_different/click_through")).to_contain_text("a repair is running")
    job.done("silence an alert", 3)
    with connect(pages, autocommit=True) as connection:
        [made] = [each for each in alert_store.active_silences(connection) if each.pattern.startswith("view_different")]
        alert_store.end_silence(connection, made.id or 0, "oncall")


def test_find_why_an_application_is_down(resting: None, signed_in: dict[str, BrowserContext]) -> None:
    job = Job(signed_in["analyst"])
    job.click(job.card.get_by_role("link", name="archive is down and rests"))
    archive = job.frame.locator(f"[data-application={ARCHIVE}]")
    expect(archive.locator(".badge").first).to_have_text("Resting")
    expect(archive).to_contain_text("StoreDown: S3 refused: disk full")
    expect(archive).to_contain_text("Next try at")
    expect(archive.get_by_role("link", name="DAG stream_archive")).to_be_visible()
    job.done("find why an application is down", 3)


def test_effects_are_listed_under_their_cause(resting: None, signed_in: dict[str, BrowserContext]) -> None:
    job = Job(signed_in["analyst"])
    expect(job.card.get_by_role("status")).to_contain_text("4 open alerts")
    job.click(job.card.get_by_role("link", name="Open alerts"))
    down = job.frame.locator("[data-alert='application_down/archive']")
    job.click(down.locator("summary", has_text="1 effect"))
    expect(down.locator("[data-effect='reconcile_inconclusive/page_views']")).to_be_visible()
    expect(job.frame.locator("[data-alert='reconcile_inconclusive/page_views']")).to_have_count(0)
    job.click(down.get_by_role("link", name="Streams"))
    expect(job.frame.locator("[data-application]")).to_have_count(1)
    job.done("from an alert to its page", 3)


def test_restart_an_application(resting: None, signed_in: dict[str, BrowserContext], pages: Settings) -> None:
    job = Job(signed_in["oncall"])
    job.click(job.card.get_by_role("link", name="archive is down"))
    job.click(job.frame.locator(f"[data-application={ARCHIVE}]").get_by_role("button", name="Restart"))
    job.click(job.frame.get_by_role("button", name=f"Restart {ARCHIVE}"))
    expect(job.frame.get_by_role("dialog")).to_be_hidden()
    job.done("restart an application", 3)
    with connect(pages) as connection:
        assert audit_trail.latest_operations(connection, 1, "restart")[0].doer == "oncall"


def test_the_timeline_shows_what_changed_before_an_incident(signed_in: dict[str, BrowserContext]) -> None:
    job = Job(signed_in["analyst"])
    job.page.goto("/truelog/timeline?hours=72")
    page: Page = job.page
    for text in ("Alert", "Release", "Repair", "Backfill", "Silence", "View different"):
        expect(page.locator("tbody tr td:nth-child(2)", has_text=text).first).to_be_visible()
    expect(page.locator("tbody").get_by_role("link", name="view_different/click_through").first).to_be_visible()
    expect(page.get_by_role("link", name="Reconciliation 59")).to_have_attribute("href", "reconciliation?id=59")
    job.done("read the timeline", 0)
