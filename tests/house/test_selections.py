"""Each test that a document names exists, so that no row of `docs/promise.md` names a test that has moved.

A document names a test as `tests/a.py::test_b`, or by words after `-k`. Each of these words must be in the name of a
test function of the file.
"""

import ast
import re
from pathlib import Path

from tests.house.tree import PROJECT, plant, texts

NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+)| -k (?:\"([^\"]+)\"|(\w+)))")
OPERATORS = ("and", "or", "not")


def missing_tests(root: Path) -> list[str]:
    """The words in documents that select no test."""
    return [
        f"{document}: no test of {file} has {word} in its name"
        for document, text in texts(root, "*.md")
        for file, test, words, word in NAMED.findall(text)
        for word in _words(test or words or word)
        if not any(word.lower() in name for name in _tests(root / file))
    ]


def _words(expression: str) -> list[str]:
    return [each for each in re.findall(r"\w+", expression) if each not in OPERATORS]


def _tests(file: Path) -> list[str]:
    if not file.is_file():
        return []
    functions = (each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.FunctionDef))
    return [each.name.lower() for each in functions if each.name.startswith("test_")]


def test_every_test_that_a_document_names_exists() -> None:
    assert missing_tests(PROJECT) == []


def test_planted_missing_tests_are_found(tmp_path: Path) -> None:
    tests = "def test_an_index() -> None: ...\ndef helper_of_moved() -> None: ...\n"
    document = (
        '`tests/test_a.py -k index`, `tests/test_a.py::test_an_index`, `tests/test_a.py -k "index or moved"`, '
        "`tests/test_a.py::test_gone`, `tests/test_b.py -k index`, `tests/test_a.py -k <view>`"
    )
    planted = plant(tmp_path, {"tests/test_a.py": tests, "docs/promise.md": document})
    assert [problem.partition(": no test of tests/")[2] for problem in missing_tests(planted)] == [
        f"{file} has {word} in its name"
        for file, word in (("test_a.py", "moved"), ("test_a.py", "test_gone"), ("test_b.py", "index"))
    ]
