"""Tests in Chromium of the pages that show records of hostile and random bytes."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.pages.browsing import beyond_the_width, open_page
from tests.pages.hostile_bytes import PAGE_VIEW, PAYMENT, hostile_values, store_hostile
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.support.settings import Settings

NOISE = 8  # random values, and as many torn values
SHORT = 500  # bytes; other values are only in lists
VALUES = hostile_values(113, NOISE)
# Control characters without line feeds, and characters that reverse the direction of text.
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def archived_letters(filled: Settings, kafka: Settings) -> int:
    """The number of archived dead letters."""
    return store_hostile(filled, VALUES) // 2


def addresses(archived: int) -> Iterator[str]:
    yield "dead-letters?hours=24"
    yield from (f"record?list={each}" for each in (DEAD_LETTER, PAGE_VIEW, PAYMENT))
    for offset, value in enumerate(VALUES):
        if len(value) < SHORT:
            yield f"record?topic={PAGE_VIEW if offset % 2 else PAYMENT}&partition=0&offset={offset}"
            if offset < archived:
                yield f"record?topic={DEAD_LETTER}&partition=0&offset={offset}"


def test_hostile_and_random_bytes_are_drawn_as_text(archived_letters: int, watched: Page) -> None:
    """The page of each short record, and the lists that have all records."""
    wrong = {}
    for each in addresses(archived_letters):
        open_page(watched, each)
        main, trouble = watched.locator("main"), watched.locator("#trouble")
        expect(main).to_have_attribute("aria-busy", "false")
        found = [
            *([trouble.inner_text()] if trouble.is_visible() else []),
            *INVISIBLE.findall(main.inner_text().replace("\t", "")),  # between the cells of a table
            *beyond_the_width(watched),
        ]
        if found or watched.locator("h1:visible").count() != 1 or main.locator("img, script").count():
            wrong[each] = found
    assert wrong == {}
