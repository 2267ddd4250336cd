"""The pages in Chromium, as Viewer, User and Admin see them inside Airflow: `make browser`.

Apart from the tests that `make test` finds, since no package that Python installs brings a browser.
"""

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, BrowserContext, Frame, Page, ViewportSize, expect, sync_playwright

from runtime.airflow import address
from runtime.airflow_client import Airflow, password
from tests.pages.conftest import USERS
from tests.pages.plausible import HOSTILE
from tests.pages.test_backfills import wanted
from truelog.control import application
from truelog.control.application import ARCHIVE, STREAM
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings

NAMES = ("chromium", "chromium-browser", "google-chrome")
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
REFUSED = re.compile("status of (400|409)")  # what somebody typed wrongly, or what another did before
PAGES = (
    "streams",
    "views",
    "view?name=page_views",
    "reconciliations",
    "reconciliation?id=59",
    "backfills",
    "lag?reader=page_audience&hours=6",
    "alerts",
    "operations",
    "quality",
    "quality?of=dead_letter",
)
BUTTONS = {"analyst": [], "oncall": ["restart"], "admin": ["restart", "stop"]}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"none of {', '.join(NAMES)} is installed: install Chromium as this system does, and try again"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])  # root has none
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def backfilled(planned: Settings, users: dict[str, Airflow]) -> None:
    """One backfill is there, and over."""
    made = users["oncall"].ask("POST", "/api/v2/backfills", wanted())["id"]
    users["oncall"].ask("PUT", f"/api/v2/backfills/{made}/cancel")


@pytest.fixture(scope="module")
def signed_in(pages: Settings, chromium: Browser) -> dict[str, BrowserContext]:
    """A browser of each user; Airflow's form signs them in."""
    contexts = {user: chromium.new_context(viewport=LAPTOP, base_url=address(pages)) for user in USERS}
    for user, context in contexts.items():
        page = context.new_page()
        page.goto("/auth/login/")
        form = page.locator("form[name=login]")
        form.locator("input[name=username]").fill(user)
        form.locator("input[name=password]").fill(password(pages, user))
        form.locator("[type=submit]").click()
        page.wait_for_url(re.compile(r"/(\?.*)?$"))
        page.close()
    return contexts


@pytest.fixture
def watched(signed_in: dict[str, BrowserContext], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A new page of the user whom the test is about, `admin` by default; no script of ours may fail on it unseen."""
    page = signed_in[getattr(request, "param", "admin")].new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield page
    page.close()
    assert [each for each in wrong if not REFUSED.search(each)] == []


def drawn(page: Page, name: str) -> None:
    """Go there, and wait until data is shown."""
    page.goto(f"/truelog/{name}")
    expect(page.locator("#as-of")).to_contain_text("as of")


def is_wide_enough(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


@pytest.mark.parametrize("watched", USERS, indirect=True)
def test_everybody_reads_every_page(backfilled: None, watched: Page) -> None:
    for name in PAGES:
        drawn(watched, name)
        expect(watched.locator("main :is(table, article)").first).to_be_visible()
        assert watched.locator("#trouble").is_hidden()
        assert "null" not in watched.locator("main").inner_text().split()
        assert is_wide_enough(watched), name
        assert watched.title().endswith("Truelog")  # no value has run


@pytest.mark.parametrize(("watched", "buttons"), BUTTONS.items(), indirect=["watched"])
def test_who_may_act_has_the_button(watched: Page, buttons: list[str]) -> None:
    drawn(watched, "streams")
    assert watched.locator(f"[data-application={STREAM}] [data-act]").all_inner_texts() == buttons


def test_hostile_values_are_shown_as_text(watched: Page) -> None:
    drawn(watched, "view?name=page_views")
    rows = watched.locator("#answer")
    expect(rows).to_contain_text("50 rows")
    for value in (HOSTILE[0], HOSTILE[1], HOSTILE[2], "bell⟨07⟩ escape⟨1B⟩[31m tab⟨09⟩right to left⟨202E⟩ end"):
        expect(rows).to_contain_text(value)
    expect(rows).to_contain_text("(empty text)")
    expect(rows.locator("tbody .null", has_text="NULL").first).to_be_visible()
    drawn(watched, "reconciliation?id=59")
    expect(watched.locator("main")).to_contain_text(HOSTILE[0])
    expect(watched.locator("main")).to_contain_text(f"wrong value by hand, 1 rows: {HOSTILE[1]}")
    expect(watched.locator("main")).to_contain_text("only streamed, wrong value by hand")
    assert watched.locator("main img, main script").count() == 0
    assert watched.title().endswith("Truelog")


def test_what_is_not_as_it_should_be_is_shown_and_says_so(watched: Page) -> None:
    drawn(watched, "quality")
    expect(watched.locator("main")).to_contain_text(f"usually 1,050 {HOSTILE[0]}")
    for verdict in ("HOLDS", "FAILS", "NOT JUDGED"):
        expect(watched.locator(".badge", has_text=verdict).first).to_be_visible()
    watched.locator("summary").last.click()
    expect(watched.locator("details[open]")).to_contain_text("not enough history: 0 log days before")
    expect(watched.get_by_role("link", name="Data Docs").first).to_be_visible()


def test_data_docs_run_nothing_whatever_is_in_them(signed_in: dict[str, BrowserContext]) -> None:
    """This page was never made harmless, as if what does so had failed."""
    page = signed_in["analyst"].new_page()
    page.goto("/truelog/reconciliations")
    page.locator("a[href='data-docs/1']").first.click()
    expect(page.locator("h1")).to_have_text("Data Docs")
    page.wait_for_load_state()
    assert page.locator("script").count() == 1  # it is there, and has not run
    assert page.title() == ""


def test_rows_are_found_by_a_condition(watched: Page) -> None:
    drawn(watched, "view?name=page_views")
    for label, chosen in (("column", "host"), ("operator", "=")):
        watched.get_by_label(label, exact=True).select_option(chosen)
    watched.get_by_label("value", exact=True).fill(HOSTILE[2])
    watched.get_by_role("button", name="show").click()
    expect(watched.locator("#answer")).to_contain_text("1 rows, as of")
    watched.get_by_label("column", exact=True).select_option("views")
    watched.get_by_role("button", name="show").click()
    expect(watched.get_by_role("alert").filter(has_text="invalid input syntax")).to_be_visible()


def test_a_restart_is_asked_twice_and_noted(pages: Settings, signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["oncall"].new_page()
    drawn(page, "streams")
    page.locator(f"[data-application={ARCHIVE}] [data-act=restart]").click()
    page.get_by_role("button", name="leave it").click()
    page.locator(f"[data-application={ARCHIVE}] [data-act=restart]").click()
    page.get_by_role("button", name=f"restart {ARCHIVE}").click()
    expect(page.locator(f"[data-application={ARCHIVE}] .badge").first).to_have_text("RESTART_PENDING")
    with connect(pages) as connection:
        asked = [each for each in audit_trail.latest_operations(connection, 100, "restart") if each.subject == ARCHIVE]
        assert [each.doer for each in asked] == ["oncall"]
        assert str(application.status(connection, ARCHIVE).wish).startswith("oncall, ")
    drawn(page, "operations")
    expect(page.locator("tbody tr").first).to_contain_text("oncall")


def test_an_alert_is_acknowledged_and_its_runbook_read(signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["analyst"].new_page()
    drawn(page, "alerts")
    new = page.locator("[data-alert='stalled/page_audience']")
    expect(new).to_contain_text(HOSTILE[0])
    assert page.locator("button").count() == 0
    new.locator("summary").click()
    expect(new.locator(".runbook")).to_contain_text("What it costs.")
    page = signed_in["oncall"].new_page()
    drawn(page, "alerts")
    page.locator("[data-alert='stalled/page_audience'] [data-act=acknowledge]").click()
    expect(page.locator("[data-alert='stalled/page_audience']")).to_contain_text("oncall works on it")
    page.get_by_label("keys", exact=True).fill("disk_low/*")
    page.get_by_label("why", exact=True).fill("a new disk")
    page.get_by_role("button", name="silence").click()
    made = page.get_by_role("row", name="disk_low/*")
    expect(made).to_contain_text("a new disk")
    made.get_by_role("button").click()
    expect(made).to_have_count(0)


def choose(page: Page, first: str, last: str, mode: str = "repair what differs") -> None:
    form = page.get_by_role("form", name="backfill")
    form.get_by_label("from").last.fill(first)
    form.get_by_label("to").last.fill(last)
    form.get_by_label("mode").select_option(mode)
    form.get_by_role("button").click()


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_who_may_not_backfill_is_not_offered_it(backfilled: None, watched: Page) -> None:
    drawn(watched, "backfills")
    expect(watched.locator("[data-backfill]").first).to_be_visible()
    assert watched.locator("form, button").count() == 0


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_days_are_backfilled_and_only_compared(backfilled: None, watched: Page) -> None:
    drawn(watched, "backfills")
    dialog, today = watched.locator("dialog"), f"{datetime.now(UTC):%Y-%m-%d}"
    for first, last, why in (
        ("2026-10-02", "2026-10-01", "ends before it begins"),
        ("2999-01-01", "2999-01-02", "is to come"),
        (today, today, "No day of this range"),
    ):
        choose(watched, first, last)
        expect(dialog).to_contain_text(why)
        dialog.get_by_role("button", name="I see").click()
    watched.get_by_label("click_through").uncheck()
    choose(watched, "2026-10-01", "2026-10-07", "compare only")
    expect(dialog).to_contain_text("2026-10-01 to 2026-10-07, of broken, page_audience, page_views, request_rates.")
    expect(dialog).to_contain_text("repairs nothing")
    dialog.get_by_role("button", name="backfill 7 days").click()
    made = watched.locator("[data-backfill]").first
    expect(made).to_contain_text("0 of 7 days done")
    expect(made).to_contain_text("compares only, asked for by oncall")
    made.get_by_role("button", name="pause", exact=True).click()
    expect(made.locator("h2 .badge")).to_have_text("paused")
    choose(watched, "2026-10-08", "2026-10-08")
    dialog.get_by_role("button", name="backfill 1 days").click()
    expect(dialog).to_contain_text("a backfill of recompute is under way")
    dialog.get_by_role("button", name="leave it").click()
    made.get_by_role("button", name="cancel").click()
    expect(made.locator("h2 .badge")).to_have_text("failed")


def test_a_day_leads_to_its_run_out_of_airflows_frame(backfilled: None, watched: Page) -> None:
    watched.goto("/plugin/truelog-backfills")
    framed(watched).get_by_role("link", name="2026-11-01").first.click(timeout=20_000)
    watched.wait_for_url(re.compile(r"/dags/recompute/runs/backfill__2026-11-02"), timeout=20_000)


def test_what_cannot_be_asked_anew_is_shown_as_old(signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["analyst"].new_page()
    drawn(page, "streams")
    page.route("**/data/streams", lambda route: route.fulfill(status=503, json={"detail": "PostgreSQL did not answer"}))
    expect(page.get_by_role("alert")).to_contain_text("PostgreSQL did not answer. What is shown is of")
    expect(page.locator("main.old article").first).to_be_visible()
    page.unroute("**/data/streams")
    expect(page.locator("#trouble")).to_be_hidden(timeout=20_000)


def test_inside_airflow_a_page_follows_its_theme(watched: Page) -> None:
    watched.goto("/plugin/truelog-streams")
    page = framed(watched)
    expect(page.locator("article").first).to_be_visible(timeout=20_000)
    for theme in ("dark", "light"):
        watched.evaluate(
            "theme => { document.documentElement.classList.remove('dark', 'light'); "
            "document.documentElement.classList.add(theme) }",
            theme,
        )
        expect(page.locator(f"html[data-theme={theme}]")).to_be_attached()


def framed(page: Page) -> Frame:
    page.locator("iframe").wait_for(timeout=20_000)
    found = page.locator("iframe").element_handle()
    assert found
    frame = found.content_frame()
    assert frame
    return frame


@pytest.mark.parametrize("watched", USERS, indirect=True)
def test_the_dashboard_shows_the_numbers_that_matter(watched: Page) -> None:
    watched.goto("/")
    card = watched.get_by_role("region", name="Truelog", exact=True)
    expect(card).to_contain_text("as of", timeout=20_000)
    for said in ("0.4 s", "42", "no certificate", "page_audience"):
        expect(card).to_contain_text(said)


def test_the_dashboard_says_what_is_wrong_and_where_to_act(dead_archive: None, watched: Page) -> None:
    watched.goto("/")
    card = watched.get_by_role("region", name="Truelog", exact=True)
    expect(card.get_by_role("status")).to_contain_text("Critical: 3 open alerts", timeout=20_000)
    expect(card).to_have_attribute("data-state", "Critical")
    tile = card.get_by_role("link").first
    expect(tile).to_contain_text("Open alerts3critical: click_through")
    expect(tile).to_have_attribute("href", re.compile(r"/plugin/truelog-alerts$"))
    for problem, page in (
        ("archive is down", "truelog-streams"),
        ("page_audience is stalled", "truelog-views/truelog/view?name=page_audience"),
        ("request_rates has no table yet", "truelog-views/truelog/view?name=request_rates"),
    ):
        link = card.get_by_role("list", name="Problems").get_by_role("link", name=problem)
        expect(link).to_have_attribute("href", re.compile(f"/plugin/{re.escape(page)}$"))
    card.get_by_role("link", name="page_audience is stalled").click()
    expect(framed(watched).locator("main")).to_contain_text("page_audience", timeout=20_000)


@pytest.mark.parametrize("status", [403, 503])
def test_a_card_without_an_answer_says_unknown_and_shows_no_number(
    signed_in: dict[str, BrowserContext], status: int
) -> None:
    page = signed_in["analyst"].new_page()
    page.clock.install()
    page.goto("/")
    card = page.get_by_role("region", name="Truelog", exact=True)
    expect(card).to_contain_text("as of", timeout=20_000)
    page.route("**/data/vitals", lambda route: route.fulfill(status=status, json={"detail": "away"}))
    page.clock.fast_forward(15_000)
    expect(card.get_by_role("status")).to_contain_text("Unknown: ", timeout=20_000)
    expect(card).to_have_attribute("data-state", "Unknown")
    assert card.get_by_role("link").count() == 0
