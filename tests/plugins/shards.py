"""Runs one shard of the test files: `--shard 1/2` runs the first of two. Together, the shards run every test.

The files of `IN_EACH` are in every shard. The others are divided by their recorded costs, so the shards cost about the
same. The shard of a file without a recorded cost depends only on its path.
"""

import argparse
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.plugins.cost_record import read_record

# What no commit may break for a day: the house rules, that streams equal their rebuilds, and a whole day of a platform.
IN_EACH = ("tests/house/", "tests/laws/test_stream_equals_batch.py", "tests/scenes/test_day_in_a_shop.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", type=_shard, metavar="K/N", help="run only the files of this shard, such as 1/2")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (shard := config.getoption("shard")):
        return
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (chosen if is_in(shard, item.nodeid.partition("::")[0]) else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def is_in(shard: str, file: str) -> bool:
    """Whether the shard, such as `1/2`, runs the file."""
    number, count = map(int, shard.split("/"))
    by_path = int(hashlib.sha256(file.encode()).hexdigest(), 16) % count
    return file.startswith(IN_EACH) or _recorded(count).get(file, by_path) == number - 1


@cache
def _recorded(count: int) -> Mapping[str, int]:
    """The shard of each file that has a recorded cost, from 0 on."""
    record = read_record(Path(__file__).parents[2])
    files = record.files if record else {}
    return divided({name: cost for name, cost in files.items() if name.startswith("tests/")}, count)


def divided(costs: Mapping[str, float], count: int) -> Mapping[str, int]:
    """The shard of each file, from 0 on. The most expensive file comes first, and each goes to the cheapest shard."""
    found, sums = dict[str, int](), [0.0] * count
    for file in sorted(costs, key=lambda file: (-costs[file], file)):
        if not file.startswith(IN_EACH):
            found[file] = sums.index(min(sums))
            sums[found[file]] += costs[file]
    return found


def _shard(text: str) -> str:
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text}: name a shard and the number of shards, such as 1/2")
    return text
