"""Tests of the pages in Chromium, inside Airflow, as Viewer, User and Admin: `make browser`.

`make test` does not collect this file, because no Python package installs a browser.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from runtime.airflow_client import Airflow
from tests.pages.backfills import wanted
from tests.pages.browsing import change_answer, framed, is_wide_enough, open_page
from tests.pages.conftest import USERS
from tests.pages.plausible import HOSTILE, PAID
from truelog.control import application
from truelog.control.application import ARCHIVE, STREAM
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings

RESTART = "Restart: Requires permission to clear tasks of its DAG. By default, the roles User, Op and Admin have it."
STOP = "Stop: Requires permission to edit the connection spark_default. By default, the roles Op and Admin have it."
# The buttons that each user may use, and what the others require.
BUTTONS: dict[str, tuple[list[str], list[str]]] = {
    "analyst": ([], [RESTART, STOP]),
    "oncall": (["Restart"], [STOP]),
    "admin": (["Restart", "Stop"], []),
}


@pytest.fixture(scope="module")
def backfilled(planned: Settings, users: dict[str, Airflow]) -> None:
    """One cancelled backfill."""
    made = users["oncall"].ask("POST", "/api/v2/backfills", wanted())["id"]
    users["oncall"].ask("PUT", f"/api/v2/backfills/{made}/cancel")


@pytest.mark.parametrize(("watched", "rights"), BUTTONS.items(), indirect=["watched"])
def test_a_button_that_a_user_may_not_use_says_what_it_requires(
    watched: Page, rights: tuple[list[str], list[str]]
) -> None:
    usable, reasons = rights
    open_page(watched, "streams")
    stream = watched.locator(f"[data-application={STREAM}]")
    assert stream.locator("[data-act]").all_inner_texts() == ["Restart", "Stop"]
    assert stream.locator("[data-act]:enabled").all_inner_texts() == usable
    assert stream.locator(".refusals small").all_inner_texts() == reasons


RIGHTS = {"analyst": ("Read only", 9), "oncall": ("Some actions are not yours", 1)}


@pytest.mark.parametrize(("watched", "said"), RIGHTS.items(), indirect=["watched"])
def test_the_header_says_once_what_a_user_may_not_do(watched: Page, said: tuple[str, int]) -> None:
    open_page(watched, "alerts")
    rights = watched.locator("#rights")
    rights.locator("summary").click()
    assert (rights.locator("summary").inner_text(), rights.locator("dt").count()) == said
    expect(rights.get_by_text("edit the connection")).to_be_visible()
    expect(rights.get_by_text("Commands in a text need a shell")).to_be_visible()


@pytest.mark.parametrize("watched", ["admin"], indirect=True)
def test_the_header_says_nothing_to_a_user_who_may_do_everything(watched: Page) -> None:
    with watched.expect_response("**/data/rights"):
        open_page(watched, "alerts")
    expect(watched.locator("#rights")).to_be_hidden()


def test_the_grid_of_days_follows_the_comparisons(backfilled: None, watched: Page) -> None:
    """One that a backfill has triggered at once, and any other within a minute."""

    def end(found: dict[str, Any]) -> None:
        found["backfills"][0]["days"][0]["report"] = "reconcile__1"

    watched.clock.install()
    open_page(watched, "backfills")
    expect(watched.get_by_role("gridcell").first).to_be_visible()
    with watched.expect_request("**/data/partials?*"):
        change_answer(watched, re.compile(r"data/backfills\?"), end)
    with watched.expect_request("**/data/partials?*"):
        watched.clock.fast_forward(60_000)


def test_input_that_is_not_read_is_shown_with_its_reason(unread: None, watched: Page) -> None:
    open_page(watched, "streams")
    topic, file = watched.locator("[data-unread] tbody tr").all()
    expect(topic).to_contain_text(re.compile("Topic click.*archive"))
    expect(topic).to_contain_text(f"click was deleted. {HOSTILE[0]}")
    expect(file).to_contain_text(re.compile(r"Event file order\.py.*All processes"))
    expect(file).to_contain_text(f"'(' was never closed. {HOSTILE[1]}")
    assert watched.locator("main img, main script").count() == 0
    assert is_wide_enough(watched)


def test_hostile_values_are_shown_as_text(watched: Page) -> None:
    open_page(watched, "view?name=page_views")
    rows = watched.locator("#answer")
    expect(rows).to_contain_text("50 rows")
    for value in (HOSTILE[0], HOSTILE[1], HOSTILE[2], "bell⟨07⟩ escape⟨1B⟩[31m tab⟨09⟩right to left⟨202E⟩ end"):
        expect(rows).to_contain_text(value)
    expect(rows).to_contain_text("(empty string)")
    expect(rows.locator("tbody .null", has_text="NULL").first).to_be_visible()
    open_page(watched, "reconciliation?id=59")
    expect(watched.locator("main")).to_contain_text(HOSTILE[0])
    expect(watched.locator("main")).to_contain_text(f"Wrong value by hand (1 row): {HOSTILE[1]}")
    expect(watched.locator("main")).to_contain_text("Only in the stream (wrong value by hand)")
    for digits in PAID:
        expect(watched.locator("main")).to_contain_text(digits)
    assert watched.locator("main img, main script").count() == 0
    assert watched.title().endswith("Truelog")


def test_quality_shows_failures_and_metrics_that_were_not_checked(watched: Page) -> None:
    open_page(watched, "quality")
    expect(watched.locator("main")).to_contain_text(f"usually 1,050 {HOSTILE[0]}")
    for verdict in ("Passed", "Failed", "Not checked"):
        expect(watched.locator(".badge", has_text=verdict).first).to_be_visible()
    watched.locator("summary").last.click()
    expect(watched.locator("details[open]")).to_contain_text("not enough history: 0 preceding log days")
    expect(watched.get_by_role("link", name="Data Docs").first).to_be_visible()
    drawings = watched.locator("figure.chart svg[role=img]").all()
    assert len(drawings) == 2
    for drawing in drawings:
        ticks = drawing.locator("text[text-anchor=end]").all_text_contents()
        assert len(set(ticks)) == len(ticks)  # two equal ticks would be two values


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_the_last_ended_day_is_validated_on_request(
    planned: Settings, users: dict[str, Airflow], watched: Page
) -> None:
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
    open_page(watched, "quality")
    cell = watched.get_by_role("cell", name=f"page_view, {yesterday}: Failed")
    expect(cell).to_have_attribute("title", re.compile("usually 1,050"))
    form = watched.get_by_role("form", name="Validate a log day")
    form.get_by_label("Event type").select_option("page_view")
    form.get_by_role("button", name="Validate now").click()
    watched.locator("dialog").get_by_role("button", name="Validate").click()
    expect(watched.locator("#form")).to_contain_text("Started: ")
    [run] = users["oncall"].runs("quality")
    assert run["conf"] == {"day": f"{yesterday}T00:00:00Z", "events": ["page_view"]}
    assert run["triggering_user_name"] == "oncall"


def test_data_docs_run_no_scripts(signed_in: dict[str, BrowserContext]) -> None:
    """The stored page was never sanitised, as if the sanitiser had failed."""
    page = signed_in["analyst"].new_page()
    page.goto("/truelog/reconciliations")
    page.locator("a[href='data-docs/1']").first.click()
    expect(page.locator("h1")).to_have_text("Data Docs")
    page.wait_for_load_state()
    assert page.locator("script").count() == 1  # the script is in the page but has not run
    assert page.title() == ""
    page.get_by_role("link", name="Back to comparison 1 of page_views").click()
    rules = page.locator("[data-key='the streamed table equals its rebuild']")
    expect(rules).to_have_text(f"The streamed table equals its rebuildEQUAL{HOSTILE[0]}Passed")
    expect(page.locator("[data-key='views > 0']")).to_contain_text("0 rows break it")


def test_a_restart_is_confirmed_and_recorded(pages: Settings, signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["oncall"].new_page()
    open_page(page, "streams")
    page.locator(f"[data-application={ARCHIVE}] [data-act=restart]").click()
    page.get_by_role("button", name="Cancel").click()
    page.locator(f"[data-application={ARCHIVE}] [data-act=restart]").click()
    page.get_by_role("button", name=f"Restart {ARCHIVE}").click()
    expect(page.locator(f"[data-application={ARCHIVE}] .badge").first).to_have_text("Restart pending")
    with connect(pages) as connection:
        requests = [
            each for each in audit_trail.latest_operations(connection, 100, "restart") if each.subject == ARCHIVE
        ]
        assert [each.doer for each in requests] == ["oncall"]
        assert str(application.load_status(connection, ARCHIVE).wish).startswith("oncall, ")
    open_page(page, "operations")
    expect(page.locator("tbody tr").first).to_contain_text("oncall")


def test_on_call_users_acknowledge_alerts_and_everyone_reads_runbooks(signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["analyst"].new_page()
    open_page(page, "alerts")
    new = page.locator("[data-alert='stalled/page_audience']")
    expect(new).to_contain_text(HOSTILE[0])
    assert page.locator("button:enabled").count() == 0
    expect(new.get_by_role("button", name="Acknowledge")).to_have_attribute("title", re.compile("streams DAG"))
    expect(page.locator("#form")).to_contain_text("Requires permission to trigger the streams DAG.")
    new.locator("summary").click()
    expect(new.locator(".runbook")).to_contain_text("Impact.")
    page = signed_in["oncall"].new_page()
    open_page(page, "alerts")
    page.locator("[data-alert='stalled/page_audience'] [data-act=acknowledge]").click()
    expect(page.locator("[data-alert='stalled/page_audience']")).to_contain_text("Acknowledged by oncall")
    page.get_by_role("button", name="Silence alerts…").click()
    page.get_by_label("Alerts", exact=True).fill("disk_low/*")
    page.get_by_label("Reason", exact=True).fill("a new disk")
    page.get_by_role("button", name="Silence", exact=True).dblclick()
    made = page.get_by_role("row", name="disk_low/*")
    expect(made).to_contain_text("a new disk")
    made.get_by_role("button").click()
    expect(made).to_have_count(0)


def choose(page: Page, first: str, last: str, mode: str = "Repair differing rows") -> None:
    form = page.get_by_role("form", name="Backfill")
    form.get_by_label("From").last.fill(first)
    form.get_by_label("To").last.fill(last)
    form.get_by_label("Mode").select_option(mode)
    form.get_by_role("button", name="Backfill").click()


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_users_without_permission_see_who_may_backfill(backfilled: None, watched: Page) -> None:
    open_page(watched, "backfills")
    expect(watched.locator("[data-backfill]").first).to_be_visible()
    assert watched.locator("form, button:enabled").count() == 0
    expect(watched.locator("#form")).to_contain_text("Requires permission to trigger the recompute DAG.")


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_a_backfill_is_checked_confirmed_paused_and_cancelled(backfilled: None, watched: Page) -> None:
    open_page(watched, "backfills")
    dialog, today = watched.locator("dialog"), f"{datetime.now(UTC):%Y-%m-%d}"
    for first, last, why in (
        ("2026-10-02", "2026-10-01", "ends before it begins"),
        ("2999-01-01", "2999-01-02", "is in the future"),
        (today, today, "No day in this range"),
    ):
        choose(watched, first, last)
        expect(dialog).to_contain_text(why)
        dialog.get_by_role("button", name="OK").click()
    watched.locator("#views summary").click()
    watched.get_by_label("click_through", exact=True).uncheck()
    choose(watched, "2026-10-01", "2026-10-07", "Compare only")
    expect(dialog).to_contain_text(
        "From 2026-10-01 to 2026-10-07. Views: broken, page_audience, page_views, request_rates."
    )
    expect(dialog).to_contain_text("repairs nothing")
    dialog.get_by_role("button", name="Backfill 7 days").click()
    made = watched.locator("[data-backfill]").first
    expect(made).to_contain_text("0 of 7 days done")
    expect(made).to_contain_text("Compares only. Started by oncall")
    made.get_by_role("button", name="Pause", exact=True).click()
    expect(made.locator("h2 .badge")).to_have_text("Paused")
    choose(watched, "2026-10-08", "2026-10-08")
    dialog.get_by_role("button", name="Backfill 1 day").click()
    expect(dialog).to_contain_text("Another backfill of recompute is running")
    dialog.get_by_role("button", name="Cancel").click()
    made.get_by_role("button", name="Cancel").click()
    expect(made.locator("h2 .badge")).to_have_text("Failed")


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_days_that_the_user_chose_stay_when_the_days_of_the_log_arrive(backfilled: None, watched: Page) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    watched.route("**/data/partials*", hold)
    with watched.expect_request("**/data/partials*"):
        open_page(watched, "backfills")
    first = watched.get_by_role("form", name="Backfill").get_by_label("From").last
    first.fill("2026-10-02")
    late[0].continue_()
    expect(watched.get_by_role("gridcell").first).to_be_visible()
    expect(first).to_have_value("2026-10-02")


def test_a_day_links_to_its_run_outside_the_frame(backfilled: None, watched: Page) -> None:
    watched.goto("/plugin/truelog/truelog/backfills")
    framed(watched).get_by_role("link", name="2026-11-01").first.click()
    watched.wait_for_url(re.compile(r"/dags/recompute/runs/backfill__2026-11-02"))


def test_data_that_cannot_be_refreshed_is_marked_as_old(signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["analyst"].new_page()
    open_page(page, "streams")
    page.route("**/data/streams", lambda route: route.fulfill(status=503, json={"detail": "PostgreSQL did not answer"}))
    expect(page.get_by_role("alert")).to_contain_text("PostgreSQL did not answer. The data below is from")
    expect(page.locator("main.old article").first).to_be_visible()
    page.unroute("**/data/streams")
    expect(page.locator("#trouble")).to_be_hidden()


# The colour behind a node, as red, green and blue.
GROUND = """node => {
  const colour = (each) => getComputedStyle(each).backgroundColor;
  while (node.parentElement && /, 0\\)$|transparent/.test(colour(node))) node = node.parentElement;
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = colour(node);
  pen.fillRect(0, 0, 1, 1);
  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
}"""


def test_inside_airflow_a_page_follows_its_theme(watched: Page) -> None:
    watched.goto("/plugin/truelog")
    page = framed(watched)
    expect(page.locator("article").first).to_be_visible()
    for theme in ("dark", "light"):
        watched.evaluate(
            "theme => { document.documentElement.classList.remove('dark', 'light'); "
            "document.documentElement.classList.add(theme) }",
            theme,
        )
        expect(page.locator(f"html[data-theme={theme}]")).to_be_attached()
        around = watched.locator("iframe").evaluate(GROUND)
        assert page.locator("body").evaluate(GROUND) == pytest.approx(around, abs=4)


@pytest.mark.parametrize("watched", USERS, indirect=True)
def test_the_card_shows_the_worst_numbers(watched: Page) -> None:
    watched.goto("/")
    card = watched.get_by_role("region", name="Truelog", exact=True)
    expect(card).to_contain_text("As of")
    for text in ("0.4 s", "42", "No certificate", "page_audience"):
        expect(card).to_contain_text(text)


def test_the_card_shows_problems_with_links(archive_down: None, watched: Page) -> None:
    watched.goto("/")
    card = watched.get_by_role("region", name="Truelog", exact=True)
    expect(card.get_by_role("status")).to_contain_text("Critical: 3 open alerts")
    expect(card).to_have_attribute("data-state", "Critical")
    tile = card.get_by_role("link").first
    expect(tile).to_contain_text("Open alerts3Critical: click_through")
    expect(tile).to_have_attribute("href", re.compile(r"/plugin/truelog/truelog/alerts$"))
    for problem, page in (
        ("archive is down", "streams"),
        ("page_audience is stalled", "view?name=page_audience"),
        ("request_rates has no table yet", "view?name=request_rates"),
    ):
        link = card.get_by_role("list", name="Problems").get_by_role("link", name=problem)
        expect(link).to_have_attribute("href", re.compile(f"/plugin/truelog/truelog/{re.escape(page)}$"))
    card.get_by_role("link", name="page_audience is stalled").click()
    expect(framed(watched).locator("main")).to_contain_text("page_audience")


def test_the_first_answer_does_not_move_the_card(watched: Page) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    watched.route("**/data/vitals", hold)
    watched.goto("/")
    card = watched.get_by_role("region", name="Truelog", exact=True)
    tile = card.get_by_role("link", name="Open alerts")
    expect(card.get_by_role("status")).to_have_text("Loading…")
    expect(tile).to_contain_text("…")
    before = tile.bounding_box()
    late[0].continue_()
    expect(card).to_contain_text("As of")
    after = tile.bounding_box()
    assert before
    assert after
    assert before["y"] == after["y"]


@pytest.mark.parametrize("status", [403, 503])
def test_a_card_without_an_answer_is_unknown_and_shows_no_number(
    signed_in: dict[str, BrowserContext], status: int
) -> None:
    page = signed_in["analyst"].new_page()
    page.clock.install()
    page.goto("/")
    card = page.get_by_role("region", name="Truelog", exact=True)
    expect(card).to_contain_text("As of")
    page.route("**/data/vitals", lambda route: route.fulfill(status=status, json={"detail": "away"}))
    page.clock.fast_forward(15_000)
    expect(card.get_by_role("status")).to_contain_text("Unknown: ")
    expect(card).to_have_attribute("data-state", "Unknown")
    assert card.get_by_role("link").count() == 0
