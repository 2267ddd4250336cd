"""Each test that a document names exists, so that no row of `docs/promise.md` names a test that has moved.

A document names a test as `tests/a.py::test_b`, or by words after `-k`. Each of these words must be in the name of a
test function of the file. Two documents also name a test alone, as `test_b`.
`docs/promise.md` also says which tests the gate leaves to the nightly run.
"""

import ast
import re
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, texts

NAMED = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+)| -k (?:\"([^\"]+)\"|(\w+)))")
ALONE = re.compile(r"`(test_\w+)`")
OPERATORS = ("and", "or", "not")
PROMISE = "docs/promise.md"
NAMING_ALONE = (PROMISE, "docs/mutation.md")
UNMARKED = re.compile(r"`(tests/(?!nightly/)[\w/]+\.py)(?:::(\w+)| -k (?:\"([^\"]+)\"|(\w+)))?`(?! \(nightly\))")


def missing_tests(root: Path) -> list[str]:
    """The words in documents that select no test, and the names that no test has."""
    named = {name for _, module in modules(root, "tests/*.py") for name in _tests_in(module)}
    selected = [
        f"{document}: no test of {file} has {word} in its name"
        for document, text in texts(root, "*.md")
        for file, test, words, word in NAMED.findall(text)
        for word in _words(test or words or word)
        if not any(word.lower() in name for name in _tests(root / file))
    ]
    return selected + [
        f"{document}: no test is named {name}"
        for document, text in texts(root, *NAMING_ALONE)
        for name in ALONE.findall(text)
        if name.lower() not in named
    ]


def unmarked_nightly_tests(root: Path) -> list[str]:
    """The names in the list of promises that select nightly tests only, and are not marked."""
    found = []
    for file, test, words, word in UNMARKED.findall((root / PROMISE).read_text()):
        chosen = _words(test or words or word)
        marks = [
            is_nightly
            for name, is_nightly in _tests(root / file).items()
            if not chosen or any(each.lower() in name for each in chosen)
        ]
        if marks and all(marks):
            found.append(" -k ".join(filter(None, [file, test or words or word])))
    return found


def _words(expression: str) -> list[str]:
    return [each for each in re.findall(r"\w+", expression) if each not in OPERATORS]


def _tests(file: Path) -> dict[str, bool]:
    """The names of the file's tests, each with whether it is nightly in all its cases."""
    if not file.is_file():
        return {}
    return _tests_in(ast.parse(file.read_text()))


def _tests_in(module: ast.Module) -> dict[str, bool]:
    functions = (each for each in ast.walk(module) if isinstance(each, ast.FunctionDef))
    marks = [each.value for each in module.body if isinstance(each, ast.Assign) and _is_mark(each.targets[0])]
    of_all = any("mark.nightly" in ast.unparse(each) for each in marks)
    return {
        each.name.lower(): of_all or "pytest.mark.nightly" in map(ast.unparse, each.decorator_list)
        for each in functions
        if each.name.startswith("test_")
    }


def _is_mark(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "pytestmark"


def test_every_test_that_a_document_names_exists() -> None:
    assert missing_tests(PROJECT) == []


def test_planted_missing_tests_are_found(tmp_path: Path) -> None:
    tests = "def test_an_index() -> None: ...\ndef helper_of_moved() -> None: ...\n"
    document = (
        '`tests/test_a.py -k index`, `tests/test_a.py::test_an_index`, `tests/test_a.py -k "index or moved"`, '
        "`tests/test_a.py::test_gone`, `tests/test_b.py -k index`, `tests/test_a.py -k <view>`, `test_an_index`, "
        "`test_lost`, `test_a.py`"
    )
    planted = plant(tmp_path, {"tests/test_a.py": tests, "docs/promise.md": document})
    *selected, named = missing_tests(planted)
    assert [problem.partition(": no test of tests/")[2] for problem in selected] == [
        f"{file} has {word} in its name"
        for file, word in (("test_a.py", "moved"), ("test_a.py", "test_gone"), ("test_b.py", "index"))
    ]
    assert named == "docs/promise.md: no test is named test_lost"


def test_the_list_of_promises_says_which_tests_are_nightly() -> None:
    assert unmarked_nightly_tests(PROJECT) == []


def test_planted_nightly_tests_without_a_mark_are_found(tmp_path: Path) -> None:
    often, nightly = "def test_often() -> None: ...\n", "@pytest.mark.nightly\ndef test_rarely() -> None: ...\n"
    files = {
        "tests/test_a.py": often + nightly,
        "tests/test_b.py": nightly,
        "tests/test_c.py": f"pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]\n{often}",
        PROMISE: "`tests/test_a.py`, `tests/test_a.py -k rarely`, `tests/test_a.py -k rarely` (nightly), "
        '`tests/test_a.py -k "often or rarely"`, `tests/test_b.py`, `tests/test_c.py::test_often`',
    }
    found = unmarked_nightly_tests(plant(tmp_path, files))
    assert found == ["tests/test_a.py -k rarely", "tests/test_b.py", "tests/test_c.py -k test_often"]
