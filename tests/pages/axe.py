"""axe-core, which finds accessibility problems of a page in Chromium."""

import gzip
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from playwright.sync_api import Page

_FILE = Path(__file__).parent / "vendored" / "axe.min.js.gz"
_HASH = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
SERIOUS = ("serious", "critical")
_RUN = """async ([within, impacts]) => (await axe.run(within ?? document, { resultTypes: ["violations"] })).violations
  .filter(({ impact }) => impacts.includes(impact))
  .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((each) => each.html.slice(0, 200)).join(" | ")}`)"""


def accessibility_problems(
    page: Page, within: str | None = None, impacts: Sequence[str] = ("moderate", *SERIOUS)
) -> list[str]:
    """The problems of the page, or of the part that a selector names, each with its elements."""
    page.evaluate(_source())
    found: list[str] = page.evaluate(_RUN, [within, list(impacts)])
    return found


@cache
def _source() -> str:
    source = gzip.decompress(_FILE.read_bytes())
    assert hashlib.sha256(source).hexdigest() == _HASH
    return source.decode()
