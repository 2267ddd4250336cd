"""The part `cases`: the tests that are marked `nightly`. Each of their files is recorded for itself.

They take more than an hour, so a failure must not repeat them all. `make nightly PARTS=FILE` repeats one file.
"""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.affected import THREE_FILES

NAME = "cases"

# Jobs in Chromium are among these tests. This form of the report names files.
_OPTIONS = ("-m", "nightly", "-o", "python_files=test_*.py browser_jobs*.py", "-o", "junit_family=xunit1")
_NOT_GREEN = ("failure", "error", "skipped")


@dataclass(frozen=True)
class Outcome:
    """Whether all tests of a file have passed, and how long they took together."""

    is_green: bool
    seconds: float


def files(project: Path) -> list[str]:
    """The files that hold nightly tests, as pytest collects them: marks also come from parameters and other modules.

    Raises CalledProcessError if pytest cannot collect a file.
    """
    command = (sys.executable, "-m", "pytest", *_OPTIONS, "--collect-only", "--quiet")
    listed = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout
    return sorted({line.partition("::")[0] for line in listed.splitlines() if "::" in line})


def run(project: Path, files: Sequence[str]) -> dict[str, Outcome]:
    """Run the tests in these files, or in all if none are given. The outcomes by file: none without a report."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = (sys.executable, "-m", "pytest", *THREE_FILES, *_OPTIONS, f"--junitxml={report}", *files)
        subprocess.run(command, cwd=project, check=False)
        return outcomes(report.read_text()) if report.is_file() else {}


def outcomes(report: str) -> dict[str, Outcome]:
    """The outcomes in a report of pytest. A skipped test has not passed."""
    of_file = defaultdict[str, list[Outcome]](list)
    for test in ElementTree.fromstring(report).iter("testcase"):
        is_green = all(test.find(each) is None for each in _NOT_GREEN)
        of_file[test.get("file", "")].append(Outcome(is_green, float(test.get("time", "0"))))
    return {
        file: Outcome(all(each.is_green for each in found), sum(each.seconds for each in found))
        for file, found in of_file.items()
    }
