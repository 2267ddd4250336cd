"""Visits of a site in Chromium: what the tests of the tracker do with its pages, and with their storage and clock."""

import json
from datetime import datetime
from http.client import HTTPConnection
from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.deadline import deadline, until
from tests.scenes.site import Site
from truelog.services.collector.declaration import BROWSER
from truelog.support.errors import ServiceDown

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
# Not to be tracked.
WISHES = (
    "Object.defineProperty(navigator, 'globalPrivacyControl', { value: true })",
    "Object.defineProperty(navigator, 'doNotTrack', { value: '1' })",
)
NO_LOCKS = "Object.defineProperty(navigator, 'locks', { value: undefined })"
# Keeps of each request to the collector whether it has `keepalive`, and its length.
RECORD = """(() => {
  const own = window.fetch;
  window.asked = [];
  window.fetch = (address, options) => {
    if (address.includes("/browser?")) asked.push([options.keepalive, options.body.length]);
    return own(address, options);
  };
})()"""
# Lets each further request to the collector fail, counts them, and runs WISH during the first.
FAIL = """void (() => {
  window.asked = 0;
  window.fetch = async () => {
    if (!asked++) WISH;
    throw new TypeError("no network");
  };
})()"""
# Counts how often the page has looked whether another tab sends.
LOOKS = """(() => {
  const own = Storage.prototype.getItem;
  window.looked = 0;
  Storage.prototype.getItem = function (name) {
    if (name == "truelog:lease") looked++;
    return own.call(this, name);
  };
})()"""
# A request of the page that uses most of the quota for requests with `keepalive`.
HANG = "void fetch('/hang', { method: 'POST', body: 'x'.repeat(50_000), keepalive: true }).catch(() => {})"
# Likes with the names NAME-0, NAME-1 and so on.
LIKE = """({ name, count, size }) => {
  for (let n = 0; n < count; n++) {
    truelog("like", { target_id: `${name}-${n}`, person_id: "p", verb: "liked", more: "x".repeat(size) });
  }
}"""


def like(page: Page, name: str, count: int = 1, size: int = 0) -> None:
    page.evaluate(LIKE, {"name": name, "count": count, "size": size})


def likes(site: Site, name: str) -> list[str]:
    """What is liked under this name, according to the log."""
    return [each["target_id"] for each in site.logged("like") if each["target_id"].startswith(f"{name}-")]


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
    stored(page, 0)


def stored(page: Page, events: int) -> None:
    """Wait until the browser holds so many events. A tab sees a moment later what another one stores or sends."""
    until(lambda: require(page.evaluate(STORED), events), 30, f"{events} events in the browser")


def post(site: Site, events: object, **headers: str) -> tuple[int, dict[str, Any]]:
    """Send as a program does, which may say anything of itself."""
    connection = HTTPConnection(site.collector.removeprefix("http://"), timeout=deadline(30))
    connection.request(BROWSER.method, f"{BROWSER.path}?key={site.key}", json.dumps(events).encode(), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
