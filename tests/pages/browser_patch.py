"""Tests in Chromium of the refresh: a page is patched in place, and what the user is doing survives."""

import re

from playwright.sync_api import BrowserContext, Page, expect

from tests.pages.browsing import open_page

# Patches random trees, with the Lehmer generator so that each run is the same. Returns the faults.
RANDOM_TREES = """async () => {
  const { patch } = await import("/truelog/static/patch.js");
  let seed = 20260101;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const tree = (depth) => {
    const element = document.createElement(["p", "div", "details"][random(3)]);
    if (random(2)) element.title = String(random(3));
    const keys = new Set();
    for (let n = random(5); depth && n > 0; n--) {
      if (random(3) === 0) { element.append(`text ${random(4)}`); continue; }
      const child = tree(depth - 1), key = String(random(6));
      if (random(2) && !keys.has(key)) { child.dataset.key = key; keys.add(key); }
      element.append(child);
    }
    element.normalize();
    return element;
  };
  const faults = [];
  for (let n = 0; n < 500; n++) {
    const before = tree(4), after = tree(4), wanted = after.cloneNode(true);
    const known = new Map([...before.children].map((each) => [each.dataset.key + each.nodeName, each]));
    patch(before, after.childNodes);
    const place = wanted.cloneNode(false);
    place.append(...[...before.childNodes].map((each) => each.cloneNode(true)));
    if (!place.isEqualNode(wanted)) faults.push(`${before.innerHTML} is not ${wanted.innerHTML}`);
    for (const child of before.children) {
      const old = known.get(child.dataset.key + child.nodeName);
      if (child.dataset.key && old && old !== child) faults.push(`${child.dataset.key} was replaced`);
    }
  }
  return faults;
}"""

MARK = "document.querySelectorAll('main *').forEach((each, n) => { each.mark = n })"
UNMARKED = "[...document.querySelectorAll('main *')].filter((each) => each.mark === undefined).length"


def test_any_tree_becomes_any_other_and_keyed_elements_stay(watched: Page) -> None:
    open_page(watched, "operations")
    assert watched.evaluate(RANDOM_TREES) == []


def test_a_refresh_keeps_focus_selection_details_and_entered_text(watched: Page) -> None:
    open_page(watched, "alerts")
    alert = watched.locator("[data-alert='stalled/page_audience']")
    alert.locator("summary", has_text="Runbook").click()
    expect(alert.locator(".runbook")).to_contain_text("Impact.")
    watched.evaluate("getSelection().selectAllChildren(document.querySelector('[data-alert] .value'))")
    selected = watched.evaluate("getSelection().toString()")
    summary = alert.locator("summary").last
    summary.focus()
    watched.evaluate(MARK)
    for _ in range(2):
        with watched.expect_response("**/data/alerts"):
            pass
    as_of = watched.locator("#as-of time").inner_text()
    expect(watched.locator("#as-of time")).not_to_have_text(as_of)
    assert watched.evaluate(UNMARKED) == 0
    expect(summary).to_be_focused()
    expect(alert.locator(".runbook")).to_be_visible()
    assert watched.evaluate("getSelection().toString()") == selected


def test_an_element_that_stays_runs_the_handler_of_its_newest_drawing(watched: Page) -> None:
    open_page(watched, "operations")
    clicks = watched.evaluate("""async () => {
      const { h } = await import("/truelog/static/kit.js"), { patch } = await import("/truelog/static/patch.js");
      const clicks = [], drawn = (name) => [h("button", { click: () => clicks.push(name) }, "Go")], place = h("div");
      for (const name of ["old", "new"]) { patch(place, drawn(name)); place.firstChild.click(); }
      patch(place, [h("button", {}, "Go")]);
      place.firstChild.click();
      return clicks;
    }""")
    assert clicks == ["old", "new"]


def test_screen_readers_hear_changes_of_state_but_no_clock(signed_in: dict[str, BrowserContext]) -> None:
    page = signed_in["analyst"].new_page()
    open_page(page, "alerts")
    assert page.locator("#as-of").get_attribute("aria-live") == "off"
    expect(page.locator("#changes")).to_be_empty()
    page.route("**/data/alerts", lambda route: route.fulfill(json=route.fetch().json() | {"open": []}))
    expect(page.locator("#changes")).to_have_text("No open alerts")
    expect(page.locator("h1:visible")).to_have_text(re.compile("No open alerts"))
    page.unroute("**/data/alerts")
