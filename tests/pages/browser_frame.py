"""Tests in Chromium of what all pages share: captions, addresses, filters, charts and their marks."""

import re
from datetime import timedelta
from typing import Any

from playwright.sync_api import Page, expect

from tests.builders.alerts import an_alert
from tests.pages.browsing import change_answer, framed, open_page
from truelog.storage.database import connect
from truelog.support.settings import Settings


def test_tables_of_these_pages_have_captions(watched: Page) -> None:
    for name in ("streams", "lag", "alerts", "timeline", "operations", "components"):
        open_page(watched, name)
        expect(watched.locator("main table").first).to_be_visible()
        assert watched.locator("main table:not(:has(caption))").count() == 0, name


def test_airflow_marks_our_entry_on_every_address_and_names_the_tab(watched: Page) -> None:
    for address, title in (
        ("/plugin/truelog", "Flow"),
        ("/plugin/truelog/truelog/lag?reader=archive&hours=6", "Lag"),
        ("/plugin/truelog/truelog/alerts", "3 open alerts"),
        ("/plugin/truelog/truelog/view?name=page_views", "page_views"),
    ):
        watched.goto(address)
        expect(framed(watched).locator("h1:visible")).to_contain_text(title)
        entry = watched.get_by_role("link", name="Truelog")
        expect(entry).to_have_attribute("aria-current", "page")
        expect(entry.locator("img")).to_have_js_property("complete", value=True)
        assert entry.locator("img").evaluate("image => image.naturalWidth") > 0
        expect(watched).to_have_title(f"{title} · Truelog")


def test_choices_are_in_airflows_address_and_survive_a_reload(watched: Page) -> None:
    watched.goto("/plugin/truelog")
    framed(watched).get_by_role("link", name="Lag", exact=True).click()
    watched.wait_for_url(re.compile("/plugin/truelog/truelog/lag$"))
    page = framed(watched)
    page.get_by_label("Reader").select_option("archive")
    page.get_by_label("Time range").select_option("6 hours")
    watched.wait_for_url(re.compile(r"/truelog/lag\?reader=archive&hours=6$"))
    watched.reload()
    page = framed(watched)
    expect(page.get_by_label("Reader")).to_have_value("archive")
    expect(page.get_by_label("Time range")).to_have_value("6")
    expect(page.locator("h1:visible")).to_contain_text("archive")


def test_text_typed_faster_than_airflow_draws_is_kept(watched: Page) -> None:
    """Airflow, which would copy each address a moment later, must not reload the frame with an earlier one."""
    text = "page views of a host"
    watched.goto("/plugin/truelog/truelog/views")
    page = framed(watched)
    search = page.get_by_label("Search")
    search.wait_for()
    page.evaluate("window.isFirst = true")
    watched.context.new_cdp_session(watched).send("Emulation.setCPUThrottlingRate", {"rate": 8})
    search.press_sequentially(text)
    expect(watched).to_have_url(re.compile(r"/truelog/views\?text=page\+views\+of\+a\+host$"))
    expect(page.locator("main")).to_contain_text("No views match.")
    expect(search).to_have_value(text)
    assert page.evaluate("window.isFirst") is True


def test_operations_and_alerts_are_filtered_by_their_address(watched: Page) -> None:
    open_page(watched, "operations?kind=repair&subject=PAGE_")
    rows = watched.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.get_by_role("link", name="page_views")).to_have_attribute("href", "view?name=page_views")
    watched.get_by_label("Target").fill("no such view")
    expect(watched.locator("main")).to_contain_text("No operations match.")
    assert watched.url.endswith("?kind=repair&subject=no+such+view")
    open_page(watched, "alerts?match=stalled")
    expect(watched.locator("[data-alert]")).to_have_count(1)
    watched.get_by_label("Filter", exact=True).fill("view_different")
    expect(watched.locator("[data-alert]")).to_have_attribute("data-alert", "view_different/click_through")
    assert watched.url.endswith("?match=view_different")


def test_one_resolved_incident_is_one_line(pages: Settings, watched: Page) -> None:
    """The alerts that followed from it were never sent, and are listed apart."""
    with connect(pages, autocommit=True) as connection:
        for view in ("page_views", "click_through"):
            an_alert(
                connection, "stalled", view, "archive is down", ago=timedelta(hours=2), resolved=timedelta(hours=1)
            )
    open_page(watched, "alerts")
    apart = watched.locator("details[data-key=unsent]")
    sent = watched.get_by_role("region", name="Newest first, with a notification").locator("tbody")
    expect(sent).to_have_text(re.compile("^application_down/archive"))
    apart.locator("summary", has_text="2 alerts without a notification: silenced, or an effect of another").click()
    expect(apart.get_by_role("link", name="stalled/page_views")).to_be_visible()
    expect(apart.locator("tbody tr")).to_have_count(2)


def test_each_mark_of_the_timeline_leads_to_what_it_shows(watched: Page) -> None:
    open_page(watched, "timeline?hours=72")
    marks = watched.locator("svg a.mark-of")

    def addresses(kind: str) -> set[str | None]:
        return {each.get_attribute("href") for each in watched.locator(f"svg a.mark-of.{kind}").all()}

    assert "alerts?match=stalled%2Fpage_audience" in addresses("alert")
    assert addresses("repair") == {"reconciliation?id=57"}
    assert "reconciliation?id=59" in addresses("different")
    assert addresses("release") == {"streams?application=stream"}
    assert addresses("backfill") == {"../dags/recompute/runs/backfill__2026-11-19"}
    assert None not in [each.get_attribute("href") for each in marks.all()]
    marks.and_(watched.locator(".different")).first.click()
    expect(watched.locator("h1:visible")).to_contain_text("page_views")


def test_a_page_of_the_timeline_whose_entries_have_left_the_range_becomes_the_last_one(watched: Page) -> None:
    left = [150]

    def several(found: dict[str, Any]) -> None:
        one = found["occurrences"][0] | {"kind": "start"}
        found["occurrences"] = [one | {"subject": f"app{n}"} for n in range(left[0])]

    change_answer(watched, re.compile(r"data/timeline\?"), several)
    open_page(watched, "timeline")
    watched.get_by_role("button", name="Next").click()
    rows = watched.locator("main tbody tr")
    expect(rows).to_have_count(50)
    left[0] = 95
    watched.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # which refreshes at once
    expect(rows).to_have_count(95)


def test_the_crosshair_is_in_all_charts_and_the_legend_switches_lines(watched: Page) -> None:
    open_page(watched, "lag?reader=page_audience&hours=6&partitions=1")
    charts = watched.locator("figure.chart")
    expect(charts).to_have_count(3)
    charts.first.locator("svg[aria-label]").hover()
    for n in range(3):
        expect(charts.nth(n).locator(".pointer")).to_have_attribute("visibility", "visible")
        expect(charts.nth(n).locator(".readout")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d: "))
    first = charts.first.get_by_role("button", name="page_view 0")
    first.click()
    expect(first).to_have_attribute("aria-pressed", "false")
    expect(first).to_be_focused()
    expect(charts.first.locator("path[data-key='page_view 0']")).to_have_count(0)
    expect(charts.first.locator("path[data-key='Total']")).to_have_count(1)


def test_a_chart_of_the_past_marks_changes_and_times_without_a_sample(watched: Page) -> None:
    open_page(watched, "lag?reader=page_audience&hours=6")
    first = watched.locator("figure.chart").first
    expect(first.locator(".gap").first).to_be_attached()
    expect(first.locator("figcaption strong")).to_contain_text("UTC")
    ticks = first.locator("svg[aria-label] > text").all_text_contents()
    assert len(ticks) > 3
    assert [each for each in ticks if not re.fullmatch(r"\d\d:00|\d\d-\d\d", each)] == []  # whole hours, or a day
    changes = first.locator("a.change")
    expect(changes.first).to_have_attribute("href", re.compile("streams|view|reconciliation|recompute"))
    watched.get_by_label("Until (UTC)").fill("2001-01-01T00:00:00")
    watched.get_by_label("Until (UTC)").blur()
    expect(watched.locator("main")).to_contain_text("No samples of page_audience in this time range")
    expect(watched).to_have_url(re.compile("until=2001-01-01"))
    watched.reload()
    expect(watched.locator("main")).to_contain_text("No samples of page_audience in this time range")
    begins = watched.get_by_label("From (UTC)")
    expect(begins).to_have_value("2000-12-31T18:00")
    for wrong, why in (("2001-01-02T00:00:00", "before it ends"), ("2000-12-01T00:00:00", "At most 3 days")):
        begins.fill(wrong)
        begins.blur()
        assert why in begins.evaluate("input => input.validationMessage")
    begins.fill("2000-12-31T23:30:00")
    begins.blur()
    expect(watched).to_have_url(re.compile(r"hours=0\.5&until=2001-01-01"))
    expect(watched.get_by_label("Time range")).to_have_value("0.5")
    watched.get_by_label("Until (UTC)").fill("")
    watched.get_by_label("Until (UTC)").blur()
    expect(watched.locator("figure.chart")).to_have_count(3)


def test_a_chart_draws_more_values_than_a_call_has_arguments(watched: Page) -> None:
    open_page(watched, "operations")
    text = watched.evaluate("""async () => {
      const { chart } = await import("/truelog/static/chart.js");
      const at = Array.from({ length: 200_000 }, (_, n) => n);
      return chart({ title: "Many", at, series: [{ name: "Each", values: at }] }).textContent;
    }""")
    assert "200,000" in text


def test_the_freshness_of_views_is_compared_in_one_chart(watched: Page) -> None:
    open_page(watched, "lag?reader=archive")
    watched.get_by_role("link", name="Compare the freshness of views").click()
    chart = watched.locator("figure.chart")
    lines = chart.locator(".legend button")
    expect(lines).to_have_text(["Worst", "archive", "page_audience", "page_views", "click_through"])
    lines.last.click()
    expect(chart.locator("path[data-key=click_through]")).to_have_count(0)
    chart.locator("svg[aria-label]").hover()
    expect(chart.locator(".readout")).to_contain_text(re.compile("Worst .*, archive "))
    watched.locator("summary", has_text="Readers").click()
    watched.get_by_label("archive").uncheck()
    expect(lines).to_have_text(["Worst", "page_audience", "page_views", "click_through"])
    watched.reload()
    expect(lines).to_have_text(["Worst", "page_audience", "page_views", "click_through"])


def test_the_readers_that_a_page_begins_with_stay(watched: Page) -> None:
    """Other readers may be the furthest behind at the next poll."""
    open_page(watched, "lag")
    with watched.expect_request("**/data/lag?*") as asked:
        watched.get_by_label("Time range").select_option("6")
    assert f"reader={watched.get_by_label('Reader').input_value()}&" in asked.value.url
    open_page(watched, "freshness")
    boxes = watched.locator("#columns input:checked")
    with watched.expect_request("**/data/freshness?*") as asked:
        watched.get_by_label("Time range").select_option("6")
    chosen = boxes.evaluate_all("boxes => boxes.map((each) => each.value)")
    assert len(chosen) == 4
    assert sorted(re.findall("reader=([^&]*)", asked.value.url)) == sorted(chosen)
