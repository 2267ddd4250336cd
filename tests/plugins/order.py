"""Runs the test files in a random order. Tests within a file keep their order, and `--seed N` repeats a run's order.

A file's place depends only on the seed and its path. Two files therefore keep their relative order if fewer files run.

With `--alone`, each test runs as if its file had no other: the fixtures of the file end after each test. The tests of
a file then run in reverse order, so that what an earlier test left behind anywhere else is missing too.
"""

import hashlib
import random
from typing import Any

import pytest

_SEED = pytest.StashKey[int]()
_SEEDS = 1_000_000
_LONG = ("tests/scenes/", "tests/laws/")  # folders with files that take minutes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, metavar="N", help="run the test files in the order of an earlier run")
    parser.addoption("--alone", action="store_true", help="run each test as if its file had no other")


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("seed", config.getoption("seed"))
    config.stash[_SEED] = random.Random().randrange(_SEEDS) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed to a worker of xdist, because all workers must collect the tests in the same order."""
    node.workerinput["seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"order of files: --seed {config.stash[_SEED]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Repeat the seed, because a long output has hidden the header."""
    terminalreporter.write_line(pytest_report_header(terminalreporter.config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.stash[_SEED]
    if config.getoption("alone"):
        items.reverse()
    items.sort(key=lambda item: place(seed, item.nodeid.partition("::")[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Pretend that the next test is in another file."""
    if item.config.getoption("alone") and (file := item.getparent(pytest.Module)) and file.parent:
        item.session._setupstate.teardown_exact(_Elsewhere.from_parent(file.parent, name="elsewhere"))


class _Elsewhere(pytest.Item):
    def runtest(self) -> None:
        raise AssertionError


def place(seed: int, file: str) -> str:
    """The key by which files are sorted.

    A long file has a place in the first half. No worker then still runs one when the others have nothing left to do.
    """
    digest = hashlib.sha256(f"{seed} {file}".encode()).hexdigest()
    return f"{int(digest[0], 16) // 2:x}{digest[1:]}" if file.startswith(_LONG) else digest
