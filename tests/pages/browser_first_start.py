"""The pages of a platform that was just set up, in Chromium: one line instead of a wall of unknown states."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from pages.files import PAGES, TABS
from tests.builders.applications import a_database_of
from tests.pages import browsing
from tests.pages.browsing import is_wide_enough, open_page
from tests.servers import OnSharedServers
from truelog.storage.database import connect
from truelog.support.settings import Settings

EMPTY = (
    *TABS,
    *("view?name=page_views", "certificates?view=page_views", "record", "freshness"),
    "explain?view=page_views&where=host+is+NULL",
)
MISSING = ("reconciliation?id=1", "pattern?name=none", "search?name=none")


@pytest.fixture(scope="module")
def new(environment: OnSharedServers, kafka: Settings) -> Settings:
    """A new database, in which no process has done anything."""
    with connect(environment.settings, autocommit=True) as connection:
        a_database_of(connection, timedelta())
    return environment.settings


@pytest.fixture
def opened(new: Settings, signed_in: dict[str, BrowserContext]) -> Iterator[Page]:
    page = signed_in["analyst"].new_page()
    errors = browsing.collect_errors(page)
    yield page
    page.close()
    assert browsing.unexpected(errors) == []


def test_streams_say_in_one_line_that_views_are_being_created(opened: Page) -> None:
    open_page(opened, "streams")
    stream = opened.locator("[data-application=stream]")
    expect(stream.locator(".starting")).to_contain_text("Starting 5 views are being created: ")
    expect(stream.locator("table")).to_have_count(0)
    expect(stream.locator("h2 .badge")).to_have_text("Starting")
    assert is_wide_enough(opened)


def test_the_card_names_the_broken_view_and_counts_the_others(opened: Page) -> None:
    """Its state is that of the broken view."""
    opened.goto("/")
    card = opened.get_by_role("region", name="Truelog", exact=True)
    expect(card.get_by_role("status")).to_have_text(
        "Critical: no open alerts, 5 problems, 0 of 5 views created. A problem that lasts opens an alert"
    )
    problems = card.get_by_role("list", name="Problems")
    expect(problems).to_contain_text("Starting: 4 views are being created")
    expect(problems.get_by_role("listitem")).to_have_count(5)


def test_each_page_of_an_empty_platform_can_be_read(opened: Page) -> None:
    wrong = {}
    for name in EMPTY:
        open_page(opened, name)
        expect(opened.locator("main")).to_have_attribute("aria-busy", "false")
        text = opened.locator("main").inner_text()
        has_lag = name in ("lag", "streams")  # of the archive
        is_unknown = not has_lag and text.count("Unknown") > (name == "flow")  # the lag of the broken view
        if (
            opened.locator("#trouble").is_visible()
            or is_unknown
            or "null" in text.split()
            or not is_wide_enough(opened)
        ):
            wrong[name] = (opened.locator("#trouble").inner_text(), text)
    assert wrong == {}


def test_a_page_about_something_that_does_not_exist_says_so(
    new: Settings, signed_in: dict[str, BrowserContext]
) -> None:
    page = signed_in["analyst"].new_page()
    for name in MISSING:
        page.goto(f"/truelog/{name}")
        expect(page.locator("#trouble")).to_be_visible()
        expect(page.locator("#trouble")).not_to_contain_text("tell an administrator the number")
        expect(page.locator("main")).to_be_empty()
        assert is_wide_enough(page)
    page.close()


def test_these_are_all_pages() -> None:
    assert {each.partition("?")[0] for each in (*EMPTY, *MISSING)} == {*PAGES}
