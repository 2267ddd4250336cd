"""Tests of the pages on a phone in Chromium, and of the flow, which is their first page."""

import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.pages.browsing import PHONE, open_page
from tests.pages.plausible import HOSTILE


@pytest.fixture
def phone(watched: Page) -> Page:
    watched.set_viewport_size(PHONE)
    return watched


def test_tabs_are_one_row_and_the_current_tab_is_in_sight(phone: Page) -> None:
    open_page(phone, "operations")
    tabs = phone.locator("#pages a")
    tops = {round(each.bounding_box()["y"]) for each in tabs.all()}  # type: ignore[index]
    assert len(tops) == 1
    expect(phone.locator("#pages [aria-current]")).to_be_in_viewport()


def test_each_row_of_a_table_is_a_card_with_its_headings(phone: Page) -> None:
    open_page(phone, "lag?reader=page_views")
    cell = phone.locator("main tbody td[data-head='Verdict']").first
    expect(cell).to_be_visible()
    assert "Verdict" in cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    drawing = phone.locator("figure.chart svg[aria-label]").first
    width = drawing.evaluate("svg => svg.viewBox.baseVal.width / svg.getBoundingClientRect().width")
    assert width == pytest.approx(1, abs=0.05)  # the texts keep their size


def test_the_flow_leads_from_topics_to_views_and_shows_the_lines_of_a_node(watched: Page) -> None:
    open_page(watched, "flow")
    node = watched.locator("[data-node='view page_views']")
    expect(node).to_contain_text("Fresh")
    expect(watched.locator("[data-node='topic page_view']")).to_contain_text("events/s")
    expect(watched.locator("[data-node='service collector']")).to_contain_text("Down")  # no test starts it
    expect(watched.locator("[data-node='service relay']")).to_have_text("relayRunning")
    expect(watched.locator("[data-node='application stream']")).to_contain_text("Running")
    expect(watched.locator("[data-node='service collector']")).to_have_class("node trouble")
    expect(watched.locator("[data-node='service notifier'] .badge.idle")).to_have_text("Unused")
    expect(watched.locator("[data-node='service notifier']")).to_have_class("node")  # normal
    node.hover()
    ends = watched.locator(".edge.lit").evaluate_all("lines => lines.map((each) => each.dataset.ends.split('\\n'))")
    others = ["output view.page_views.v1", f"reader {HOSTILE[0]}", "reader shop", "topic page_view"]
    assert sorted(name for pair in ends for name in pair if name != "view page_views") == others
    expect(watched.locator("[data-node='topic page_view']")).to_have_class("node lit")
    watched.get_by_label("Search").fill("click_through")
    expect(watched.locator("[data-node^=view]")).to_have_count(2)  # the view, and the archive
    assert "text=click_through" in watched.url
    watched.locator("[data-node='view click_through']").get_by_role("link", name="click_through").click()
    watched.wait_for_url("**/view?name=click_through")


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_the_flow_can_show_only_what_needs_attention(watched: Page, signed_in: dict[str, BrowserContext]) -> None:
    open_page(watched, "flow")
    watched.get_by_label("Application").select_option("Only what needs attention")
    expect(watched.locator("[data-node='view page_audience']")).to_contain_text("Stalled")
    expect(watched.locator("[data-node='view page_views']")).to_have_count(0)


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_the_flow_of_fifty_views_is_collapsed_by_application(watched: Page) -> None:
    """The answer of the platform, with each view ten times. Only the views that need attention are shown.

    One of them has never run, and a topic is suspended for a reason that has no space.
    """

    def enlarge(route: Route) -> None:
        response = route.fetch()
        found = response.json()
        found["views"] = [each | {"reader": f"{each['reader']}_{n}"} for n in range(10) for each in found["views"]]
        found["views"][0] |= {"reader": "young", "state": "STARTING", "lag": None, "proof": None}
        found["topics"][0]["suspended"] = "x" * 300
        route.fulfill(response=response, json=found)

    watched.route("**/data/flow", enlarge)
    open_page(watched, "flow")
    views, group = watched.locator("[data-node^='view ']"), watched.locator("[data-node='application stream']")
    expect(watched.get_by_role("heading", name="Views (50)")).to_be_visible()
    expect(watched.locator("[data-node='view page_views_0']")).to_have_count(0)
    expect(watched.locator("[data-node='view page_audience_0']")).to_contain_text("Stalled")
    expect(watched.locator("[data-node='view young']")).to_have_class("node")  # red is for problems
    expect(watched.locator("[data-node='view broken_1']")).to_have_class("node trouble")
    topic = watched.locator("[data-node^='topic ']").first
    assert topic.evaluate("node => node.scrollWidth <= node.clientWidth")
    collapsed = views.count()
    group.get_by_role("button", name=re.compile(r"^Show \d+ views of stream$")).click()
    expect(watched.locator("[data-node='view page_views_0']")).to_be_visible()
    assert views.count() > collapsed
    watched.reload()
    expect(watched.locator("[data-node='view page_views_0']")).to_be_visible()
    watched.get_by_label("Search").fill("page_views_7")
    expect(views).to_have_count(2)  # the view, and the archive
