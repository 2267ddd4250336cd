"""The visual test in Chromium: the page of components against stored pictures, in both themes.

At most two percent of the pixels may differ, which allows for another version of Chromium. To store new pictures,
delete the old pictures and run the test: it fails once.
"""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from runtime.airflow import address
from tests.pages.browsing import open_page, sign_in
from tests.pages.picture_comparison import FONT, difference
from truelog.support.settings import Settings

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.02


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_components_look_as_stored(pages: Settings, chromium: Browser, theme: str) -> None:
    context = sign_in(chromium, pages, "admin", bypass_csp=True)
    page = context.new_page()
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce")
    open_page(page, "components")
    page.add_style_tag(content=FONT)
    taken = page.locator("main").screenshot(animations="disabled")
    stored = PICTURES / f"components-{theme}.png"
    if not stored.exists():
        stored.write_bytes(taken)
        pytest.fail(f"{stored} did not exist. Look at it, and commit it")
    blank = context.new_page()
    assert difference(blank, taken, stored.read_bytes()) <= TOLERANCE
    context.close()


def test_a_changed_colour_and_a_changed_size_are_differences(pages: Settings, chromium: Browser) -> None:
    page = chromium.new_page(base_url=address(pages))
    taken = {}
    for name, style in {"white": "", "black": "background: black", "higher": "height: 900px"}.items():
        page.set_content(f'<body style="margin: 0"><main style="width: 300px; height: 300px; {style}"></main>')
        taken[name] = page.locator("main").screenshot()
    assert difference(page, taken["white"], taken["white"]) == 0
    assert difference(page, taken["white"], taken["black"]) == 1
    assert difference(page, taken["white"], taken["higher"]) == 1
    page.close()
