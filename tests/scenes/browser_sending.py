"""How the tracker sends, keeps and repeats events, in Chromium with a collector and Kafka: `make browser`."""

import json
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Route

from tests.deadline import until
from tests.pages.browsing import executable
from tests.scenes.site import Site
from tests.scenes.visit import (
    CLOCK,
    HANG,
    JUMP,
    LOOKS,
    NO_LOCKS,
    RECORD,
    STORED,
    like,
    likes,
    loaded,
    moment,
    opened,
    require,
    sent,
    stored,
)

TWO_DAYS = 2 * 86_400_000


def test_two_tabs_that_were_offline_for_two_days_send_each_event_once(
    site: Site, tmp_path: Path, chromium: Browser
) -> None:
    """The browser is closed meanwhile. The times are those of the events, and the ids stay."""
    phone = partial(
        chromium.browser_type.launch_persistent_context,
        tmp_path,
        base_url=site.origin,
        args=["--no-sandbox"],
        executable_path=executable(),
    )
    context = phone()
    context.add_init_script(CLOCK)
    tabs = [opened(context, "/phone") for _ in range(2)]
    site.expect(2, url=f"{site.origin}/phone")
    sent(tabs[0])
    context.set_offline(True)
    tabs[0].evaluate("(moved) => localStorage.moved = moved", -TWO_DAYS)
    for number in range(30):
        like(tabs[number % 2], f"phone-{number}")
    stored(tabs[0], 30)
    context.close()
    context = phone()  # without the moved clock
    tabs = [opened(context, "/phone-again") for _ in range(2)]
    sent(tabs[0])
    found = [each for each in site.logged("like") if each["target_id"].startswith("phone-")]
    assert Counter(each["target_id"] for each in found) == Counter({f"phone-{n}-0": 1 for n in range(30)})
    visitors = {each["visitor_id"] for each in found + site.expect(2, url=f"{site.origin}/phone-again")}
    assert len(visitors) == 1
    for each in found:
        away = moment(each["sent_at"]) - moment(each["occurred_at"])
        assert timedelta(days=2) <= away < timedelta(days=2, hours=1)
    context.close()


def test_events_of_a_page_that_is_closed_beside_a_hanging_request_arrive_once(
    site: Site, context: BrowserContext
) -> None:
    """The other request uses most of the quota that all requests of a closed page share."""
    page = opened(context, "/leaving")
    sent(page)
    page.evaluate(HANG)
    page.evaluate(
        """() => {
          for (let n = 0; n < 30; n++) {
            truelog("like", { target_id: `leaving-${n}`, person_id: "p", verb: "liked", more: "x".repeat(3000) });
          }
          location.href = "/left";
        }"""
    )
    page.wait_for_url("**/left")
    loaded(page)
    sent(page)
    site.expect(1, url=f"{site.origin}/left")
    assert Counter(likes(site, "leaving")) == Counter({f"leaving-{n}": 1 for n in range(30)})


def test_a_session_ends_after_thirty_minutes_without_an_event(site: Site, context: BrowserContext) -> None:
    context.add_init_script(CLOCK)
    page = opened(context, "/session")
    sent(page)
    for minutes in (29, 58, 89):
        page.evaluate("(moved) => sessionStorage.moved = moved", minutes * 60_000)
        like(page, f"session-{minutes}")
        sent(page)
    [view] = site.expect(1, url=f"{site.origin}/session")
    first, second, third = [each for each in site.logged("like") if each["target_id"].startswith("session-")]
    assert view["session_id"] == first["session_id"] == second["session_id"] != third["session_id"]
    assert view["visitor_id"] == third["visitor_id"]


def test_requests_have_keepalive_within_the_quota_of_the_page(site: Site, context: BrowserContext) -> None:
    """Beside another request of the page, the browser refuses each of them, and they are sent without."""
    context.add_init_script(RECORD)
    page = opened(context, "/quota")
    sent(page)
    page.evaluate(HANG)
    like(page, "quota", 30, 3_000)
    sent(page)
    asked = page.evaluate("asked")
    assert [keepalive for keepalive, _ in asked] == [True, True, False, True, False]
    assert max(length for _, length in asked) < 60_000
    assert Counter(likes(site, "quota")) == Counter({f"quota-{n}": 1 for n in range(30)})


def test_a_request_that_fails_is_sent_again_and_its_events_count_once(site: Site, context: BrowserContext) -> None:
    """The collector has stored the first one, and its answer is lost. The next two do not arrive."""
    tried: list[str] = []

    def fail(route: Route) -> None:
        tried.append(json.loads(route.request.post_data or "")[0]["event_id"])
        if len(tried) == 1:
            assert route.fetch(headers=route.request.headers | {"origin": site.origin}).ok
        if len(tried) < 4:
            route.abort()
        else:
            route.continue_()

    context.add_init_script(RECORD)
    context.route("**/browser?*", fail)
    page = opened(context, "/lost")
    sent(page)
    [found] = site.expect(1, url=f"{site.origin}/lost")
    assert tried == 4 * [found["event_id"]]
    assert [keepalive for keepalive, _ in page.evaluate("asked")] == [True, False, True, False]


def test_two_tabs_without_locks_that_were_offline_send_each_event_once(site: Site, context: BrowserContext) -> None:
    context.add_init_script(NO_LOCKS)
    tabs = [opened(context, "/tabs") for _ in range(2)]
    sent(tabs[0])
    context.set_offline(True)
    for number, tab in enumerate(2 * tabs):
        like(tab, f"tabs-{number}", 5)
    stored(tabs[0], 20)
    context.set_offline(False)
    sent(tabs[0])
    assert Counter(likes(site, "tabs")) == Counter({f"tabs-{tab}-{n}": 1 for tab in range(4) for n in range(5)})


def test_a_tab_whose_key_is_revoked_leaves_the_events_of_other_pages(
    site: Site, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector refuses its own events, which are given up."""
    with monkeypatch.context() as before:
        before.setattr(site, "key", "revoked.0")
        revoked = opened(context, "/revoked")
    sent(revoked)
    page = opened(context, "/valid")
    sent(page)
    page.route("**/browser?*", lambda route: route.abort())
    like(page, "valid", 5)
    stored(page, 5)
    like(revoked, "revoked")
    stored(revoked, 5)
    page.unroute("**/browser?*")
    page.evaluate("dispatchEvent(new Event('online'))")
    sent(page)
    assert Counter(likes(site, "valid")) == Counter({f"valid-{n}": 1 for n in range(5)})
    assert likes(site, "revoked") == []


def test_events_that_the_script_before_has_kept_are_sent(site: Site, context: BrowserContext) -> None:
    """Their names have no key."""
    page = opened(context, "/kept")
    sent(page)
    context.set_offline(True)
    like(page, "kept", 2)
    page.evaluate(
        """() => {
          for (const name of Object.keys(localStorage).filter((each) => each.startsWith("truelog:event:"))) {
            localStorage[name.split("http")[0]] = localStorage[name];
            delete localStorage[name];
          }
        }"""
    )
    context.set_offline(False)
    sent(page)
    assert Counter(likes(site, "kept")) == Counter({"kept-0": 1, "kept-1": 1})


def test_a_tab_without_locks_waits_for_the_lease_of_another_one(site: Site, context: BrowserContext) -> None:
    """The lease of a tab that was closed ends. One that lasts longer than any lease is not real."""
    context.add_init_script(NO_LOCKS)
    context.add_init_script(LOOKS)
    context.add_init_script(RECORD)
    page = opened(context, "/lease")
    sent(page)
    lease = "(lasts) => { localStorage['truelog:lease'] = `another ${Date.now() + lasts}`; looked = asked.length = 0 }"
    page.evaluate(lease, 35_000)
    like(page, "lease-held")
    until(lambda: require(page.evaluate("looked > 2"), True), 30, "three looks at the lease")
    assert page.evaluate("asked") == []
    page.evaluate(lease, -1)
    sent(page)
    page.evaluate(lease, 1_000_000_000)
    like(page, "lease-long")
    sent(page)
    assert likes(site, "lease") == ["lease-held-0", "lease-long-0"]


def test_the_buffer_is_bounded_and_says_what_it_dropped(site: Site, context: BrowserContext) -> None:
    page = opened(context, "/bounds")
    sent(page)
    context.set_offline(True)
    like(page, "bound", 1, 20_000)  # too long; dropped alone
    like(page, "bound", 600, 10)
    assert page.evaluate(STORED) == 500
    like(page, "bound", 40, 10_000)
    kept = page.evaluate(STORED)
    assert 20 < kept < 26
    context.set_offline(False)
    sent(page)
    like(page, "bound")
    sent(page)
    found = [each for each in site.logged("like") if each["target_id"].startswith("bound-")]
    assert Counter(each["target_id"] for each in found) == Counter(f"bound-{n}" for n in (0, *range(40 - kept, 40)))
    assert sum(each.get("dropped", 0) for each in found) + len(found) == 1 + 600 + 40 + 1


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_clock_that_jumps_before_the_event_is_sent(site: Site, context: BrowserContext, hours: int) -> None:
    """If it is put back, the event keeps its age. If it goes forward, the device may have slept: its clock counts."""
    context.add_init_script(CLOCK)
    page = opened(context, "/jump")
    sent(page)
    page.evaluate(JUMP, hours)
    sent(page)
    [found] = site.expect(1, "like", target_id=f"jump-{hours}")
    age = moment(found["sent_at"]) - moment(found["occurred_at"])
    assert timedelta() <= age - timedelta(hours=max(hours, 0)) < timedelta(minutes=2)


def test_the_script_changes_nothing_of_a_page_whose_collector_is_away(site: Site, context: BrowserContext) -> None:
    context.route("**/browser?*", lambda route: route.abort())
    page = context.new_page()
    refused: list[str] = []
    page.on("pageerror", lambda error: refused.append(str(error)))
    page.goto("/away")
    loaded(page)
    assert page.evaluate("truelog('like', { get verb() { throw 1 } })") is None
    assert page.evaluate("truelog()") is not None
    assert page.evaluate(STORED) >= 1
    assert refused == []
