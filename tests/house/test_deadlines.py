"""Every wait of a test goes through `tests/deadline.py`, so that one factor prolongs all of them on a busy machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant

# The functions whose positional argument limits a wait, with the argument's index.
LIMITS = {
    "communicate": 1,
    "consume": 1,
    "create_connection": 1,
    "flush": 0,
    "join": 0,
    "poll": 0,
    "result": 0,
    "set_default_timeout": 0,
    "settimeout": 0,
    "timeout": 0,  # pytest's mark
    "wait": 0,
    "wait_for": 1,
}
DURATION = re.compile("seconds|timeout|patience", re.IGNORECASE)
PAUSE = 1.0  # seconds; a shorter wait is a pause between two looks, as is each wait in the condition of a loop

# Files whose limits are not deadlines of tests, and why.
OTHERS = {
    "tests/deadline.py": "multiplies the limits",
    "tests/library/support/test_terminal.py": "tests the function that waits, with a clock of its own",
}


def raw_limits(root: Path) -> list[str]:
    """The waits in tests whose limit does not go through `tests/deadline.py`. Benchmarks have limits of their own."""
    return [
        f"{name}:{node.lineno} {ast.unparse(node)} is not a deadline; see tests/deadline.py"
        for name, tree in modules(root, "tests/*.py")
        if name not in OTHERS
        for node in _limits(tree)
        if not _is_multiplied(node)
    ]


def _limits(tree: ast.Module) -> Iterator[ast.ImportFrom | ast.expr]:
    pauses = {each for loop in ast.walk(tree) if isinstance(loop, ast.While) for each in ast.walk(loop.test)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truelog.support"):
            if any(f"{node.module}.{each.name}".endswith(("support.wait", "wait.until")) for each in node.names):
                yield node
        elif isinstance(node, ast.Call) and node not in pauses:
            yield from (each.value for each in node.keywords if each.arg and each.arg.endswith("timeout"))
            index = LIMITS.get(node.func.attr if isinstance(node.func, ast.Attribute) else "", len(node.args))
            yield from (each for each in node.args[index : index + 1] if _is_duration(each))


def _is_duration(node: ast.expr) -> bool:
    """Whether a positional argument is a number of seconds. Others are conditions, texts and pauses."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
    is_plain = all(isinstance(each, ast.Constant | ast.Name | ast.Attribute | ast.BinOp) for each in parts)
    return isinstance(node, ast.Constant) or (is_plain and bool(DURATION.search(ast.unparse(node))))


def _is_multiplied(node: ast.ImportFrom | ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        value = node.value
        return not isinstance(value, int | float) or value < PAUSE
    inner = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(ast.unparse(each.func) == "deadline" for each in inner)


def test_every_wait_of_a_test_has_a_deadline_that_is_multiplied() -> None:
    assert raw_limits(PROJECT) == []


def test_planted_limits_are_found(tmp_path: Path) -> None:
    lines = {
        "from truelog.support.wait import until": False,
        "from truelog.support import wait": False,
        "from tests.deadline import deadline, until": True,
        "until(ready, 60, 'the service')": True,
        "stream.wait(lambda: True, 60, 'the view')": True,
        "process.wait(60)": False,
        "process.wait(deadline(60))": True,
        "process.wait(timeout=60)": False,
        "process.wait(timeout=seconds)": False,
        "process.wait(timeout=deadline(seconds))": True,
        "process.wait(SECONDS + 1)": False,
        "subprocess.run(['true'], timeout=60)": False,
        "asyncio.wait_for(answer(), 5)": False,
        "socket.create_connection(address, 5)": False,
        "connection.settimeout(1)": False,
        "producer.flush(30)": False,
        "producer.poll(0)": True,
        "future.result()": True,
        "', '.join(words)": True,
        "pytest.mark.timeout(1_800)": False,
        "while not ended.wait(5): pass": True,  # a pause
        "ended.wait(0.2)": True,  # a pause
    }
    text = "\n".join(lines)
    plant(tmp_path, {"tests/scenes/test_a.py": text, "bench/b.py": text, "include/runtime/c.py": text})
    found = {int(problem.split()[0].partition(":")[2]) for problem in raw_limits(tmp_path)}
    assert {line: number not in found for number, line in enumerate(lines, 1)} == lines
    assert all(problem.startswith("tests/scenes/test_a.py:") for problem in raw_limits(tmp_path))
