"""The decision index lists every page once, by its number and its title, and explains every number without a page."""

import re
from pathlib import Path

from tests.house.tree import PROJECT, files, plant

FOLDER = "docs/decisions"
LIMIT = 60  # lines of a page
TITLE = re.compile(r"# (\d{3}) (.+)")
LISTED = re.compile(
    r"^\| (\d{3}) \| \[(.+?)\]\((\d.+?)\) \|(?: ((?:\d{3})(?: in part: [^|]+)?))? \| \d{4}-\d\d-\d\d \|$", re.M
)
EXPLAINED = re.compile(r"^\| (\d{3}) \| [^|\[]+ \| [^|]+ \|$", re.M)


def faults(root: Path) -> list[str]:
    """Pages that the index omits or lists wrongly, rows without a page, and numbers that the index does not explain."""
    index = (root / FOLDER / "README.md").read_text()
    rows = LISTED.findall(index)
    listed = {(file, number, title) for number, title, file, _ in rows}
    numbers = {number for number, *_ in rows}
    pages = set()
    for path in files(root, f"{FOLDER}/[0-9]*.md"):
        title = TITLE.match(path.read_text())
        pages.add((path.name, *(title.groups() if title else ("", ""))))
    return [
        *(f"{name} is not listed with its number and title" for name, *_ in sorted(pages - listed)),
        *(f"{name} is listed and is not a page with this title" for name, *_ in sorted(listed - pages)),
        *_wrong_numbers([number for number, *_ in rows], EXPLAINED.findall(index)),
        *(
            f"{number} is replaced by {by[:3]}, which has no page"
            for number, *_, by in rows
            if by and by[:3] not in numbers
        ),
    ]


def _wrong_numbers(listed: list[str], explained: list[str]) -> list[str]:
    numbers = sorted(listed + explained)
    expected = [f"{number:03}" for number in range(int(numbers[-1]) + 1)] if numbers else []
    return [
        *(f"{number} has no page, and the index does not say why" for number in expected if number not in numbers),
        *(f"{number} has several rows" for number in expected if numbers.count(number) > 1),
    ]


def too_long(root: Path) -> list[str]:
    return [
        f"{path.name} has {lines} lines; the limit is {LIMIT}"
        for path in files(root, f"{FOLDER}/[0-9]*.md")
        if (lines := len(path.read_text().splitlines())) > LIMIT
    ]


def test_the_index_lists_every_decision() -> None:
    assert faults(PROJECT) == []


def test_no_page_is_too_long() -> None:
    assert too_long(PROJECT) == []


def test_planted_faults_of_the_index_are_found(tmp_path: Path) -> None:
    index = (
        "| 000 | [A](000-a.md) | | 2026-01-01 |\n"
        "| 001 | [Other](001-b.md) | 008 in part: its cost | 2026-01-01 |\n"
        "| 003 | its subject | [000](000-a.md) |\n"
        "| 005 | [Gone](005-gone.md) | 000 | 2026-01-01 |\n"
        "| 005 | its subject | Never used. |\n"
    )
    pages = {"000-a.md": "# 000 A\n", "001-b.md": "# 001 B\n", "002-c.md": "No title.\n", "README.md": index}
    plant(tmp_path, {f"{FOLDER}/{name}": text for name, text in pages.items()})
    assert faults(tmp_path) == [
        "001-b.md is not listed with its number and title",
        "002-c.md is not listed with its number and title",
        "001-b.md is listed and is not a page with this title",
        "005-gone.md is listed and is not a page with this title",
        "002 has no page, and the index does not say why",
        "004 has no page, and the index does not say why",
        "005 has several rows",
        "001 is replaced by 008, which has no page",
    ]


def test_a_planted_long_page_is_found(tmp_path: Path) -> None:
    plant(tmp_path, {f"{FOLDER}/000-a.md": "# 000 A\n" * LIMIT, f"{FOLDER}/001-b.md": "# 001 B\n" * (LIMIT + 1)})
    assert [each.split()[0] for each in too_long(tmp_path)] == ["001-b.md"]
