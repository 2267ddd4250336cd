"""The order of test files is random, the same on all workers, and a seed repeats it, also for a part of the files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import PROJECT
from tests.plugins.order import place

FILES = [f"test_{number:02}.py" for number in range(20)]
TWO_FILES = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def pytest_in(folder: Path, *options: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {"PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
    command = [sys.executable, "-m", "pytest", "-p", "tests.plugins.order", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=given)


def run(folder: Path, *options: str) -> tuple[list[str], int]:
    """The tests in the order in which they ran, and the seed that the run printed."""
    report = folder / "ran"
    report.unlink(missing_ok=True)
    ended = pytest_in(folder, *options, REPORT=str(report))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    header, summary = re.findall(r"--seed (\d+)", ended.stdout)
    assert header == summary
    return report.read_text().split(), int(header)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty files with two tests each, which write down when they run."""
    test = "import os\ndef test_{name}(request):\n    with open(os.environ['REPORT'], 'a') as out:\n"
    test += "        out.write(request.node.nodeid + '\\n')\n"
    for file in FILES:
        (tmp_path / file).write_text(test.format(name="b") + test.format(name="a"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_workers_take_the_order_of_the_controllers_seed(folder: Path) -> None:
    """A run with xdist ends with an error if its workers collect the tests in different orders.

    Each worker has two files in advance, so a file may run a few places away from its own.
    """
    ran, seed = run(folder, *TWO_FILES)
    order = sorted(FILES, key=lambda file: place(seed, file))
    first = list(dict.fromkeys(test.partition("::")[0] for test in ran))
    assert sorted(ran) == sorted(f"{file}::test_{name}" for file in FILES for name in "ab")
    assert {*first[:4]} <= {*order[:10]}
    for file in FILES:
        assert [test for test in ran if test.startswith(file)] == [f"{file}::test_b", f"{file}::test_a"]


def test_a_seed_repeats_the_order_also_for_some_of_the_files(folder: Path) -> None:
    ran, seed = run(folder)
    assert ran == [
        f"{file}::test_{name}" for file in sorted(FILES, key=lambda file: place(seed, file)) for name in "ba"
    ]
    assert run(folder, "--seed", str(seed)) == (ran, seed)
    some = FILES[:7]
    assert run(folder, "--seed", str(seed), *some) == ([test for test in ran if test.startswith(tuple(some))], seed)


def test_seeds_give_different_orders() -> None:
    assert len({tuple(sorted(FILES, key=lambda file: place(seed, file))) for seed in range(100)}) == 100
    assert {min(FILES, key=lambda file: place(seed, file)) for seed in range(500)} == {*FILES}


def test_a_run_does_not_end_with_a_long_file() -> None:
    long = [f"tests/scenes/{file}" for file in FILES]
    orders = [sorted([*FILES, *long], key=lambda file: place(seed, file)) for seed in range(100)]
    assert not any({*long} & {*order[-5:]} for order in orders)
    assert {order[0] in long for order in orders} == {True, False}
    assert len({tuple(file for file in order if file in long) for order in orders}) == 100


COUPLED = """
import pytest
made = []
@pytest.fixture(scope="module")
def shared(): return []
def test_a(shared): shared.append(1)
def test_needs_a_fixture_that_another_test_changed(shared): assert shared
def test_b(): made.append(1)
def test_needs_a_module_that_another_test_changed(): assert made
def test_c(shared): assert not shared
"""


def test_alone_finds_tests_that_need_another(tmp_path: Path) -> None:
    (tmp_path / "test_coupled.py").write_text(COUPLED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    together = re.findall(r"^FAILED \S+::test_(\S+)", pytest_in(tmp_path, "-ra").stdout, re.MULTILINE)
    assert together == ["c"]
    alone = re.findall(r"^FAILED \S+::test_(\S+)", pytest_in(tmp_path, "-ra", "--alone").stdout, re.MULTILINE)
    assert sorted(alone) == ["needs_a_fixture_that_another_test_changed", "needs_a_module_that_another_test_changed"]
