"""Tests in Chromium of the jobs about one view, each from Airflow's home page, in the ways of `browser_jobs`."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from playwright.sync_api import Locator, expect

from runtime.airflow_client import Airflow
from tests.pages.backfills import finish_attempt, newest, store_result
from tests.pages.job import Job
from tests.pages.plausible import HOSTILE
from tests.pages.ways import each_job_in_its_ways
from truelog.support.settings import Settings

Begin = Callable[[], Job]

pytest_generate_tests = each_job_in_its_ways


def test_find_why_a_view_differs(begin: Begin) -> None:
    job = begin()
    job.open_tab("Reconciliations")
    job.choose(job.frame.get_by_label("Verdict", exact=True), "Different")
    expect(job.frame.locator("main tbody tr")).to_have_count(1)
    job.click(job.frame.locator("main table a").first)
    expect(job.frame.locator("[data-cause]")).to_contain_text(f"Wrong value by hand (1 row): {HOSTILE[1]}")
    job.click(job.frame.get_by_role("link", name="Row", exact=True).first)
    expect(job.frame.locator("#answer")).to_contain_text("No rows match.")  # the repair removed it
    job.done("find why a view differs", 5)


def test_repair_a_view(begin: Begin, idle: None, users: dict[str, Airflow]) -> None:
    job = begin()
    job.click(job.card.get_by_role("link", name="Open alerts"))
    alert = job.frame.locator("[data-alert='view_different/click_through']")
    job.click(alert.get_by_role("link", name="View", exact=True))
    expect(job.frame.locator("main")).to_contain_text("differs from its rebuild")
    button = job.frame.get_by_role("button", name="Repair this view")
    if job.is_refused(button, "trigger the reconcile DAG"):
        return
    job.click(button)
    job.click(job.frame.get_by_role("dialog").get_by_role("button", name="Repair", exact=True))
    expect(job.frame.locator("#chosen-run")).to_contain_text("waits for its turn")
    expect(job.frame.locator("main")).to_contain_text("This run has not compared a view yet")
    job.done("repair a view", 4)
    [run] = users["oncall"].runs("reconcile")
    assert run["conf"] == {"views": ["click_through"], "repair": True}
    assert run["triggering_user_name"] == job.user


def choose_days(job: Job, form: Locator) -> None:
    """Two days of the grid: dragged over, or typed."""
    cells = job.frame.locator("[role=gridcell][data-view=page_views]")
    expect(cells.nth(6)).to_have_attribute("aria-label", re.compile("page_views, "))
    if not job.has_keyboard:
        cells.nth(5).drag_to(cells.nth(6))
        job.clicks += 1
        return
    for label, place in (("From", 5), ("To", 6)):
        year, month, day = str(cells.nth(place).get_attribute("data-day")).split("-")
        job.write(form.get_by_label(label).last, f"{month}{day}{year}")  # as the field shows a date


def test_backfill_two_days_of_a_view_and_open_the_report(
    begin: Begin, idle: None, planned: Settings, users: dict[str, Airflow], airflows: dict[str, Any]
) -> None:
    job = begin()
    job.open_tab("Backfills")
    if job.is_refused(job.frame.get_by_role("button", name="Backfill…"), "trigger the recompute DAG"):
        return
    form = job.frame.get_by_role("form", name="Backfill")
    choose_days(job, form)
    job.click(form.locator("#views summary"))
    job.click(form.get_by_role("button", name="No views"))
    job.click(form.get_by_label("page_views"))
    expect(form.locator(".costs li")).to_have_count(1)
    expect(form.locator(".costs")).to_contain_text("page_views: A backfill recomputes the partials of its days")
    job.click(form.get_by_role("button", name="Backfill"))
    job.click(job.frame.get_by_role("button", name="Backfill 2 days"))
    made = job.frame.locator("[data-backfill]").first
    expect(made).to_contain_text("0 of 2 day-views done")
    for day in newest(users["oncall"])["days"]:
        started = finish_attempt(airflows, planned, users["oncall"], day["run"], "page_views")
        store_result(planned, started, "page_views")
    reports = made.get_by_role("link", name="Report")
    expect(reports).to_have_count(2)  # the page may have fetched only the first
    job.click(reports.last)
    expect(job.frame.locator("main tbody tr")).to_have_count(1)
    expect(job.frame.locator("main tbody")).to_contain_text("page_views")
    assert started in unquote(job.frame.url)
    job.done("backfill two days of a view, and open the report", 9)


def test_explain_a_row(begin: Begin, idle: None, readable: Settings, users: dict[str, Airflow]) -> None:
    job = begin()
    job.search_view("views", "page_views")
    rows = job.frame.locator("#answer")
    expect(rows.locator("tbody tr").first).to_be_visible()
    offered = rows.get_by_role("link", name="Explain")
    if job.user == "analyst":
        expect(rows).to_contain_text("Save and explain: Requires permission to trigger the reconcile DAG.")
        expect(offered).to_have_count(0)
        return
    job.click(offered.first)
    expect(job.frame.locator("main")).to_contain_text("3 records in 3 files")
    job.click(job.frame.get_by_role("button", name="Explain"))
    expect(job.frame.locator("main .badge")).to_have_text("Waiting")
    job.done("explain a row", 5)
    [run] = users["oncall"].runs("explain")
    where = parse_qs(urlsplit(job.frame.url).query)["where"]
    assert run["conf"] == {"view": "page_views", "where": where, "before": ""}
    assert run["triggering_user_name"] == job.user
