"""The answers that pages get in the tests of their pictures: recorded once, and the same ever since.

A picture of a running platform differs each time, because a page shows ages and times. Here, the clock of the browser
shows the time of the recording. The page has the font of the pictures from the beginning, because the font decides how
far the row of tabs scrolls.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route, expect

from tests.pages.browsing import open_page
from tests.pages.picture_comparison import FONT

_DATA, _STYLES = "**/truelog/data/**", "**/truelog/static/pages.css"


@dataclass(frozen=True)
class PageAnswers:
    """The time of a recording, and the answers by path, in the order in which the page asked: status and JSON."""

    at: str
    by_path: Mapping[str, Sequence[tuple[int, Any]]]


def record(page: Page, address: str) -> PageAnswers:
    """Open the page on a running platform, and keep what it is answered."""
    found: dict[str, list[tuple[int, Any]]] = {}

    def keep(route: Route) -> None:
        response = route.fetch()
        found.setdefault(_path(route), []).append((response.status, response.json()))
        route.fulfill(response=response)

    page.route(_DATA, keep)
    _open(page, address)
    page.unroute(_DATA, keep)
    return PageAnswers(datetime.now(UTC).isoformat(), found)


def replay(page: Page, address: str, answers: PageAnswers) -> None:
    """Open the page at the time of the recording. It gets the same answers, and the last one again and again."""
    left = {path: list(each) for path, each in answers.by_path.items()}

    def answer(route: Route) -> None:
        given = left.get(_path(route))
        if given is None:
            route.fulfill(status=404, json={"detail": f"{_path(route)} was not recorded: see CONTRIBUTING.md"})
        else:
            status, found = given.pop(0) if len(given) > 1 else given[0]
            route.fulfill(status=status, json=found)

    page.clock.set_fixed_time(datetime.fromisoformat(answers.at))
    page.unroute_all()
    page.route(_DATA, answer)
    page.route(_STYLES, _add_font)
    _open(page, address)


def _add_font(route: Route) -> None:
    response = route.fetch()
    route.fulfill(response=response, body=response.text() + FONT)


def write(file: Path, recorded: Mapping[str, PageAnswers]) -> None:
    """Store the answers of pages, by address."""
    text = json.dumps({address: {"at": each.at, "by_path": each.by_path} for address, each in recorded.items()})
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(file: Path) -> dict[str, PageAnswers]:
    return {address: PageAnswers(**each) for address, each in json.loads(gzip.decompress(file.read_bytes())).items()}


def _open(page: Page, address: str) -> None:
    open_page(page, address)
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    page.wait_for_load_state("networkidle")  # a page may ask for more after its first answer


def _path(route: Route) -> str:
    return urlsplit(route.request.url).path.partition("/truelog/")[2]
