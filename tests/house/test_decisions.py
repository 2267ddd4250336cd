"""The decision index lists every page once, by its number and its title."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, files, plant

FOLDER = "docs/decisions"
TITLE = re.compile(r"# (\d{3}) (.+)")
LISTED = re.compile(r"^\| (\d{3}) \| \[(.+?)\]\((.+?)\) \| (?:Accepted|Replaced by \d{3}) \| \d{4}-\d\d-\d\d \|$", re.M)


def unlisted(root: Path) -> list[str]:
    """Pages that are missing from the index or listed wrongly, and index lines without a page."""
    index = (root / FOLDER / "README.md").read_text()
    listed = {(file, number, title) for number, title, file in LISTED.findall(index)}
    pages = set()
    for path in files(root, f"{FOLDER}/[0-9]*.md"):
        title = TITLE.match(path.read_text())
        pages.add((path.name, *(title.groups() if title else ("", ""))))
    return [f"{name} is not listed with its number and title" for name, *_ in sorted(pages - listed)] + [
        f"{name} is listed and is not a page with this title" for name, *_ in sorted(listed - pages)
    ]


def test_the_index_lists_every_decision() -> None:
    assert unlisted(PROJECT) == []


def test_planted_faults_of_the_index_are_found(tmp_path: Path) -> None:
    index = (
        "| 000 | [A](000-a.md) | Accepted | 2026-01-01 |\n"
        "| 001 | [Other](001-b.md) | Replaced by 002 | 2026-01-01 |\n"
        "| 009 | [Gone](009-gone.md) | Accepted | 2026-01-01 |\n"
    )
    pages = {"000-a.md": "# 000 A\n", "001-b.md": "# 001 B\n", "002-c.md": "No title.\n", "README.md": index}
    plant(tmp_path, {f"{FOLDER}/{name}": text for name, text in pages.items()})
    assert unlisted(tmp_path) == [
        "001-b.md is not listed with its number and title",
        "002-c.md is not listed with its number and title",
        "001-b.md is listed and is not a page with this title",
        "009-gone.md is listed and is not a page with this title",
    ]
