"""A job of a user in Chromium, from Airflow's home page on."""

import re

from playwright.sync_api import Frame, Locator, Page, expect

from tests.pages.browsing import Clicks, beyond_the_width, framed
from tests.pages.ways import HANDS, SIZES, Way

POINTER, KEYBOARD = HANDS
MOST_TABS = 150


class Job(Clicks):
    """A user's clicks from Airflow's home page on. With the keyboard, a click is Tab up to the target and a key."""

    def __init__(self, page: Page, way: Way) -> None:
        super().__init__()
        self.page, self.way, self.has_keyboard = page, way, way.hand == KEYBOARD
        self.user = way.user
        self.page.set_viewport_size(SIZES[way.size])
        self.page.emulate_media(color_scheme=way.theme)
        self.page.goto("/")

    def click(self, target: Locator) -> None:
        if self.has_keyboard:
            self.reach(target)
            self.page.keyboard.press("Space" if target.get_attribute("type") == "checkbox" else "Enter")
            self.clicks += 1
        else:
            super().click(target)

    def choose(self, target: Locator, option: str) -> None:
        if self.has_keyboard:
            self.reach(target)
            target.locator("option", has_text=option).first.wait_for(state="attached")
            self.page.keyboard.type(option)
            self.clicks += 1
        else:
            super().choose(target, option)

    def write(self, target: Locator, text: str) -> None:
        if self.has_keyboard:
            self.reach(target)
            self.page.keyboard.type(text)
        else:
            target.fill(text)

    def reach(self, target: Locator) -> None:
        """Press Tab until the target has the focus."""
        target.wait_for()
        for _ in range(MOST_TABS):
            if target.evaluate("node => node === node.ownerDocument.activeElement && node.ownerDocument.hasFocus()"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{MOST_TABS} times Tab do not lead to {target}")

    def open_tab(self, name: str) -> None:
        """Two clicks: the entry in Airflow's navigation, and the tab."""
        self.click(self.page.get_by_role("link", name="Truelog"))
        tabs = self.frame.get_by_role("navigation", name="Pages")
        self.click(tabs.get_by_role("link", name=name, exact=True))
        expect(tabs.locator("[aria-current]")).to_have_text(name)  # pages have fields with the same labels

    def search_view(self, words: str, name: str) -> None:
        """Open the page of the only view that a search of *Views* finds."""
        self.open_tab("Views")
        self.write(self.frame.get_by_label("Search"), words)
        expect(self.frame.locator("main")).to_contain_text("1 in all")  # the link moves until then
        self.click(self.frame.get_by_role("link", name=name, exact=True))

    @property
    def card(self) -> Locator:
        return self.page.get_by_role("region", name="Truelog", exact=True)

    @property
    def frame(self) -> Frame:
        return framed(self.page)

    def is_refused(self, button: Locator, requires: str) -> bool:
        """Whether the user is the analyst. If so, the button is disabled, and the page says what it requires."""
        if self.user != "analyst":
            return False
        expect(button.first).to_be_disabled()
        reason = self.frame.get_by_text(re.compile(rf"Requires permission to {re.escape(requires)}\."))
        expect(reason.filter(visible=True).first).to_be_visible()
        self._require_fit()
        return True

    def done(self, name: str, limit: int) -> None:
        self._require_fit()
        super().done(f"{name} ({self.way})", limit)

    def _require_fit(self) -> None:
        """The page does not scroll sideways."""
        beyond = beyond_the_width(self.frame)
        assert beyond == [], beyond
