"""The tracker in Chromium, with a collector and Kafka: `make browser`.

Each test has pages of its own paths, and finds its events in the log by them.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

import runtime
from tests.deadline import deadline, until
from tests.pages.browsing import collect_page_errors, executable
from tests.scenes.site import Site, serving
from truelog.schema.event import load_events
from truelog.services.collector.declaration import BROWSER
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

STORED = "Object.keys(localStorage).filter((name) => name.startsWith('truelog:event:')).length"
# The device's clock, which a test may move.
CLOCK = """(() => {
  const [own, moved] = [Date.now, () => Number(sessionStorage.moved ?? localStorage.moved ?? 0)];
  Date.now = () => own() + moved();
})()"""
# An event, and a jump of the clock before the tracker's timer sends it.
JUMP = """(hours) => {
  truelog("like", { target_id: `jump-${hours}`, person_id: "p", verb: "liked" });
  sessionStorage.moved = hours * 3_600_000;
}"""
# Leaves no byte of the storage free.
FILL = """for (let size = 500_000; size >= 1; size >>= 1) {
  try { for (let n = 0; ; n++) localStorage[`${size}.${n}`] = "x".repeat(size) } catch {}
}"""
TWO_DAYS = 2 * 86_400_000


@pytest.fixture(scope="module")
def site(platform: Settings) -> Iterator[Site]:
    with serving(platform) as site:
        runtime.up(platform, ("ticks", "collector"), tethered=True)
        yield site


@pytest.fixture
def context(chromium: Browser, site: Site) -> Iterator[BrowserContext]:
    """A new browser, in which no page may have an error."""
    context = chromium.new_context(base_url=site.origin, locale="nb-NO")
    context.set_default_timeout(deadline(30_000))
    errors = collect_page_errors(context)
    yield context
    context.close()
    site.attributes = ""
    assert [each for each in chain.from_iterable(errors) if "Failed to load resource" not in each] == []


def opened(context: BrowserContext, path: str) -> Page:
    page = context.new_page()
    page.goto(path)
    loaded(page)
    return page


def loaded(page: Page) -> None:
    """Wait until the tracker runs. The page's policy forbids Playwright's own way to wait."""
    until(lambda: require(page.evaluate("Boolean(window.truelog?.page)"), True), 30, "the tracker")


def require(found: object, wanted: object) -> None:
    if found != wanted:
        raise ServiceDown(f"{found}, not {wanted}")


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def sent(page: Page) -> None:
    """Wait until nothing is left in the browser."""
    until(lambda: require(page.evaluate(STORED), 0), 30, "the answers for all events")


@pytest.mark.parametrize("has_navigation", [True, False])
def test_each_page_of_a_single_page_application_counts_once(
    site: Site, context: BrowserContext, *, has_navigation: bool
) -> None:
    if not has_navigation:
        context.add_init_script("Object.defineProperty(window, 'navigation', { value: undefined })")
    root = f"/spa-{has_navigation}"
    page = opened(context, f"{root}/a?q=1#private")
    for url in ("b", "b", "b#part", "c"):
        page.evaluate("(url) => history.pushState({}, '', url)", f"{root}/{url}")
    page.evaluate("(url) => history.replaceState({}, '', url)", f"{root}/d")
    page.go_back()
    page.wait_for_url(f"**{root}/b#part")
    sent(page)
    paths = ["a?q=1", "b", "c", "d", "b"]
    urls = [f"{site.origin}{root}/{path}" for path in paths]
    views = [each for each in site.logged() if f"{root}/" in each["url"]]
    assert Counter(each["url"] for each in views) == Counter(urls)
    assert "referrer" not in views[0]
    assert {each.get("referrer") for each in views[1:]} <= set(urls)
    assert {(each["browser"], each["language"]) for each in views} == {("Chrome", "nb-NO")}
    assert len({(each["visitor_id"], each["session_id"]) for each in views}) == 1
    assert len({each["event_id"] for each in views}) == len(paths)


def test_a_page_that_was_kept_or_prerendered_counts_when_it_is_shown(site: Site, context: BrowserContext) -> None:
    context.add_init_script("Object.defineProperty(document, 'prerendering', { value: true })")
    page = opened(context, "/prerendered")
    page.evaluate("truelog('like', { target_id: 'prerendered', person_id: 'p', verb: 'liked' })")
    site.expect(1, "like", target_id="prerendered")
    assert site.logged(url=f"{site.origin}/prerendered") == []
    page.evaluate("document.dispatchEvent(new Event('prerenderingchange'))")
    site.expect(1, url=f"{site.origin}/prerendered")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    site.expect(2, url=f"{site.origin}/prerendered")


def test_an_event_is_sent_by_one_call_and_others_than_the_key_names_are_refused(
    site: Site, context: BrowserContext
) -> None:
    page = opened(context, "/calls")
    like = {"target_id": "called", "person_id": "ann", "verb": "liked"}
    ids = page.evaluate(
        "(like) => [truelog('like', like), truelog('follow', {}), truelog('like', like), truelog('like', {})]", like
    )
    sent(page)
    found = site.expect(2, "like", target_id="called")
    assert {each["event_id"] for each in found} == {ids[0], ids[2]}
    assert page.evaluate("truelog.token")
    bad = [each for each in site.logged("dead_letter") if each["sender"] == "site"]
    assert [(each["event_type"], each["field"]) for each in bad] == [("like", "target_id")]
    assert site.logged("follow") == []


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
        say = "(n) => truelog('like', { target_id: `phone-${n}`, person_id: 'p', verb: 'liked' })"
        tabs[number % 2].evaluate(say, number)
    assert tabs[0].evaluate(STORED) == 30
    context.close()
    context = phone()  # without the moved clock
    tabs = [opened(context, "/phone-again") for _ in range(2)]
    sent(tabs[0])
    found = [each for each in site.logged("like") if each["target_id"].startswith("phone-")]
    assert Counter(each["target_id"] for each in found) == Counter({f"phone-{n}": 1 for n in range(30)})
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
    page.evaluate("void fetch('/hang', { method: 'POST', body: 'x'.repeat(50_000), keepalive: true }).catch(() => {})")
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
    found = [each for each in site.logged("like") if each["target_id"].startswith("leaving-")]
    assert Counter(each["target_id"] for each in found) == Counter({f"leaving-{n}": 1 for n in range(30)})


@pytest.mark.parametrize(
    "wish", ["Object.defineProperty(navigator, 'globalPrivacyControl', { value: true })",
             "Object.defineProperty(navigator, 'doNotTrack', { value: '1' })"],
)  # fmt: skip
def test_visitors_who_do_not_want_it_are_not_tracked(site: Site, context: BrowserContext, wish: str) -> None:
    context.add_init_script(wish)
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.method))
    page = opened(context, "/untracked")
    page.evaluate("truelog('like', { target_id: 'untracked', person_id: 'p', verb: 'liked' })")
    page.goto("/untracked/2")
    loaded(page)
    assert page.evaluate("Object.keys(localStorage)") == []
    assert "POST" not in requests


def test_nothing_is_stored_in_the_mode_without_ids(site: Site, context: BrowserContext) -> None:
    site.attributes = 'data-store="no"'
    for number in range(2):
        page = opened(context, "/stateless")
        site.expect(number + 1, url=f"{site.origin}/stateless")
        assert page.evaluate("[Object.keys(localStorage), document.cookie]") == [[], ""]
    assert len({each["visitor_id"] for each in site.logged(url=f"{site.origin}/stateless")}) == 2


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("denied", "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('denied') } })"),
        ("full", FILL),
        ("nolocks", "Object.defineProperty(navigator, 'locks', { value: undefined })"),
    ],
)
def test_a_browser_without_storage_or_locks_sends_too(
    site: Site, context: BrowserContext, name: str, script: str
) -> None:
    context.add_init_script(script)
    opened(context, f"/{name}")
    opened(context, f"/{name}")
    site.expect(2, url=f"{site.origin}/{name}")


def test_the_buffer_is_bounded_and_says_what_it_dropped(site: Site, context: BrowserContext) -> None:
    page = opened(context, "/bounds")
    sent(page)
    context.set_offline(True)
    say = "({ count, size }) => { for (let n = 0; n < count; n++) truelog('like', { target_id: `bound-${n}`, " \
          "person_id: 'p', verb: 'liked', more: 'x'.repeat(size) }) }"  # fmt: skip
    page.evaluate(say, {"count": 1, "size": 20_000})  # too long; dropped alone
    page.evaluate(say, {"count": 600, "size": 10})
    assert page.evaluate(STORED) == 500
    page.evaluate(say, {"count": 40, "size": 10_000})
    kept = page.evaluate(STORED)
    assert 20 < kept < 26
    context.set_offline(False)
    sent(page)
    page.evaluate(say, {"count": 1, "size": 0})
    sent(page)
    found = [each for each in site.logged("like") if each["target_id"].startswith("bound-")]
    assert Counter(each["target_id"] for each in found) == Counter(f"bound-{n}" for n in (0, *range(40 - kept, 40)))
    assert sum(each.get("dropped", 0) for each in found) + len(found) == 1 + 600 + 40 + 1


def test_hostile_addresses_are_events_like_any_others(site: Site, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"/long?{'x' * 9_000}", referer=f'http://evil.example/"><script>alert(1)</script>?{"y" * 9_000}')
    loaded(page)
    urls = ["javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "http://[::1", "//", ""]
    say = "(urls) => [...urls, '\\ud800'].map((url) => truelog('page_view', { url, browser: 'hostile' }))"
    page.evaluate(say, urls)
    sent(page)
    [long] = [each for each in site.logged() if each["url"].startswith(f"{site.origin}/long")]
    assert len(long["url"]) == 8192
    assert long.get("referrer") is None or len(long["referrer"]) <= 4096
    stored = [each["url"] for each in site.logged(browser="hostile")]
    assert set(urls) <= set(stored)


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


def test_a_stolen_key_sends_nothing_else_and_from_nowhere_else(site: Site) -> None:
    like = {"type": "like", "event_id": "stolen", "occurred_at": "2026-11-25T09:30:00Z", "target_id": "stolen",
            "person_id": "p", "verb": "liked"}  # fmt: skip
    assert post(site, [like], Origin="https://stranger.example")[0] == 403
    for name, declared in load_events().items():
        if declared.name not in {"page_view", "like"}:
            status, body = post(site, [like, like | {"type": name}], Origin=site.origin)
            assert (status, body["error"]) == (
                403,
                "event 1: the key may only send page_view, like; nothing was stored",
            )
    assert site.logged("like", target_id="stolen") == []
    for wish in ({"Sec-GPC": "1"}, {"DNT": "1"}):
        assert "declined" in post(site, [like], Origin=site.origin, **wish)[1]
    assert site.logged("like", target_id="stolen") == []
    for _ in range(2):
        assert post(site, [like], Origin=site.origin)[0] == 200
    site.expect(1, "like", target_id="stolen")
    flood = [like | {"event_id": f"flood-{n}", "target_id": "flood"} for n in range(1_001)]
    assert post(site, flood, Origin=site.origin)[0] == 429
    assert site.logged("like", target_id="flood") == []


def post(site: Site, events: object, **headers: str) -> tuple[int, dict[str, Any]]:
    """Send as a program does, which may say anything of itself."""
    connection = HTTPConnection(site.collector.removeprefix("http://"), timeout=deadline(30))
    connection.request(BROWSER.method, f"{BROWSER.path}?key={site.key}", json.dumps(events).encode(), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
