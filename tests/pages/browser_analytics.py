"""Tests of the page of figures in Chromium: `make browser`."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect

from tests.builders.comparisons import a_reconciliation
from tests.builders.views import a_lag_sample
from tests.pages.audience import BEGIN, HOSTS, LONG, fill_audience
from tests.pages.axe import accessibility_problems
from tests.pages.browsing import PHONE, beyond_the_width, let_through, open_page
from tests.pages.plausible import HOSTILE
from truelog.storage.database import connect
from truelog.support.settings import Settings

RANGE = f"since={BEGIN + timedelta(hours=1):%Y-%m-%dT%H:%M}&until={BEGIN + timedelta(hours=2):%Y-%m-%dT%H:%M}"
FIXED = f"analytics?view=page_audience&by=host&{RANGE}"
ADDRESSES = ("javascript:document.title='owned'", "data:text/html,<script>alert(1)</script>")
SHOWN = (*HOSTS, LONG[:2_000], *ADDRESSES)


def open_refused(page: Page, name: str, why: str) -> None:
    page.goto(f"/truelog/{name}")
    expect(page.locator("#trouble")).to_contain_text(why)


@pytest.fixture(scope="module")
def audience(filled: Settings) -> Settings:
    with connect(filled, autocommit=True) as connection:
        fill_audience(connection, hosts=SHOWN)
    return filled


def test_a_click_on_a_value_filters_and_the_address_keeps_the_state(audience: Settings, watched: Page) -> None:
    open_page(watched, FIXED)
    rows = watched.locator("main tbody tr")
    expect(rows).to_have_count(len(SHOWN) + 1)  # and the total
    expect(watched.locator("main thead")).to_contain_text("visitors ±2 %")
    expect(watched.locator("figure.chart")).to_contain_text("shop.example")
    with connect(audience) as connection:
        [(views,)] = connection.execute(
            "SELECT sum(views) FROM views.page_audience WHERE minute >= %s AND minute < %s AND host = 'shop.example'",
            (BEGIN + timedelta(hours=1), BEGIN + timedelta(hours=2)),
        ).fetchall()
    cell = watched.locator("tr[data-key='value shop.example'] td").nth(1)
    expect(cell).to_have_text(f"{views:,}")
    watched.get_by_role("button", name="shop.example", exact=True).last.click()
    expect(rows).to_have_count(2)
    watched.reload()
    expect(rows).to_have_count(2)
    expect(rows.first.locator("td").nth(1)).to_have_text(f"{views:,}")
    watched.get_by_role("link", name="Show the rows").click()
    expect(watched.locator("#answer tbody tr").first).to_contain_text("shop.example")
    expect(watched.locator("#answer")).to_contain_text("1 to 50")
    watched.go_back()
    watched.get_by_role("button", name="Remove the filter").click()
    expect(rows).to_have_count(len(SHOWN) + 1)
    assert "where" not in watched.url


def test_cube_range_figure_and_column_are_chosen(audience: Settings, watched: Page) -> None:
    open_page(watched, "analytics")
    form = watched.locator("#form")
    expect(form.get_by_label("Cube").locator("option")).to_have_text(["page_audience", "page_views"])
    form.get_by_label("Cube").select_option("page_audience")
    expect(form.get_by_label("Figure").locator("option")).to_have_count(5)
    form.get_by_label("Figure").select_option("visitors")
    form.get_by_label("Break down by").focus()
    form.get_by_label("Break down by").select_option("host")
    expect(form.get_by_label("Chart")).to_be_visible()
    expect(form.get_by_label("Break down by")).to_be_focused()
    form.get_by_label("Time range").select_option("168")
    expect(watched.locator("main thead")).to_contain_text("visitors before")
    expect(watched.locator("main tbody tr")).to_have_count(len(SHOWN) + 1)
    assert re.search("view=page_audience&hours=168&by=host&order=visitors", watched.url)
    form.get_by_label("Time range").select_option("fixed")
    form.get_by_label("To (UTC)").fill(f"{BEGIN:%Y-%m-%dT%H:%M}")
    expect(watched.locator("main tbody tr")).to_have_count(1)


def test_cubes_that_get_a_table_later_are_offered(audience: Settings, watched: Page) -> None:
    offered: list[list[str]] = [[], ["page_views"], ["page_audience", "page_views"]]
    now = datetime.now(UTC).isoformat()

    def answer(route: Route) -> None:
        route.fulfill(json={"as_of": now, "cubes": offered.pop(0) if len(offered) > 1 else offered[0]})

    watched.route("**/data/cubes", answer)
    open_page(watched, "analytics")
    cube = watched.locator("#form").get_by_label("Cube")
    expect(cube.locator("option")).to_have_text(["page_views"])
    expect(cube.locator("option")).to_have_text(["page_audience", "page_views"])
    expect(cube).to_have_value("page_views")


def test_a_late_answer_about_another_cube_does_not_change_the_form(audience: Settings, watched: Page) -> None:
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    open_page(watched, "analytics?view=page_views")
    form = watched.locator("#form")
    watched.route("**/data/analytics?*hours=168*", hold, times=1)
    with watched.expect_request("**/data/analytics?*hours=168*"):
        form.get_by_label("Time range").select_option("168")
    form.get_by_label("Cube").select_option("page_audience")
    expect(form.get_by_label("Figure").locator("option")).to_have_count(5)
    let_through(late[0], watched)
    expect(form.get_by_label("Cube")).to_have_value("page_audience")
    expect(form.get_by_label("Figure").locator("option")).to_have_count(5)


def test_a_range_with_ends_begins_as_the_chosen_one_before_that_is_answered(audience: Settings, watched: Page) -> None:
    open_page(watched, "analytics")
    form = watched.locator("#form")
    form.get_by_label("Time range").evaluate("""range => {
        for (const value of ["720", "fixed"]) {
            range.value = value;
            range.dispatchEvent(new Event("change"));
        }
    }""")
    since, until = (datetime.fromisoformat(form.get_by_label(f"{end} (UTC)").input_value()) for end in ("From", "To"))
    assert until - since == timedelta(days=30)
    assert (since.minute, until.minute) == (0, 0)  # hourly cubes have no other ranges


def test_bars_compare_values_and_the_sql_of_the_table_is_shown(audience: Settings, watched: Page) -> None:
    open_page(watched, FIXED)
    watched.get_by_label("Chart").select_option("Bars by value")
    drawing = watched.get_by_role("img", name="views by host; the table has the same values")
    expect(drawing.locator("rect.bar")).to_have_count(len(SHOWN))
    expect(drawing.locator("line.earlier")).to_have_count(len(SHOWN))
    widths = drawing.locator("rect.bar").evaluate_all("bars => bars.map((each) => Number(each.getAttribute('width')))")
    assert widths == sorted(widths, reverse=True)  # as the table
    expect(watched.locator("figure.chart")).to_have_count(0)
    watched.get_by_text("SQL", exact=True).click()
    expect(watched.get_by_role("region", name="SQL")).to_contain_text("truelog.distinct_united")
    expect(watched.locator("#sql")).to_contain_text("Only the owner of the database can run this statement.")
    watched.reload()
    expect(drawing.locator("rect.bar")).to_have_count(len(SHOWN))
    watched.get_by_label("Break down by").select_option("Total only")
    expect(watched.locator("figure.chart")).to_have_count(1)
    expect(watched.get_by_label("Chart")).to_have_count(0)


def test_a_refused_question_and_an_empty_range_can_be_changed(audience: Settings, watched: Page) -> None:
    open_refused(watched, "analytics?view=page_audience&by=nosuch&hours=720", "no key column")
    watched.get_by_label("Break down by").select_option("Total only")
    expect(watched.locator("main tbody tr")).to_have_count(1)
    open_refused(watched, "analytics?view=nosuch", "is not a cube")
    watched.get_by_label("Cube").select_option("page_views")
    expect(watched.locator("main tbody tr")).to_have_count(1)
    open_page(watched, f"{FIXED}&where=host%3Dnosuch")
    expect(watched.locator("main")).to_contain_text("No row of the view is in this range")
    expect(watched.locator("figure.chart")).to_have_count(0)
    watched.get_by_role("button", name="Remove the filter").click()
    expect(watched.locator("figure.chart")).to_contain_text("shop.example")
    expect(watched.locator("main caption")).to_contain_text(f"to {BEGIN + timedelta(hours=2):%Y-%m-%d %H:%M} UTC")


@pytest.mark.parametrize("ends", ["now", "in an hour"])
def test_a_range_that_contains_now_is_live(audience: Settings, watched: Page, ends: str) -> None:
    now = datetime.now(UTC)
    fixed = f"since={now - timedelta(hours=1):%Y-%m-%dT%H:%M}&until={now + timedelta(hours=1):%Y-%m-%dT%H:%M}"
    watched.clock.set_fixed_time(now - timedelta(minutes=10))  # the browser's clock is slow
    open_page(watched, f"analytics?view=page_views&{'hours=1' if ends == 'now' else fixed}")
    total = watched.locator("tr[data-key=all] td").nth(1)
    expect(total).to_have_text(re.compile(r"\d"))
    before = int(total.inner_text().replace(",", ""))
    with connect(audience, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO state.page_views_v1 VALUES (%s, 'live', '/', 'b', 1000000)",
            (datetime.now(UTC) - timedelta(minutes=5),),
        )
        try:
            expect(total).to_have_text(re.compile(r"1,00\d,\d{3}"))
        finally:
            connection.execute("DELETE FROM state.page_views_v1 WHERE host = 'live'")
    assert before < 1_000_000


def test_hostile_and_long_values_are_text_and_fit_a_phone(audience: Settings, watched: Page) -> None:
    watched.set_viewport_size(PHONE)
    for address in (FIXED, f"{FIXED}&where={quote('host=' + LONG)}"):
        open_page(watched, address)
        expect(watched.locator("main tbody tr").first).to_be_visible()
        assert beyond_the_width(watched) == []
    expect(watched.locator("main tbody tr")).to_have_count(1)
    open_page(watched, FIXED)
    expect(watched.locator("main tbody")).to_contain_text(HOSTILE[0])
    expect(watched.locator("main tbody")).to_contain_text("(empty string)")
    assert watched.locator("main img, main script").count() == 0
    for address in ADDRESSES:
        watched.get_by_role("button", name=address, exact=True).last.click()
        expect(watched.locator("main tbody tr")).to_have_count(2)
        assert watched.locator("main [href^='javascript'], main [href^='data'], main [src]").count() == 0
        watched.get_by_role("button", name="Remove the filter").click()
        expect(watched.locator("main tbody tr")).to_have_count(len(SHOWN) + 1)
    assert watched.title().endswith("Truelog")


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_figures_are_saved_as_shown(audience: Settings, watched: Page) -> None:
    open_page(watched, FIXED)
    with watched.expect_download() as saved:
        watched.get_by_role("link", name="CSV").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert lines[0].startswith("host,views,visitors,")
    assert any(line.startswith('"""=HYPERLINK(1)"""') for line in lines)


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_the_archived_events_are_one_click_away(archived: Settings, watched: Page) -> None:
    open_page(watched, "analytics?view=page_views&by=host&since=2026-03-01T00:00&until=2026-03-02T00:00")
    watched.get_by_role("button", name="Show the events").click()
    section = watched.locator("#events")
    expect(section).to_contain_text("1 archived event of page_view in this range.")
    expect(section.locator("tbody tr")).to_contain_text("2026-03-01 00:00:00")
    assert accessibility_problems(watched) == []
    section.get_by_role("link", name="page_view 0:0").click()
    expect(watched.locator("main")).to_contain_text("<img src=x>")
    watched.go_back()
    watched.get_by_role("button", name="Show the events").click()
    expect(section.locator("tbody tr")).to_have_count(1)
    watched.get_by_label("Break down by").select_option("Total only")
    expect(section.locator("table")).to_have_count(0)


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_a_figure_opens_its_events(archived: Settings, watched: Page) -> None:
    rows = "('2026-03-01', 'h', '/', 'b', 1), ('2026-03-01', 'other', '/', 'b', 7)"
    with connect(archived, autocommit=True) as connection:
        connection.execute(f"INSERT INTO state.page_views_v1 VALUES {rows}".encode())
        try:
            open_page(watched, "analytics?view=page_views&by=host&since=2026-03-01T00:00&until=2026-03-02T00:00")
            events = watched.locator("#events")
            watched.locator("tr[data-key='value h'] td").nth(1).get_by_role("button", name="1").click()
            expect(events).to_contain_text("1 archived event of page_view in this range, with this host")
            watched.locator("tr[data-key='value other'] td").nth(1).get_by_role("button", name="7").click()
            expect(events).to_contain_text("0 archived events")
        finally:
            connection.execute("DELETE FROM state.page_views_v1 WHERE minute = '2026-03-01'")


def test_the_page_says_when_figures_were_proved_and_what_may_grow(audience: Settings, watched: Page) -> None:
    partitions = [{"topic": "page_view", "partition": 0, "seconds": 0.0, "blind": ""}]
    with connect(audience, autocommit=True) as connection:
        a_reconciliation(connection, "page_audience", "EQUAL", ago=timedelta(hours=3))
        a_lag_sample(connection, "page_audience", partitions)
    open_page(watched, FIXED)
    expect(watched.locator("#proved")).to_contain_text(re.compile(r"found the view equal ended .* ago"))
    expect(watched.locator("#proved a")).to_have_attribute("href", re.compile(r"reconciliations\?view=page_audience"))
    expect(watched.locator("rect.open")).to_have_count(0)
    until = datetime.now(UTC) + timedelta(hours=1)
    open_page(watched, f"analytics?view=page_audience&since={BEGIN:%Y-%m-%dT%H:%M}&until={until:%Y-%m-%dT%H:%M}")
    expect(watched.locator("main")).to_contain_text("figures may still grow")
    expect(watched.locator("rect.open")).to_have_count(1)


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_users_without_the_right_get_no_file(audience: Settings, watched: Page) -> None:
    open_page(watched, FIXED)
    expect(watched.locator("main tbody tr").first).to_be_visible()
    assert watched.locator("a[download]").count() == 0
    assert watched.get_by_role("button", name="Show the events").count() == 0
