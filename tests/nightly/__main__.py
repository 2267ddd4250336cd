"""Runs the parts of `make nightly`, and records each green part: `python -m tests.nightly [PART…]`.

All parts take hours, so each part is recorded when it ends. Without names, all parts run. A part that fails does not
stop the others, and keeps its earlier record.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.affected import MARKERS, THREE_FILES
from tests.house.tree import PROJECT
from tests.nightly import record
from tests.nightly.record import Green

_PYTHON = (sys.executable, "-m")
_PYTEST = (*_PYTHON, "pytest")

# What each part runs. The part `cases` has the tests that are marked `nightly`.
PARTS: dict[str, tuple[str, ...]] = {
    "cases": (*_PYTEST, "-m", "nightly"),
    "cluster": (*_PYTEST, "tests/nightly/cluster.py"),
    "workers": (*_PYTEST, "tests/nightly/workers.py"),
    "decoder": (*_PYTEST, "tests/nightly/decoder.py"),
    "small_batches": (*_PYTEST, "tests/nightly/small_batches.py"),
    "soak": (*_PYTEST, "tests/nightly/soak.py"),
    "mutation": (*_PYTHON, "tests.nightly.mutation", "--minutes", "5"),  # for each module
    "alone": (*_PYTEST, *THREE_FILES, "-m", MARKERS, "--alone"),
    "load": (*_PYTHON, "tests.nightly.load", "make", "check", "browser", "test", "COSTS=print"),
}


def run(part: str) -> bool:
    """Run a part, and record it if it is green and the tree is still the commit that it was."""
    before, began = record.tested_commit(PROJECT), time.monotonic()
    green = subprocess.run(PARTS[part], cwd=PROJECT, check=False).returncode == 0
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
