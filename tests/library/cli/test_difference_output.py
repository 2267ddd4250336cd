"""People see the difference of two sides by key and column."""

from typing import Any

import pytest

from truelog.cli.difference_output import show_difference
from truelog.versions.difference import VersionDifference

SAMPLE: list[dict[str, Any]] = [
    {"one": {"url": "a", "views": 1, "bytes": 7}, "other": {"url": "a", "views": 2, "bytes": 7}},
    {"one": {"url": "b", "views": None, "bytes": 8}, "other": None},
    {"one": None, "other": {"url": None, "views": 4, "bytes": 9}},
]


def test_a_line_for_each_key_has_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"views": 1}
    found = VersionDifference("pages", 1, "pages_replay", (4, 4), 1, 1, 2, columns, [], [], 3, ["url"], SAMPLE)
    show_difference(found, "Repeat the command.")
    text = capsys.readouterr().out
    assert "version 1 has 4 rows, pages_replay has 4: 1 missing, 1 extra, 2 different" in text
    assert "3 records are counted in one of both only, and may explain differences. Repeat the command." in text
    assert "3 of 4 differing rows" in text
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert lines == [
        ['url="a"', "views=1", "views=2"],
        ['url="b"', "views=null", "no row"],
        ["", "bytes=8", ""],
        ["url=null", "no row", "views=4"],
        ["", "", "bytes=9"],
    ]
