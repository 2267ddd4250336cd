"""Tests do not name the columns of the kernel's own tables: builders insert rows (`tests/builders/`).

A renamed column then changes one builder. The tests of migrations write the tables of earlier releases, as they were.
Changes and deletions of such rows are still in the tests. Their number may only fall.
"""

import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts

MIGRATIONS = "tests/library/storage/"
PLACES = ("tests/*", ":(exclude)tests/builders/*", ":(exclude)tests/house/*", f":(exclude){MIGRATIONS}*")
INSERT = re.compile(r"\binsert\s+into\s+truelog\.\w+", re.IGNORECASE)
CHANGE = re.compile(r"\b(?:update|delete\s+from|truncate)\s+truelog\.", re.IGNORECASE)
CHANGES = 80  # the last number of changes and deletions; lower it when there are fewer


def raw(root: Path, statement: re.Pattern[str]) -> list[str]:
    """The statements in tests that write a table of the kernel without a builder."""
    return [
        f"{name}:{text.count(chr(10), 0, found.start()) + 1} writes `{' '.join(found.group().split())}`"
        for name, text in texts(root, *PLACES)
        for found in statement.finditer(text)
    ]


def test_tests_insert_rows_with_builders() -> None:
    assert raw(PROJECT, INSERT) == [], "use a builder of `tests/builders/`"


def test_the_number_of_other_statements_falls() -> None:
    assert len(raw(PROJECT, CHANGE)) <= CHANGES


def test_planted_statements_are_found(tmp_path: Path) -> None:
    planted = {
        "tests/builders/views.py": 'QUERY = "INSERT INTO truelog.view VALUES (1)"\n',
        "tests/library/storage/test_migration.py": 'QUERY = "INSERT INTO truelog.view VALUES (1)"\n',
        "tests/laws/test_a.py": 'a = 1\nQUERY = """insert into\n  truelog.view"""\nOTHER = "INSERT INTO state.a"\n',
        "tests/laws/test_b.py": 'QUERIES = "UPDATE truelog.view", "DELETE FROM truelog.view", "TRUNCATE state.a"\n',
    }
    plant(tmp_path, planted)
    assert raw(tmp_path, INSERT) == ["tests/laws/test_a.py:2 writes `insert into truelog.view`"]
    assert len(raw(tmp_path, CHANGE)) == 2
