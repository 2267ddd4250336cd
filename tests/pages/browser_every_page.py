"""Tests in Chromium of every page as each user: its heading and title, whether it is accessible, and whether it fits.

Each user opens each page once. The tests look at what was found then.
"""

from dataclasses import dataclass
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Page, ViewportSize, expect

from pages.files import PAGES
from tests.pages.addresses import CONTRIBUTORS, TITLES
from tests.pages.axe import accessibility_problems
from tests.pages.browsing import (
    LAPTOP,
    PHONE,
    beyond_the_width,
    collect_errors,
    open_page,
    unexpected,
)
from tests.pages.conftest import USERS

SCREENS: dict[str, tuple[ViewportSize, Literal["light", "dark"]]] = {
    "laptop": (LAPTOP, "light"),
    "laptop, dark": (LAPTOP, "dark"),
    "phone, dark": (PHONE, "dark"),
}
# The pages that show commands. Buttons do the same on the pages of the second user.
_BUTTONS = {"certificates", "dead-letters", "explain"}
COMMANDS: dict[str, set[str]] = {
    "analyst": set(),
    "oncall": _BUTTONS,
    "admin": {*_BUTTONS, "flow", "rules", "pattern", "search", CONTRIBUTORS},
}
# What a click opens: dialogs, and details that are closed at first.
OPENED = (
    ("streams", "button:has-text('Restart')"),
    ("view?name=page_views", "button:has-text('Repair this view')"),
    ("certificates", "button:has-text('Verify')"),
    ("quality", "button:has-text('Validate now')"),
    ("dead-letters", "button:has-text('Send 6 dead letters again')"),
    ("alerts", "button:has-text('Silence alerts…')"),
    ("alerts", "summary:has-text('Runbook')"),
    ("backfills", "#views summary"),
)


@dataclass(frozen=True)
class Look:
    """What a user found on a page. `problems` has those of accessibility and of the width, by screen."""

    headings: list[str]
    title: str
    text: str
    commands: list[str]
    trouble: str
    problems: dict[str, list[str]]


@pytest.fixture
def opened(full: None, watched: Page) -> Page:
    return watched


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def looks(full: None, signed_in: dict[str, BrowserContext], user: str) -> dict[str, Look]:
    """What the user finds by address. Only an administrator's pages are examined on every screen."""
    page = signed_in[user].new_page()
    errors = collect_errors(page)
    found = {each: look(page, each, thoroughly=user == "admin") for each in TITLES if may_open(user, each)}
    page.close()
    assert unexpected(errors) == []
    return found


def may_open(user: str, address: str) -> bool:
    return user == "admin" or address != CONTRIBUTORS


def look(page: Page, address: str, *, thoroughly: bool) -> Look:
    open_page(page, address)
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    if thoroughly:  # other users see no record, and so not its title
        expect(page).to_have_title(f"{TITLES[address]} · Truelog")
    trouble = page.locator("#trouble")
    return Look(
        page.locator("h1:visible").all_inner_texts(),
        page.title(),
        page.locator("main").inner_text(),
        [each for each in page.locator("main code").all_inner_texts() if each.startswith("truelog ")],
        trouble.inner_text() if trouble.is_visible() else "",
        problems_by_screen(page) if thoroughly else {"laptop": beyond_the_width(page)},
    )


def problems_by_screen(page: Page) -> dict[str, list[str]]:
    found = {}
    for name, (size, theme) in SCREENS.items():
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=theme)
        page.evaluate("() => new Promise(requestAnimationFrame)")  # charts are drawn again at the new width
        found[name] = [*accessibility_problems(page), *beyond_the_width(page)]
    page.set_viewport_size(LAPTOP)
    page.emulate_media(color_scheme="light")
    return found


def test_these_are_all_pages() -> None:
    assert {each.partition("?")[0] for each in TITLES} == {*PAGES, CONTRIBUTORS}


def test_every_user_can_read_every_page(looks: dict[str, Look]) -> None:
    assert {address: each.trouble for address, each in looks.items() if each.trouble} == {}
    assert [address for address, each in looks.items() if not each.text or "null" in each.text.split()] == []
    assert [address for address, each in looks.items() if not each.title.endswith(" · Truelog")] == []  # no script ran


def test_no_page_has_an_accessibility_problem_or_scrolls_sideways(looks: dict[str, Look]) -> None:
    wrong = {
        (address, screen): found for address, each in looks.items() for screen, found in each.problems.items() if found
    }
    assert wrong == {}


def test_every_page_has_one_heading_which_names_its_tab(looks: dict[str, Look]) -> None:
    wrong = [
        address
        for address, each in looks.items()
        if len(each.headings) != 1 or not each.headings[0].startswith(each.title.removesuffix(" · Truelog"))
    ]
    assert wrong == []


def test_a_command_is_shown_to_users_who_can_do_the_same(user: str, looks: dict[str, Look]) -> None:
    """Alerts name commands to all users, and say who can run them."""
    shown = {address.partition("?")[0] for address, each in looks.items() if each.commands}
    assert shown == {"alerts"} | COMMANDS[user]
    assert ("need a shell on the host" in looks["alerts"].text) == (user != "admin")


@pytest.mark.parametrize(("address", "button"), OPENED)
def test_what_a_click_opens_is_accessible_and_fits(opened: Page, address: str, button: str) -> None:
    open_page(opened, address)
    opened.locator(button).first.click()
    expect(opened.locator("dialog[open] p, main details[open], #form details[open]").first).to_be_visible()
    assert {screen: found for screen, found in problems_by_screen(opened).items() if found} == {}


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_what_a_reader_may_not_do_is_accessible_and_fits(opened: Page) -> None:
    open_page(opened, "streams")
    opened.locator("#rights summary").click()
    assert {screen: found for screen, found in problems_by_screen(opened).items() if found} == {}


def test_the_card_is_accessible(opened: Page) -> None:
    opened.goto("/")
    expect(opened.get_by_role("region", name="Truelog", exact=True)).to_contain_text("As of")
    assert accessibility_problems(opened, within="section[aria-label=Truelog]") == []
