"""Tests delete records of Kafka by `tests/deleted_records.py` alone: the client's method damages the process."""

import ast
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant

_HELPER = "tests/deleted_records.py"


def other_deletions(root: Path) -> list[str]:
    """The calls of the client's method."""
    return [
        f"{name}:{node.lineno} deletes records by itself; see {_HELPER}"
        for name, tree in (*modules(root, "tests/*.py"), *modules(root, "include/*.py"), *modules(root, "bench/*.py"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "delete_records" and name != _HELPER
    ]


def test_records_are_deleted_in_one_way() -> None:
    assert other_deletions(PROJECT) == []


def test_another_way_is_found(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {"tests/test_a.py": "def test_a(broker):\n    broker.delete_records([])\n", _HELPER: "x.delete_records\n"},
    )
    assert other_deletions(tmp_path) == [f"tests/test_a.py:2 deletes records by itself; see {_HELPER}"]
