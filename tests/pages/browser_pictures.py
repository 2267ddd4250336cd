"""The visual test in Chromium of every page: with fixed answers and a fixed clock, against stored pictures.

The pictures are half as wide and half as high as the page. CONTRIBUTING.md says how to renew them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FloatRect, Page, ViewportSize

from tests.deadline import until
from tests.pages import fixed_answers
from tests.pages.addresses import CONTRIBUTORS, first_of_each_page
from tests.pages.browsing import PHONE, sign_in
from tests.pages.fixed_answers import PageAnswers
from tests.pages.picture_comparison import difference, small
from tests.pages.ways import DESK, Theme
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

PICTURES = Path(__file__).parent / "pictures" / "pages"
ANSWERS = PICTURES / "answers.json.gz"
# *Components* has a test of its own.
PAGES = {name: address for name, address in first_of_each_page().items() if name != CONTRIBUTORS}
SCREENS: dict[str, tuple[ViewportSize, Theme]] = {"phone": (PHONE, "dark"), "desk": (DESK, "light")}
HIGHEST = 1_600  # pixels of a page
SHARE, QUALITY = 0.5, 0.5
TOLERANCE = 0.005
MOST_BYTES = 800_000  # of all pictures
# A busy machine draws frames before it says that the width has changed. A chart has the height of its old width until
# then, so the test says it at once.
_DRAW_FOR_THE_WIDTH = """() => {
  dispatchEvent(new Event("resize"));
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


@pytest.fixture(scope="module")
def drawn(pages: Settings, chromium: Browser) -> Iterator[Page]:
    context = sign_in(chromium, pages, "admin", bypass_csp=True)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def answers(drawn: Page, request: pytest.FixtureRequest) -> dict[str, PageAnswers]:
    """The stored answers. If there are none, those of a new platform, which the fixture stores."""
    if not ANSWERS.exists():
        request.getfixturevalue("full")
        fixed_answers.write(ANSWERS, {address: fixed_answers.record(drawn, address) for address in PAGES.values()})
    return fixed_answers.read(ANSWERS)


def open_page(page: Page, name: str, answers: dict[str, PageAnswers]) -> None:
    """Open it on a phone, where the row of tabs scrolls to the tab of the page."""
    page.set_viewport_size(PHONE)
    fixed_answers.replay(page, PAGES[name], answers[PAGES[name]])


def picture(page: Page, screen: str) -> bytes:
    size, theme = SCREENS[screen]
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.wait_for_function("width => innerWidth === width", arg=size["width"])
    page.evaluate(_DRAW_FOR_THE_WIDTH)
    height = min(HIGHEST, page.evaluate("document.documentElement.scrollHeight"))
    whole: FloatRect = {"x": 0, "y": 0, "width": size["width"], "height": height}
    return page.screenshot(full_page=True, clip=whole, animations="disabled")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_stored(drawn: Page, answers: dict[str, PageAnswers], name: str, tmp_path: Path) -> None:
    blank = drawn.context.new_page()
    open_page(drawn, name, answers)
    wrong = []
    for screen in SCREENS:
        stored, seen = PICTURES / f"{name}-{screen}.webp", tmp_path / f"{name}-{screen}.png"
        if not stored.exists():
            stored.write_bytes(small(blank, picture(drawn, screen), SHARE, QUALITY))
            wrong.append(f"{stored} did not exist. Look at it, and commit it")
            continue

        def require_alike(stored: Path = stored, seen: Path = seen, screen: str = screen) -> None:
            seen.write_bytes(picture(drawn, screen))
            taken = small(blank, seen.read_bytes(), SHARE, QUALITY)
            if (share := difference(blank, taken, stored.read_bytes())) > TOLERANCE:
                raise ServiceDown(f"{share:.1%} of the pixels of {stored} differ from those of {seen}")

        until(require_alike, 5, "the picture")  # a page may draw more after its first answer
    blank.close()
    assert wrong == []


def test_a_part_that_lies_elsewhere_is_a_difference(drawn: Page, answers: dict[str, PageAnswers]) -> None:
    blank = drawn.context.new_page()
    open_page(drawn, "lag", answers)
    for screen in SCREENS:
        before = small(blank, picture(drawn, screen), SHARE, QUALITY)
        assert difference(blank, before, small(blank, picture(drawn, screen), SHARE, QUALITY)) == 0
        moved = drawn.add_style_tag(content="#form { padding-left: 12px } h1 { padding-top: 12px }")
        assert difference(blank, before, small(blank, picture(drawn, screen), SHARE, QUALITY)) > TOLERANCE
        moved.evaluate("style => style.remove()")
    blank.close()


def test_a_picture_does_not_depend_on_when_the_browser_says_that_the_width_has_changed(
    drawn: Page, answers: dict[str, PageAnswers]
) -> None:
    """Here, the browser never says so. A chart of a phone's width would be three times as high."""
    blank = drawn.context.new_page()
    open_page(drawn, "analytics", answers)
    drawn.evaluate(
        "() => addEventListener('resize', (each) => each.isTrusted && each.stopImmediatePropagation(), true)"
    )
    taken = small(blank, picture(drawn, "desk"), SHARE, QUALITY)
    assert difference(blank, taken, (PICTURES / "analytics-desk.webp").read_bytes()) <= TOLERANCE
    blank.close()


def test_the_pictures_are_small_and_each_belongs_to_a_page() -> None:
    found = {each.stem: each.stat().st_size for each in PICTURES.glob("*.webp")}
    assert found.keys() == {f"{name}-{screen}" for name in PAGES for screen in SCREENS}
    assert sum(found.values()) + ANSWERS.stat().st_size < MOST_BYTES
