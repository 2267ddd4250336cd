"""The contrast of text and lines in both themes, computed from the colours in pages.css as WCAG 2.2 defines it."""

import re
from pathlib import Path

import pytest

from tests.house.tree import PROJECT

STATIC = PROJECT / "include" / "pages" / "static"
TOKEN = re.compile(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)")
TEXT = [
    *((text, page) for text in ("text", "quiet", "link", "good", "bad", "fair") for page in ("page", "raised")),
    *((name, f"{name}-page") for name in ("good", "bad", "fair")),
    ("page", "link"),  # the button that confirms
    ("text", "bad-page"),
    ("quiet", "bad-page"),
]
LINES = [(f"line-{n}", "page") for n in range(8)]


def tokens(theme: int) -> dict[str, str]:
    """The colours of the light theme (0) or the dark theme (1)."""
    return {name: colours[theme] for name, *colours in TOKEN.findall((STATIC / "pages.css").read_text())}


def luminance(colour: str) -> float:
    channels = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_all_text_is_legible(theme: int) -> None:
    colours = tokens(theme)
    assert [pair for pair in TEXT if contrast(colours[pair[0]], colours[pair[1]]) < 4.5] == []


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_lines_of_charts_are_visible(theme: int) -> None:
    colours = tokens(theme)
    assert [pair for pair in LINES if contrast(colours[pair[0]], colours[pair[1]]) < 3] == []


def test_black_on_white_has_the_highest_contrast() -> None:
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def colours_outside_the_tokens(css: str) -> list[str]:
    return re.findall(r"#[0-9a-fA-F]{3,8}\b(?![\w-]*\s*\{)", TOKEN.sub("", css))


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.css")), ids=lambda path: Path(path).name)
def test_every_colour_is_a_token_and_every_text_colour_is_checked(path: Path) -> None:
    css = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    assert colours_outside_the_tokens(re.sub(r"(?m)^[^{]*\{", "{", css)) == []
    used = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", css)) | set(
        re.findall(r"text \{ fill: var\(--([\w-]+)\)", css)
    )
    assert used <= {text for text, _ in TEXT}
