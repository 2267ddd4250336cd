"""What the tests in Chromium share: they open a page, find its frame inside Airflow, and sign users in."""

import re
import shutil
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Frame, Locator, Page, Playwright, Route, ViewportSize, expect

from runtime.airflow import address
from runtime.airflow_client import password
from tests.deadline import deadline
from tests.speed import record_speed
from truelog.support.settings import Settings

NAMES = ("chromium", "chromium-browser", "google-chrome")
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}
_BEYOND = """() => [...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth && !each.closest("nav, svg, .wide"))
  .slice(0, 8).map((each) => `too wide: ${each.outerHTML.slice(0, 120)}`)"""
REFUSED = re.compile("status of (400|409)")  # invalid input, or a conflict with an earlier action


def executable() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, f"None of {', '.join(NAMES)} is installed. Install Chromium with the system's package manager."
    return found


def launch(playwright: Playwright) -> Browser:
    expect.set_options(timeout=deadline(20_000))
    path = executable()
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # Chromium has no sandbox for root


def sign_in(browser: Browser, settings: Settings, user: str, *, bypass_csp: bool = False) -> BrowserContext:
    """A browser context that has signed in through Airflow's form."""
    context = browser.new_context(viewport=LAPTOP, base_url=address(settings), bypass_csp=bypass_csp)
    context.set_default_timeout(deadline(30_000))
    page = context.new_page()
    page.goto("/auth/login/")
    form = page.locator("form[name=login]")
    form.locator("input[name=username]").fill(user)
    form.locator("input[name=password]").fill(password(settings, user))
    form.locator("[type=submit]").click()
    page.wait_for_url(lambda url: "/auth/login" not in url)
    page.close()
    return context


def collect_errors(page: Page) -> list[str]:
    """The list to which the page's script errors and console errors are added."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return errors


def collect_page_errors(context: BrowserContext) -> list[list[str]]:
    """The same list for each page that is opened in this browser."""
    errors: list[list[str]] = []

    def watch(page: Page) -> None:
        errors.append(collect_errors(page))

    context.on("page", watch)
    return errors


def unexpected(errors: list[str]) -> list[str]:
    return [each for each in errors if not REFUSED.search(each)]


def open_page(page: Page, name: str) -> None:
    """Open a page and wait until it shows data."""
    page.goto(f"/truelog/{name}")
    expect(page.locator("#as-of")).to_contain_text("As of")


def change_answer(page: Page, url: re.Pattern[str], change: Callable[[Any], None]) -> None:
    """From now on, the page gets the answers of this address with a change."""

    def changed(route: Route) -> None:
        response = route.fetch()
        found = response.json()
        change(found)
        route.fulfill(response=response, json=found)

    page.route(url, changed)


def let_through(held: Route, page: Page) -> None:
    """Let a request that a test holds get its answer, and wait until the page has dealt with it."""
    with page.expect_response(held.request.url) as answered:
        held.continue_()
    answered.value.finished()
    page.evaluate("fetch('data/rights').then((found) => found.text())")


def beyond_the_width(page: Page | Frame) -> list[str]:
    """If the page scrolls sideways, the first elements that lie beyond its width.

    A page without scripts can be asked before its stylesheets are there, and is wider without them.
    """
    page.wait_for_load_state()
    return [] if is_wide_enough(page) else page.evaluate(_BEYOND) or ["too wide"]


def is_wide_enough(page: Page | Frame) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def framed(page: Page) -> Frame:
    page.locator("iframe").wait_for()
    found = page.locator("iframe").element_handle()
    assert found
    frame = found.content_frame()
    assert frame
    return frame


class Clicks:
    """Counts the clicks of a job. Typing is not a click, and a choice from a list is one. The summary of the tests has
    the clicks and the seconds.
    """

    def __init__(self) -> None:
        self.clicks, self.begun = 0, time.monotonic()

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def choose(self, target: Locator, option: str) -> None:
        target.select_option(option)
        self.clicks += 1

    def done(self, name: str, limit: int) -> None:
        record_speed(f"job: {name}, {self.clicks} clicks", time.monotonic() - self.begun, "s")
        assert self.clicks <= limit
