"""Runs each test of `make test` in a process of its own, and lists the tests that fail alone.

    python -m tests.nightly.each_alone [WORD…]

A test that passes only after other tests is found here. The words choose the tests whose ids contain one of them.
`build/each_alone.jsonl` has the result of each test. A run that was interrupted continues at the same commit, and
repeats the tests that failed.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.affected import MARKERS
from tests.deadline import deadline
from tests.house.tree import PROJECT, git

RESULTS = Path("build", "each_alone.jsonl")
_AT_A_TIME = 2
_SECONDS = 900  # for each test, with the start of its services
_PROGRESS_EVERY = 25  # tests
_TAIL = 4_000  # characters of the output of a test that fails


@dataclass(frozen=True)
class Result:
    """The outcome of a test that ran alone."""

    commit: str
    test: str
    passed: bool
    seconds: float
    output: str = ""


def collected(project: Path, *arguments: str) -> list[str]:
    """The ids of the tests, in a process of its own, which does not change this one."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:warnings", *arguments]
    listed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout
    return sorted({line for line in listed.splitlines() if "::" in line})


def run_alone(project: Path, commit: str, test: str) -> Result:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--cold", test]
    try:
        ended = subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=False, timeout=deadline(_SECONDS)
        )
        passed, output = ended.returncode == 0, ended.stdout + ended.stderr
    except subprocess.TimeoutExpired:
        passed, output = False, f"it did not end within {deadline(_SECONDS):.0f} s"
    return Result(commit, test, passed, round(time.monotonic() - began, 1), "" if passed else output[-_TAIL:])


def passed_before(results: Path, commit: str) -> set[str]:
    lines = results.read_text().splitlines() if results.is_file() else []
    found = [Result(**json.loads(line)) for line in lines]
    return {each.test for each in found if each.passed and each.commit == commit}


def run_all(project: Path, commit: str, tests: Sequence[str]) -> Iterator[Result]:
    """Run the tests, a few at a time. Each result is written when its test ends."""
    results = project / RESULTS
    results.parent.mkdir(exist_ok=True)
    remaining = [test for test in tests if test not in passed_before(results, commit)]
    sys.stdout.write(f"{len(tests)} tests, {len(tests) - len(remaining)} have passed before\n")
    with ThreadPoolExecutor(_AT_A_TIME) as pool, results.open("a") as file:
        for number, result in enumerate(pool.map(lambda test: run_alone(project, commit, test), remaining), 1):
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
            if not result.passed or number % _PROGRESS_EVERY == 0:
                outcome = "passed" if result.passed else "FAILED"
                sys.stdout.write(f"{number}/{len(remaining)} {outcome} after {result.seconds} s: {result.test}\n")
                sys.stdout.flush()
            yield result


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.each_alone")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only the tests whose ids contain one of these words")
    given = parser.parse_args(words)
    every = collected(PROJECT, "-m", MARKERS)
    tests = [test for test in every if not given.words or any(word in test for word in given.words)]
    failed = [
        result for result in run_all(PROJECT, git(PROJECT, "rev-parse", "HEAD").strip(), tests) if not result.passed
    ]
    for result in failed:
        sys.stdout.write(f"\n{result.test}\n{result.output}\n")
    sys.stdout.write(f"{len(failed)} of {len(tests)} tests fail alone\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
