"""The tests of a module are where its path says, and every path of a test that a file names exists.

`tests/library/<package>/test_<module>.py` tests `include/truelog/<package>/<module>.py`. The name of the whole package
may replace it (`fold/test_fold.py`), and both may be followed by an aspect (`kernel/test_merge_zombies.py`).
`tests/library/runtime/` has the tests of `include/runtime/`.
"""

import re
from pathlib import Path, PurePosixPath

from tests.house.tree import PROJECT, files, plant, texts
from tests.nightly.mutation import LIBRARY, SUITES

TESTS = "tests/library/"
HOMES = {"runtime": "include/"}  # other packages are in the library
NAMED = re.compile(r"\btests/[\w/]+\.py\b")


def without_module(root: Path) -> list[str]:
    """The test files whose names begin with no module of their place."""
    modules = {str(path.relative_to(root)) for path in files(root, "include/*.py")}
    return [
        f"{name} tests no module of {package}/; give it the name of the module that it tests, or move it"
        for name in (str(path.relative_to(root)) for path in files(root, f"{TESTS}*test_*.py"))
        for package in [_package(name)]
        if not _subjects(package, modules) & _beginnings(name)
    ]


def _package(test: str) -> str:
    """The folder of the module that a test file tests."""
    place = PurePosixPath(test.removeprefix(TESTS)).parent
    return str(PurePosixPath(HOMES.get(str(place).partition("/")[0], "include/truelog/")) / place)


def _subjects(package: str, modules: set[str]) -> set[str]:
    """The names of a package, of its modules and of the packages in it."""
    if f"{package}/__init__.py" not in modules:
        return set()
    within = (PurePosixPath(name).relative_to(package) for name in modules if name.startswith(f"{package}/"))
    return {PurePosixPath(package).name} | {PurePosixPath(path.parts[0]).stem for path in within}


def _beginnings(test: str) -> set[str]:
    """What the name of a test file may be about: `merge_zombies` is about `merge_zombies` or `merge`."""
    words = PurePosixPath(test).stem.removeprefix("test_").split("_")
    return {"_".join(words[:count]) for count in range(1, len(words) + 1)}


def missing_tests(root: Path) -> list[str]:
    """The paths below `tests/` that a file names and that do not exist. House tests plant such paths.

    The README tells readers to write a test, so only `test_docs.py` checks it.
    """
    return [
        f"{name} names {path}, which does not exist"
        for name, text in texts(root, ":(exclude)tests/house/*", ":(exclude)CHANGELOG.md", ":(exclude)README.md")
        for path in sorted(set(NAMED.findall(text)))
        if not (root / path).is_file()
    ]


def test_every_test_file_has_its_module() -> None:
    assert without_module(PROJECT) == []


def test_every_test_that_a_file_names_exists() -> None:
    assert missing_tests(PROJECT) == []


def test_every_module_of_the_mutation_run_exists() -> None:
    assert [name for name in SUITES if not (LIBRARY / name).is_file()] == []


def test_planted_test_files_without_a_module_are_found(tmp_path: Path) -> None:
    modules = ("kernel/__init__", "kernel/merge", "tables/__init__", "tables/fold/__init__", "tables/fold/inputs")
    good = ("kernel/test_kernel", "kernel/test_merge_zombies", "tables/test_fold", "tables/fold/test_inputs")
    bad = ("kernel/test_inputs", "kernel/test_merging", "plans/test_steps", "tables/fold/test_merge")
    plant(tmp_path, {f"include/truelog/{name}.py": "" for name in modules})
    plant(tmp_path, {f"{TESTS}{name}.py": "" for name in good + bad})
    plant(tmp_path, {"include/runtime/__init__.py": "", f"{TESTS}runtime/test_runtime.py": ""})
    assert [problem.partition(" ")[0] for problem in without_module(tmp_path)] == [f"{TESTS}{each}.py" for each in bad]


def test_planted_paths_of_tests_are_found(tmp_path: Path) -> None:
    planted = {
        "tests/laws/test_a.py": '"""See `tests/laws/test_b.py`."""\n',
        "tests/nightly/mutation.py": 'SUITES = {"a.py": ("tests/laws/test_a.py", "tests/laws/test_c.py")}\n',
        "docs/a.md": "Run `tests/laws/test_a.py`, then tests/laws/*.py and `tests/scenes/test_<name>.py`.\n",
    }
    assert missing_tests(plant(tmp_path, planted)) == [
        "tests/laws/test_a.py names tests/laws/test_b.py, which does not exist",
        "tests/nightly/mutation.py names tests/laws/test_c.py, which does not exist",
    ]
