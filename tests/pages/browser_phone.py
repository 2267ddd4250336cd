"""Tests of the pages on a phone in Chromium, and of the flow, which is their first page."""

import re

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.pages.browsing import PHONE, beyond_the_width, open_page
from tests.pages.plausible import HOSTILE
from tests.pages.ways import DESK

DRAWN = (
    *("lag?reader=page_views", "freshness", "timeline", "reconciliations", "quality", "view?name=page_views"),
    *("analytics?view=page_views&by=host", "analytics?view=page_views&by=host&chart=bars"),
)
_UNSCALED = """() => {
  const drawings = [...document.querySelectorAll("main figure svg[aria-label]")];
  return drawings.length > 0 && drawings.every((each) => {
    const width = each.getBoundingClientRect().width;
    return width > 0.9 * innerWidth && Math.abs(each.viewBox.baseVal.width - width) < 2;
  });
}"""


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


@pytest.mark.parametrize("address", DRAWN)
def test_a_drawing_has_the_width_of_the_page(watched: Page, address: str) -> None:
    """It is drawn again for another width. A drawing that is scaled has texts of another size than the page."""
    open_page(watched, address)
    for size in (DESK, PHONE):
        watched.set_viewport_size(size)
        watched.wait_for_function(_UNSCALED)
        assert beyond_the_width(watched) == []


def test_the_flow_leads_from_topics_to_views_and_shows_the_lines_of_a_node(watched: Page) -> None:
    open_page(watched, "flow")
    node = watched.locator("[data-node='view page_views']")
    expect(node).to_contain_text("Fresh")
    topic = watched.locator("[data-node='topic page_view']")
    expect(topic).to_contain_text("events/s")
    expect(topic.get_by_role("link", name="Quality")).to_have_text("Quality Failed")
    archive = watched.locator("[data-node='view archive']")
    expect(archive).to_contain_text("Audit Passed")
    expect(archive.get_by_role("link", name="Audit")).to_have_attribute("href", "../dags/archive_upkeep")
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
    expect(topic).to_have_class("node trouble lit")  # its last log day has too few events
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
    expect(watched.locator("[data-node='view young']")).to_have_count(0)  # it needs only time
    expect(watched.locator("[data-node='view broken_1']")).to_have_class("node trouble")
    topic = watched.locator("[data-node^='topic ']").first
    assert topic.evaluate("node => node.scrollWidth <= node.clientWidth")
    collapsed = views.count()
    group.get_by_role("button", name=re.compile(r"^Show \d+ views of stream$")).click()
    expect(watched.locator("[data-node='view page_views_0']")).to_be_visible()
    expect(watched.locator("[data-node='view young']")).to_have_class("node")  # red is for problems
    expect(watched.locator("[data-node='view young']")).to_have_text("youngStarting")
    assert views.count() > collapsed
    watched.reload()
    expect(watched.locator("[data-node='view page_views_0']")).to_be_visible()
    watched.get_by_label("Search").fill("page_views_7")
    expect(views).to_have_count(2)  # the view, and the archive
