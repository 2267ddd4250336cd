"""The record of `make nightly`: the last commit at which each part was green. A house test fails if it is too old.

A part counts only if no file has changed during the part: its commit must be what was tested. The age of a part that
was never green is the age of the rule that each file is recorded. So the rule needs a first record of each file within
its first commits, and one of a later file at once.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.house.tree import git

FILE = Path("tests", "nightly", "RECORD.json")  # in the project
RULE = Path("tests", "nightly", "cases.py")  # records each file


@dataclass(frozen=True)
class Green:
    """The last green run of a part."""

    commit: str
    date: str


def read(project: Path) -> dict[str, Green]:
    file = project / FILE
    return {part: Green(**values) for part, values in json.loads(file.read_text()).items()} if file.is_file() else {}


def write(project: Path, part: str, green: Green) -> None:
    record = {**read(project), part: green}
    lines = {name: asdict(each) for name, each in sorted(record.items())}
    (project / FILE).write_text(json.dumps(lines, indent=1) + "\n")


def tested_commit(project: Path) -> str:
    """The commit of the tree; empty if a file differs from it. The record itself may differ."""
    changed = git(project, "status", "--porcelain", "--", ".", f":(exclude){FILE}")
    return "" if changed else git(project, "rev-parse", "HEAD").strip()


def too_old(project: Path, most_commits: Mapping[str, int]) -> list[str]:
    """The parts whose last green run is more commits ago than `most_commits` says.

    Without the history of the tree, no part is known to be recent.
    """
    if why := _no_history(project):
        return [f"the age of the nightly runs is unknown: {why}"]
    record = read(project)
    return [
        problem for part, most in most_commits.items() if (problem := _problem(project, part, record.get(part), most))
    ] + [f"{FILE} has a part {part}, which does not exist: remove it" for part in record.keys() - most_commits.keys()]


def _problem(project: Path, part: str, green: Green | None, most: int) -> str:
    cure = f"run `make nightly PARTS={part}` and commit {FILE}"
    if green and not _is_ancestor(project, green.commit):
        return f"{part} was green at {green.commit[:12]}, which is not in the history of HEAD: {cure}"
    since = green.commit if green else _first_commit(project, RULE)
    age = int(git(project, "rev-list", "--count", f"{since}..HEAD")) if since else 0
    if age <= most:
        return ""
    last = "was green" if green else "has never been green; the rule began"
    return f"{part} {last} {age} commits ago, at most {most} are allowed: {cure}"


def _is_ancestor(project: Path, commit: str) -> bool:
    try:
        git(project, "merge-base", "--is-ancestor", commit, "HEAD")
    except subprocess.CalledProcessError:
        return False
    return True


def _first_commit(project: Path, file: Path) -> str:
    """The commit that added the file; empty if no commit has it."""
    return git(project, "log", "--diff-filter=A", "--format=%H", "-1", "--", str(file)).strip()


def _no_history(project: Path) -> str:
    try:
        shallow = git(project, "rev-parse", "--is-shallow-repository").strip()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return "this tree is not a git clone"
    return "this clone is shallow; run `git fetch --unshallow`" if shallow == "true" else ""
