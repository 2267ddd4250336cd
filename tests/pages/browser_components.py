"""The visual test in Chromium: the page of components against stored pictures, in both themes.

A pixel differs if a channel differs by more than an eighth of its range. At most two percent of the pixels may differ,
which allows for another version of Chromium. The pictures show DejaVu Sans (Debian's `fonts-dejavu-core`), because
another font changes the layout. To store new pictures, delete the old pictures and run the test: it fails once.
"""

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from runtime.airflow import address
from tests.pages.browsing import open_page, sign_in
from truelog.support.settings import Settings

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 0.02
FONT = '* { font-family: "DejaVu Sans" !important } body > header { position: static !important }'
SHARE_OF_DIFFERENT_PIXELS = """async (pictures) => {
  const [one, other] = await Promise.all(pictures.map(async (picture) => {
    const image = new Image();
    image.src = `data:image/png;base64,${picture}`;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  }));
  if (one.width !== other.width || Math.abs(one.height - other.height) > 8) return 1;
  const length = Math.min(one.data.length, other.data.length);
  let different = 0;
  for (let n = 0; n < length; n += 4) {
    if ([0, 1, 2].some((channel) => Math.abs(one.data[n + channel] - other.data[n + channel]) > 32)) different += 4;
  }
  return different / length;
}"""


def difference(page: Page, one: bytes, other: bytes) -> float:
    """The share of the pixels that differ; 1 if the sizes differ."""
    return float(page.evaluate(SHARE_OF_DIFFERENT_PIXELS, [base64.b64encode(each).decode() for each in (one, other)]))


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
