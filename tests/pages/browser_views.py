"""Tests of the pages about views, rows, comparisons and backfills in Chromium: `make browser`."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, Route, expect

from runtime.airflow_client import Airflow
from tests.pages.browsing import change_answer, let_through, open_page
from tests.pages.plausible import HOSTILE
from truelog.support.settings import Settings


def test_a_row_is_addressed_by_its_whole_key_and_the_address_keeps_the_query(watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    rows = watched.locator("#answer")
    expect(rows.locator("tbody tr")).to_have_count(50)
    form = watched.get_by_role("form", name="Rows")
    for column, operator, value in (("host", "=", HOSTILE[2]), ("page", "=", HOSTILE[2]), ("views", "between", "1")):
        form.get_by_role("button", name="Add filter").click()
        filter_ = form.locator(".filter").last
        filter_.get_by_label("Column").select_option(column)
        filter_.get_by_label("Operator").select_option(operator)
        filter_.locator("input").first.fill(value)
        if operator == "between":
            filter_.get_by_label("To", exact=True).fill("2")
    form.get_by_role("button", name="Show").click()
    expect(rows.locator("tbody tr")).to_have_count(1)
    expect(rows).to_contain_text(HOSTILE[2])
    watched.reload()
    expect(rows.locator("tbody tr")).to_have_count(1)
    expect(form.locator(".filter")).to_have_count(4)  # `between` is two conditions
    form.locator(".filter").nth(3).get_by_label("Value").fill("many")
    form.get_by_role("button", name="Show").click()
    expect(watched.get_by_role("alert").filter(has_text="invalid input syntax")).to_be_visible()


def test_a_view_begins_with_what_people_look_for(pages: Settings, watched: Page) -> None:
    analyst = pages.database() | {"user": "analyst", "password": pages.analyst_password.get_secret_value()}
    with psycopg.connect(**analyst) as reading:
        reading.execute("SELECT count(*) FROM views.page_views_busiest")
        open_page(watched, "view?name=page_views")
    facts = watched.locator("dl.facts")
    expect(facts).to_contain_text("Reading by SQL nowanalyst 1 session")
    for name in ("Freshness", "Correctness", "Rows", "Events/s"):
        expect(facts.get_by_text(name, exact=True)).to_be_visible()
    expect(facts.get_by_role("img", name="Freshness in the last 24 hours")).to_be_visible()
    expect(facts).to_contain_text("shop 1,204 answers")
    expect(facts).to_contain_text("Ownerweb analytics")
    expect(facts).to_contain_text(HOSTILE[0])
    expect(facts).to_contain_text("Work1.20 s for 1,000 records0.90 s to prepare, 0.30 s to merge (wall time)")
    expect(facts.locator(".badge").first).to_have_text("Fresh")
    expect(watched.locator("h1 .badge")).to_have_count(0)  # correctness has its own badge
    for name in ("Rows at comparisons", "Size at comparisons"):
        expect(watched.get_by_role("img", name=name)).to_be_visible()
    expect(watched.locator(".strip .cell").first).to_have_attribute("data-state", "EQUAL")  # not 28 empty days
    expect(watched.locator(".strip .cell[data-state=DIFFERENT]")).to_have_count(1)
    facts.get_by_role("link").first.click()
    expect(watched).to_have_url(re.compile("lag.*page_views"))


def test_rows_are_sorted_by_their_headers_and_paged(watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    rows = watched.locator("#answer")
    rows.get_by_role("button", name="views").click()
    expect(rows.get_by_role("columnheader", name="views")).to_have_attribute("aria-sort", "descending")
    expect(rows.locator("tbody tr").first.locator("td").nth(4)).to_have_text("97")
    rows.get_by_role("button", name="Next").click()
    expect(rows).to_contain_text("51 to 100")
    assert "skip=50" in watched.url
    assert "order=views" in watched.url


def test_a_condition_on_a_relation_keeps_a_column_that_the_view_lacks(watched: Page) -> None:
    def lack(found: dict[str, Any]) -> None:
        found["columns"] = [each for each in found["columns"] if each["name"] != "views"]

    change_answer(watched, re.compile(r"data/view\?"), lack)
    open_page(watched, "view?name=page_views&relation=page_views_busiest&where=views%3E%3D1")
    column = watched.locator(".filter").get_by_label("Column")
    expect(column.locator("option")).to_have_text(["host", "views"])
    expect(column).to_have_value("views")
    watched.get_by_role("button", name="Show", exact=True).click()
    expect(watched.locator("#answer")).to_contain_text("shop.example")
    assert "where=views%3E%3D1" in watched.url


def test_a_late_answer_does_not_replace_newer_rows(watched: Page) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    watched.route("**/data/rows?*", hold, times=1)
    with watched.expect_request("**/data/rows?*"):
        open_page(watched, "view?name=page_views")
    watched.get_by_label("Rows per page").fill("5")
    watched.get_by_role("button", name="Show", exact=True).click()
    rows = watched.locator("#answer tbody tr")
    expect(rows).to_have_count(5)
    let_through(late[0], watched)
    expect(rows).to_have_count(5)


def test_a_value_that_is_cut_is_marked_and_a_row_without_its_whole_key_is_not_explained(watched: Page) -> None:
    change_answer(watched, re.compile(r"data/rows\?"), lambda found: found.update(cut=[[0, 0]]))
    open_page(watched, "view?name=page_views")
    rows = watched.locator("#answer tbody tr")
    expect(rows.nth(0).locator("td").first).to_have_text(re.compile("…$"))
    expect(watched.locator("#answer")).to_contain_text("A saved file has the whole value.")
    expect(rows.nth(0).get_by_role("link", name="Explain")).to_have_count(0)
    expect(rows.nth(1).get_by_role("link", name="Explain")).to_have_count(1)


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_users_without_the_right_see_what_saving_and_repairing_require(watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    expect(watched.locator("#answer tbody tr").first).to_be_visible()
    for page in ("view?name=page_views", "reconciliation?id=59"):
        open_page(watched, page)
        expect(watched.locator("[data-act]")).to_have_text(["Compare now", "Repair this view"])
        assert watched.locator("a[download], [data-act]:enabled").count() == 0
        reason = "Requires permission to trigger the reconcile DAG. By default, the roles User, Op and Admin have it."
        expect(watched.locator("#form")).to_contain_text(reason)
        expect(watched.locator("body")).to_contain_text(f"Save: {reason}" if "id=" in page else "Save and explain: ")


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_rows_are_saved_as_shown(watched: Page) -> None:
    open_page(watched, "view?name=page_views&where=host%3D%3DHYPERLINK(1)")
    with watched.expect_download() as saved:
        watched.get_by_role("link", name="CSV").click()
    head, row = Path(saved.value.path()).read_text().splitlines()
    assert (head, row.split(",")[1]) == ("minute,host,page,browser,views", '"""=HYPERLINK(1)"""')


def test_the_lineage_of_a_view_consists_of_links(watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    boxes = watched.locator(".lineage .box > strong a")
    assert [each.get_attribute("href") for each in boxes.all()] == [
        "quality?of=page_view",
        "record?topic=page_view",
        "lag?reader=page_views",
        "view?name=page_views&relation=",
        "view?name=page_views&relation=page_views_busiest",
    ]
    boxes.last.click()
    expect(watched.locator("#answer thead")).to_contain_text("host")
    expect(watched.locator("#answer tbody tr")).to_have_count(3 + len(HOSTILE))
    links = watched.locator("p.related a")
    expect(links.first).to_have_text("Stream: stream")
    change_answer(watched, re.compile(r"data/view\?"), lambda found: found["entry"].update(batch_only=True))
    watched.reload()
    expect(links.first).to_have_text("Reconciliations")  # no stream runs a view that is built once a day


def test_views_and_reconciliations_are_searched_and_sorted(watched: Page) -> None:
    open_page(watched, "views")
    watched.get_by_label("Search").fill("AUDIENCE")
    expect(watched.locator("main tbody tr")).to_have_count(1)
    watched.reload()
    expect(watched.locator("main tbody tr")).to_have_count(1)
    watched.get_by_label("Search").fill("")
    watched.get_by_role("button", name="Rows").click()
    expect(watched.get_by_role("columnheader", name="Rows")).to_have_attribute("aria-sort", "descending")
    expect(watched.locator("main tbody tr").first).to_have_attribute("data-key", "page_views")
    open_page(watched, "reconciliations")
    watched.get_by_label("Verdict", exact=True).select_option("UNKNOWN")
    expect(watched.locator("main tbody tr")).to_have_count(1)
    expect(watched.locator("main tbody")).to_contain_text("1,204 events behind")
    assert "verdict=UNKNOWN" in watched.url
    watched.get_by_label("Before (UTC)").fill("2020-01-01T00:00")
    watched.get_by_label("Before (UTC)").press("Tab")
    expect(watched.locator("main")).to_contain_text("No reconciliations match.")


def test_a_range_of_days_is_chosen_with_the_keyboard(watched: Page) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    open_page(watched, "backfills")
    cells = watched.get_by_role("gridcell")
    expect(cells.first).to_have_attribute("aria-label", re.compile("broken, .*: Never recomputed"))
    cells.first.focus()
    for key in ("ArrowDown", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        watched.keyboard.press(key)
    row = watched.locator("[role=gridcell][data-view=click_through]")
    days = [row.nth(number).get_attribute("data-day") for number in (1, 3)]
    assert str(row.last.get_attribute("data-day")) >= today  # midnight may pass
    form = watched.get_by_role("form", name="Backfill")
    assert [form.get_by_label(name).last.input_value() for name in ("From", "To")] == days
    assert row.nth(3).evaluate("cell => cell === document.activeElement")
    expect(watched.locator("[role=gridcell][tabindex='0']")).to_have_count(1)
    expect(row.nth(2)).to_have_attribute("aria-selected", "true")
    expect(row.nth(4)).to_have_attribute("aria-selected", "false")


def test_the_form_of_a_backfill_comes_first_and_its_views_are_searched(watched: Page) -> None:
    open_page(watched, "backfills")
    form = watched.get_by_role("form", name="Backfill")
    last = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    expect(form.get_by_label("From").last).to_have_value(last)
    assert watched.locator("#form > *").first.evaluate("first => first.tagName") == "FORM"
    form.locator("#views summary").click()
    form.get_by_role("searchbox").fill("audience")
    expect(form.locator(".picker label:visible")).to_have_text(["page_audience"])
    form.get_by_role("button", name="No views").click()
    expect(form.locator("[name=views]:checked")).to_have_count(4)  # the views that the search hides stay chosen


def test_certificates_are_listed_and_their_verification_is_requested(
    planned: Settings, users: dict[str, Airflow], watched: Page
) -> None:
    open_page(watched, "certificates")
    expect(watched.locator("main")).to_contain_text("No certificate: broken, page_audience, request_rates.")
    row = watched.locator("main tbody tr").first
    row.get_by_role("button", name="Verify").click()
    watched.locator("dialog").get_by_role("button", name="Verify", exact=True).click()
    expect(row).to_contain_text("Pending")
    assert users["oncall"].runs("verify")[0]["triggering_user_name"] == "admin"


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_a_user_without_the_right_sees_no_record(watched: Page) -> None:
    open_page(watched, "record?topic=page_view&partition=0&offset=1")
    expect(watched.locator("main")).to_contain_text("You may not look at records")
    expect(watched.locator("main")).to_contain_text("No view skips a record.")


def test_a_record_is_shown_as_text(archived: Settings, planned: Settings, watched: Page) -> None:
    open_page(watched, "record")
    watched.get_by_role("link", name="page_view 0:2").click()
    found = watched.locator("main")
    expect(found.locator("h1")).to_have_text("page_view 0:2")
    expect(found).to_contain_text("Invalid")
    expect(found.locator("[data-key=page_audience]")).to_contain_text("DivideByZero: by <zero>")
    form = watched.get_by_role("form", name="Record")
    form.get_by_label("Offset").fill("0")
    form.get_by_role("button").click()
    expect(found).to_contain_text("http://h/<img src=x>")
    assert found.locator("img").count() == 0
    sums = found.locator("[data-key=page_views]")
    expect(sums).to_contain_text("Choose a row of the view, and Explain lists the records behind it.")
    expect(sums.get_by_role("link", name="Choose a row")).to_have_attribute("href", "view?name=page_views")
    form.get_by_label("Offset").fill("1")
    form.get_by_role("button").click()
    expect(found.locator(".raw")).to_have_text('{"event_id": "\\xff⟨07⟩"')


def test_the_newest_records_of_a_topic_lead_to_each_record(archived: Settings, watched: Page) -> None:
    open_page(watched, "record")
    form = watched.get_by_role("form", name="Newest of a topic")
    form.get_by_label("Topic of the list").select_option("page_view")
    form.get_by_label("Key").fill("k")
    form.get_by_role("button", name="List records").click()
    expect(watched.locator("tr[data-key='0:2']")).to_contain_text("Invalid")
    expect(watched.locator("tr[data-key='0:0']")).to_contain_text("http://h/<img src=x>")
    expect(watched.get_by_role("button", name="Older records")).to_be_disabled()
    watched.reload()
    watched.get_by_role("link", name="0:1", exact=True).click()
    expect(watched.get_by_role("heading", name="page_view 0:1")).to_be_visible()
    expect(watched.get_by_role("button", name="Older records")).to_have_count(0)
