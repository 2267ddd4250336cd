"""Runs the parts of `make nightly`, and records each green part: `python -m tests.nightly [PART…]`.

All parts take hours, so each part is recorded when it ends. Without names, all parts run. A part that fails does not
stop the others, and keeps its earlier record. Each file of the part `cases` is recorded, and may be named as a part.
The name of a group names all its parts, which begin so: `mutation` has one for each module, and `alone` one for each
folder of tests.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.affected import MARKERS, THREE_FILES
from tests.house.tree import PROJECT
from tests.nightly import cases, record
from tests.nightly.cases import Outcome
from tests.nightly.decoder import QUARTERS
from tests.nightly.mutation import SUITES
from tests.nightly.record import Green

_PYTHON = (sys.executable, "-m")
_PYTEST = (*_PYTHON, "pytest")
_LOAD = (*_PYTHON, "tests.nightly.load", "make")

# A part may be so many commits old. A part that tests the product has the smaller number. A part that tests the tests,
# or one decoder on millions of records, takes an hour or more, and what it finds rarely comes back.
OFTEN, RARELY = 60, 300


@dataclass(frozen=True)
class Part:
    """A command, and after how many commits it must run again."""

    command: tuple[str, ...]
    most_commits: int = OFTEN


def _folders(tests: Path) -> set[str]:
    """The folders of tests, relative to `tests`: `views`, and `library/kernel`, because the library has most tests."""
    found = {file.relative_to(tests).parts[:-1] for file in tests.glob("**/test_*.py")}
    return {"/".join(each[: 2 if each[0] == "library" else 1]) for each in found}


PARTS: dict[str, Part] = {
    "cluster": Part((*_PYTEST, "tests/nightly/cluster.py")),
    "workers": Part((*_PYTEST, "tests/nightly/workers.py")),
    "small_batches": Part((*_PYTEST, "tests/nightly/small_batches.py")),
    "soak": Part((*_PYTEST, "tests/nightly/soak.py")),
    "load/1": Part((*_LOAD, "check", "browser", "test", "COSTS=print", "SHARD=1/2"), RARELY),  # as `.ci/run`
    "load/2": Part((*_LOAD, "test", "COSTS=print", "SHARD=2/2"), RARELY),
}
PARTS |= {
    f"decoder/{quarter}": Part((*_PYTEST, f"tests/nightly/decoder.py::test_the_decoders_agree[{quarter}]"), RARELY)
    for quarter in QUARTERS
}
PARTS |= {
    f"mutation/{module}": Part((*_PYTHON, "tests.nightly.mutation", "--minutes", "5", module), RARELY)
    for module in SUITES
}
PARTS |= {
    f"alone/{folder}": Part((*_PYTEST, *THREE_FILES, "-m", MARKERS, "--alone", f"tests/{folder}"), RARELY)
    for folder in sorted(_folders(PROJECT / "tests"))
}
_GROUPS = tuple(dict.fromkeys(part.partition("/")[0] for part in PARTS if "/" in part))
_KNOWN = ", ".join([cases.NAME, *_GROUPS, *(part for part in PARTS if "/" not in part)])


def limits(project: Path) -> dict[str, int]:
    """After how many commits each part and each file of `cases` must run again."""
    parts = {name: part.most_commits for name, part in PARTS.items()}
    return parts | dict.fromkeys(cases.files(project), OFTEN)


def run(part: str) -> bool:
    """Run a part, and record it if it is green and the tree is still the commit that it was."""
    before, began = record.tested_commit(PROJECT), time.monotonic()
    is_green = subprocess.run(PARTS[part].command, cwd=PROJECT, check=False).returncode == 0
    _record(before, {part: Outcome(is_green, time.monotonic() - began)})
    return is_green


def run_cases(files: Sequence[str]) -> bool:
    """Run these files of `cases`, or all of them, and record each green file."""
    before = record.tested_commit(PROJECT)
    found = cases.run(PROJECT, files)
    _record(before, found)
    return bool(found) and all(each.is_green for each in found.values())


def _record(before: str, found: Mapping[str, Outcome]) -> None:
    """Record what was found on the commit `before`, unless the tree has changed since.

    A part that is red keeps its earlier record.
    """
    may_record = record.tested_commit(PROJECT) == before != ""
    for part, each in found.items():
        outcome = "green" if each.is_green else "RED"
        if may_record and each.is_green:
            record.write(PROJECT, part, Green(before, f"{datetime.now(UTC):%Y-%m-%d}"))
        elif each.is_green:
            outcome += ", but not recorded, because files have changed since the last commit"
        sys.stdout.write(f"{part}: {outcome}; {each.seconds:.0f} s\n")


def _named(word: str) -> list[str]:
    """The parts, or the file of cases, that a word names."""
    if word in _GROUPS:
        return [each for each in PARTS if each.startswith(f"{word}/")]
    if word in {*PARTS, cases.NAME} or (word.endswith(".py") and (PROJECT / word).is_file()):
        return [word]
    raise argparse.ArgumentTypeError(f"{word} is neither a part ({_KNOWN}, one of a group) nor a test file")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly")
    what = f"of {_KNOWN}; one part of a group, as alone/views; or a file of cases"
    parser.add_argument("parts", nargs="*", type=_named, metavar="PART", help=what)
    named = [part for parts in parser.parse_args(words).parts for part in parts] or [cases.NAME, *PARTS]
    files = [each for each in named if each not in {*PARTS, cases.NAME}]  # a module of `mutation` ends with .py too
    green = [run_cases(files)] if files or cases.NAME in named else []
    return int(not all(green + [run(each) for each in named if each in PARTS]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
