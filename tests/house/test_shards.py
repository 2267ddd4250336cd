"""Each test file is in one of the shards, and a run of a shard runs only its files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import PROJECT, files
from tests.plugins.shards import IN_EACH, divided, is_in

FILES = [f"test_{number:02}.py" for number in range(20)]
TWO_FILES = ("-p", "xdist.plugin", "-n", "2", "--dist", "loadfile")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in FILES:
        (tmp_path / file).write_text("def test_a(): ...\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PYTHONPATH": str(PROJECT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "tests.plugins.shards", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def ran(folder: Path, *options: str) -> list[str]:
    ended = run(folder, *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return sorted(re.findall(r"^PASSED (\S+)::", ended.stdout, re.MULTILINE))


@pytest.mark.parametrize("options", [(), TWO_FILES], ids=["one process", "two workers"])
def test_the_shards_together_run_each_file_once(folder: Path, options: tuple[str, ...]) -> None:
    shards = [ran(folder, *options, "--shard", f"{number}/3") for number in (1, 2, 3)]
    assert all(0 < len(shard) < len(FILES) for shard in shards)
    assert sorted(file for shard in shards for file in shard) == ran(folder, *options)


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "1", "a/b"])
def test_a_shard_that_does_not_exist_is_refused(folder: Path, wrong: str) -> None:
    ended = run(folder, "--shard", wrong)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{wrong}: name a shard and the number of shards" in ended.stderr


def test_every_file_is_in_a_shard_and_the_chosen_ones_are_in_each() -> None:
    found = [str(path.relative_to(PROJECT)) for path in files(PROJECT, "tests/*test_*.py")]
    for number in (1, 2):
        shard = [file for file in found if is_in(f"{number}/2", file)]
        assert 0.4 < len(shard) / len(found) < 0.7
        assert {file for file in found if file.startswith(IN_EACH)} <= {*shard}
    assert all(is_in("1/2", file) or is_in("2/2", file) for file in found)
    assert all(any(file.startswith(each) for file in found) for each in IN_EACH)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_cost_about_the_same(count: int) -> None:
    costs = {f"tests/test_{number}.py": 100 / number for number in range(1, 200)} | dict.fromkeys(IN_EACH, 1_000.0)
    found = divided(costs, count)
    assert found.keys() == costs.keys() - {*IN_EACH}
    sums = [sum(costs[file] for file, shard in found.items() if shard == number) for number in range(count)]
    assert max(sums) - min(sums) < 0.02 * sum(sums)
