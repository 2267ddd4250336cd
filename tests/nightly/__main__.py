"""Runs the parts of `make nightly`, and records each green part: `python -m tests.nightly [PART…]`.

All parts take hours, so each part is recorded when it ends. Without names, all parts run. A part that fails does not
stop the others, and keeps its earlier record.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.affected import MARKERS, THREE_FILES
from tests.house.tree import PROJECT
from tests.nightly import record
from tests.nightly.record import Green

_PYTHON = (sys.executable, "-m")
_PYTEST = (*_PYTHON, "pytest")

# A part may be so many commits old. A part that tests the product has the smaller number. A part that tests the tests,
# or one decoder on millions of records, takes an hour or more, and what it finds rarely comes back.
OFTEN, RARELY = 60, 300


@dataclass(frozen=True)
class Part:
    """A command, and after how many commits it must run again."""

    command: tuple[str, ...]
    most_commits: int = OFTEN


# The tests that are marked `nightly` are several parts, so that a failure repeats only its own part. `pages` needs
# Chromium. `cases` has all tests outside the folders of the other two.
_MARKED = (*_PYTEST, "-m", "nightly", "-o", "python_files=test_*.py browser_jobs*.py")
_SCENES, _PAGES = "tests/scenes", "tests/pages"
PARTS: dict[str, Part] = {
    "cases": Part((*_MARKED, f"--ignore={_SCENES}", f"--ignore={_PAGES}")),
    "scenes": Part((*_MARKED, _SCENES)),
    "pages": Part((*_MARKED, _PAGES)),
    "cluster": Part((*_PYTEST, "tests/nightly/cluster.py")),
    "workers": Part((*_PYTEST, "tests/nightly/workers.py")),
    "small_batches": Part((*_PYTEST, "tests/nightly/small_batches.py")),
    "soak": Part((*_PYTEST, "tests/nightly/soak.py")),
    "decoder": Part((*_PYTEST, "tests/nightly/decoder.py"), RARELY),
    "mutation": Part((*_PYTHON, "tests.nightly.mutation", "--minutes", "5"), RARELY),  # for each module
    "alone": Part((*_PYTEST, *THREE_FILES, "-m", MARKERS, "--alone"), RARELY),
    "load": Part((*_PYTHON, "tests.nightly.load", "make", "check", "browser", "test", "COSTS=print"), RARELY),
}


def run(part: str) -> bool:
    """Run a part, and record it if it is green and the tree is still the commit that it was."""
    before, began = record.tested_commit(PROJECT), time.monotonic()
    green = subprocess.run(PARTS[part].command, cwd=PROJECT, check=False).returncode == 0
    seconds = round(time.monotonic() - began)
    outcome = "green" if green else "RED"
    if green and before and record.tested_commit(PROJECT) == before:
        record.write(PROJECT, part, Green(before, f"{datetime.now(UTC):%Y-%m-%d}", seconds))
    elif green:
        outcome += ", but not recorded, because files have changed since the last commit"
    sys.stdout.write(f"{part}: {outcome}; {seconds} s\n")
    return green


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=f"of {', '.join(PARTS)}")
    given = parser.parse_args(words)
    green = {part: run(part) for part in given.parts or PARTS}
    return int(not all(green.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
