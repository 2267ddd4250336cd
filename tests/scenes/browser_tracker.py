"""The tracker in Chromium, with a collector and Kafka: `make browser`.

Each test has pages of its own paths, and finds its events in the log by them.
"""

import json
from collections import Counter

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.deadline import until
from tests.pages.browsing import executable
from tests.scenes.site import Site
from tests.scenes.visit import FAIL, FILL, NO_LOCKS, WISHES, like, likes, loaded, opened, post, require, sent
from truelog.schema.loading.events import load_events

WHY_NOT = "JSON.stringify(performance.getEntriesByType('navigation')[0].notRestoredReasons)"


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


def test_a_page_of_the_back_forward_cache_counts_again(site: Site, chromium: Browser) -> None:
    """The tracker keeps no page out of it. Playwright disables this cache, so this is a browser of its own."""
    browser = chromium.browser_type.launch(
        executable_path=executable(), args=["--no-sandbox"], ignore_default_args=["--disable-back-forward-cache"]
    )
    page = opened(browser.new_context(base_url=site.origin), "/back")
    sent(page)
    page.evaluate("addEventListener('pageshow', (shown) => window.kept = shown.persisted)")
    page.goto("/forward")
    loaded(page)
    page.evaluate("void setTimeout(() => history.back())")
    page.wait_for_url("**/back", wait_until="commit")
    until(lambda: require(page.evaluate(f"window.kept || {WHY_NOT}"), True), 10, "the page from the cache")
    site.expect(2, url=f"{site.origin}/back")
    browser.close()


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


@pytest.mark.parametrize("wish", WISHES)
def test_visitors_who_do_not_want_it_are_not_tracked(site: Site, context: BrowserContext, wish: str) -> None:
    context.add_init_script(wish)
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.method))
    page = opened(context, "/untracked")
    like(page, "untracked")
    page.goto("/untracked/2")
    loaded(page)
    assert page.evaluate("Object.keys(localStorage)") == []
    assert "POST" not in requests


@pytest.mark.parametrize("wish", WISHES)
def test_a_visitor_who_opts_out_later_leaves_nothing(site: Site, context: BrowserContext, wish: str) -> None:
    """Neither on the page that is open nor on the next one, which sends nothing by itself and has no store."""
    page = opened(context, "/opts-out")
    sent(page)
    page.evaluate("localStorage.other = 'of the site'")
    failed: list[str] = []
    context.on("requestfailed", lambda request: failed.append(request.method))
    context.set_offline(True)
    like(page, "opted-out")
    until(lambda: require(page.evaluate("navigator.onLine") or failed, ["POST", "POST"]), 30, "both failed requests")
    assert page.evaluate("Object.keys(localStorage).length") == 4  # visitor, session, event, and that of the site
    page.evaluate(f"void {wish}")
    page.evaluate("dispatchEvent(new Event('visibilitychange'))")
    assert page.evaluate("Object.keys(localStorage)") == ["other"]
    context.set_offline(False)
    like(page, "opted-out")
    page.goto("/opts-out/again")
    loaded(page)
    sent(page)
    assert page.evaluate("'truelog:visitor' in localStorage")
    context.add_init_script(wish)
    site.attributes = 'data-views="no" data-store="no"'
    page.goto("/opts-out/next")
    loaded(page)
    until(lambda: require(page.evaluate("Object.keys(localStorage)"), ["other"]), 30, "the deletion")
    assert likes(site, "opted-out") == []


@pytest.mark.parametrize("wish", WISHES)
def test_a_failed_request_is_not_repeated_after_the_visitor_opted_out(
    site: Site, context: BrowserContext, wish: str
) -> None:
    page = opened(context, "/failed")
    sent(page)
    page.evaluate(FAIL.replace("WISH", wish))
    like(page, "failed")
    until(lambda: require(page.evaluate("Object.keys(localStorage)"), []), 30, "the deletion")
    assert page.evaluate("asked") == 1


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
        ("nolocks", NO_LOCKS),
    ],
)
def test_a_browser_without_storage_or_locks_sends_too(
    site: Site, context: BrowserContext, name: str, script: str
) -> None:
    context.add_init_script(script)
    opened(context, f"/{name}")
    opened(context, f"/{name}")
    site.expect(2, url=f"{site.origin}/{name}")


def test_hostile_addresses_are_events_like_any_others(site: Site, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f'/evil?"><script>alert(1)</script>{"y" * 3_000}')
    loaded(page)
    page.evaluate("(url) => void (location.href = url)", f"/long?{'x' * 9_000}")
    page.wait_for_url("**/long?*")
    loaded(page)
    urls = ["javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "http://[::1", "//", ""]
    say = "(urls) => [...urls, '\\ud800'].map((url) => truelog('page_view', { url, browser: 'hostile' }))"
    page.evaluate(say, urls)
    sent(page)
    [long] = [each for each in site.logged() if each["url"].startswith(f"{site.origin}/long")]
    assert len(long["url"]) == 8192
    assert long["referrer"].startswith(f"{site.origin}/evil?%22%3E%3Cscript%3Ealert(1)%3C/script%3Eyyy")
    stored = [each["url"] for each in site.logged(browser="hostile")]
    assert set(urls) <= set(stored)


@pytest.mark.parametrize("referrer", ["javascript:alert(1)", "data:text/html,<b>", "<script>alert(1)</script>"])
def test_a_hostile_referrer_is_text(site: Site, context: BrowserContext, referrer: str) -> None:
    """A browser cuts and escapes what it shows as the referrer. A script of the page may say anything."""
    said = referrer + "y" * 9_000
    context.add_init_script(f"Object.defineProperty(document, 'referrer', {{ value: {json.dumps(said)} }})")
    page = opened(context, "/referred")
    sent(page)
    assert said[:4096] in [each.get("referrer") for each in site.logged(url=f"{site.origin}/referred")]


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
