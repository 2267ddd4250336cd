"""Tests of the pages of rules in Chromium: `make browser`."""

import pytest
from playwright.sync_api import Page, expect

from tests.pages.browsing import open_page
from tests.pages.found_by_rules import RULE, SEARCH
from tests.pages.plausible import HOSTILE
from truelog.support.settings import Settings


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_a_rule_leads_to_its_matches_and_a_match_to_its_events(ruled: Settings, watched: Page) -> None:
    open_page(watched, "rules")
    watched.get_by_role("link", name=RULE).click()
    expect(watched.locator("main")).to_contain_text("WITHIN 5 minutes")
    expect(watched.locator("figure.chart svg[aria-label]")).to_be_visible()
    newest = watched.locator("tr[data-key=match0]")
    expect(newest).to_contain_text(HOSTILE[0])
    expect(watched.locator("tr[data-key=match3]")).to_contain_text("retracted")
    newest.get_by_role("link", name="succeeded").click()
    assert "record?topic=payment&partition=0&offset=1" in watched.url


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_a_search_shows_its_hits_for_any_time_range(ruled: Settings, watched: Page) -> None:
    open_page(watched, "rules?match=out")
    expect(watched.locator("main")).to_contain_text("No rules yet")
    watched.get_by_role("link", name=SEARCH).click()
    expect(watched.locator("main tbody tr").first).to_contain_text("a power outage in")
    watched.get_by_label("Until (UTC)").fill("2026-01-01T00:00:00")
    watched.get_by_label("Until (UTC)").press("Tab")
    expect(watched.locator("main")).to_contain_text("Nothing was found in this time range")
