"""Runs one shard of the test files: `--shard 1/2` runs the first of two. Together, the shards run every test.

A file's shard depends only on its path. The files of `IN_EACH` are in every shard.
"""

import argparse
import hashlib
import re

import pytest

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
    return file.startswith(IN_EACH) or int(hashlib.sha256(file.encode()).hexdigest(), 16) % count == number - 1


def _shard(text: str) -> str:
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text}: name a shard and the number of shards, such as 1/2")
    return text
