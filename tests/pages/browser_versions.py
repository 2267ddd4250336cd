"""Tests of the versions of a view in Chromium: `make browser`."""

import pytest
from playwright.sync_api import Page, expect

from tests.builders.views import an_exclusion
from tests.library.versions.two_versions import TwoVersions
from tests.pages.browsing import open_page


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_rows_are_compared_before_readers_move_and_go_back(versions: TwoVersions, watched: Page) -> None:
    versions.make_ready()
    open_page(watched, f"view?name={versions.name}")
    second = watched.locator("tr[data-key='2']")
    expect(second).to_contain_text("Ready")
    second.get_by_role("button", name="Compare rows…").click()
    dialog = watched.get_by_role("dialog")
    expect(dialog).to_contain_text("0 missing, 0 extra, 1 different")
    expect(dialog).to_contain_text("url=a, views=2")
    dialog.get_by_role("button", name="Close").click()

    second.get_by_role("button", name="Move readers here…").click()
    dialog.get_by_role("button", name="Move readers", exact=True).click()
    expect(watched.locator("tr[data-key='2']")).to_contain_text("Serving")
    assert versions.seen() == [("a", 2)]

    watched.locator("tr[data-key='1']").get_by_role("button", name="Move readers back…").click()
    dialog.get_by_role("button", name="Move readers back", exact=True).click()
    expect(watched.locator("tr[data-key='2']")).to_contain_text("held")
    assert versions.seen() == [("a", 1)]


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_an_analyst_sees_the_stages_and_moves_nobody(versions: TwoVersions, watched: Page) -> None:
    versions.run_both()
    open_page(watched, f"view?name={versions.name}")
    second = watched.locator("tr[data-key='2']")
    expect(second).to_contain_text("not built yet")
    versions.make_ready()
    watched.reload()
    expect(second).to_contain_text("Ready")
    assert second.get_by_role("button").all_inner_texts() == ["Compare rows…", "Move readers here…"]
    assert second.locator("button:enabled").count() == 0
    expect(second).to_contain_text("Requires permission to trigger the cut_over DAG.")
    an_exclusion(versions.connection, versions.name, 7, version=2, error="DivideByZero")
    watched.reload()
    second.get_by_role("link").click()
    expect(watched.locator("main")).to_contain_text(f"Records that version 2 of {versions.name} skips")
    expect(watched.locator("main tbody")).to_contain_text("DivideByZero")
