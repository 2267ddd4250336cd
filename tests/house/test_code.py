"""Code neither prints, which ignores log levels, nor sleeps, which guesses a duration."""

import ast
from collections.abc import Mapping
from pathlib import Path

from tests.house.tree import PROJECT, calls, modules, plant

SLEEPS = ("time.sleep", "sleep", "asyncio.sleep")

# The functions that may sleep, and why.
WAITING = {
    ("include/truelog/support/wait.py", "until"): "polls a condition until a deadline",
    ("include/truelog/support/wait.py", "poll"): "checks a condition until a deadline",
    ("include/truelog/archive/reader.py", "wait_for"): "polls the archive's positions until a deadline",
    ("include/truelog/log/topics.py", "_wait_for_leaders"): "polls the brokers until a deadline",
    ("include/truelog/services/api/rows/waiting.py", "_watch"): "reads positions while requests wait for them",
    ("include/truelog/services/api/changes/subscriptions.py", "_follow"): "reads outboxes while clients subscribe",
    ("include/truelog/client/async_client.py", "_ask"): "waits before a request is sent again",
    ("include/truelog/client/async_client.py", "subscribe"): "waits before a subscriber comes back",
    ("tests/scenes/measured_collector.py", "beat"): "measures how late a sleep ends",
}


def prints(root: Path) -> list[str]:
    return [
        f"{name}:{call.lineno} prints; answers go through truelog.cli.output, the rest to a logger"
        for name, tree in modules(root)
        for call in calls(tree, "print")
    ]


def sleeps(root: Path, waiting: Mapping[tuple[str, str], str]) -> list[str]:
    """Functions that sleep without permission, and functions that have permission but no longer sleep."""
    found = {
        (name, _function_around(tree, call.lineno)): call.lineno
        for name, tree in modules(root, "bench/*.py", "tests/*.py", "include/truelog/*.py")
        for call in calls(tree, *SLEEPS)
        if not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)  # lets others run
    }
    problems = [
        f"{n}:{line} {f} sleeps; wait for a condition" for (n, f), line in found.items() if (n, f) not in waiting
    ]
    return problems + [f"{n} {f} is allowed to sleep and does not" for n, f in waiting if (n, f) not in found]


def _function_around(tree: ast.Module, line: int) -> str:
    """The name of the innermost function that contains the line, or `<module>`."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or line)]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"


def test_nothing_prints() -> None:
    assert prints(PROJECT) == []


def test_only_waiting_helpers_sleep() -> None:
    assert sleeps(PROJECT, WAITING) == []


def test_planted_prints_are_found(tmp_path: Path) -> None:
    planted = "def f(console):\n    console.print('fine')\n    blueprint('fine')\n    print('not fine')\n"
    plant(tmp_path, {"include/deep/er/module.py": planted})
    assert [problem.split()[0] for problem in prints(tmp_path)] == ["include/deep/er/module.py:4"]


def test_planted_sleeps_are_found(tmp_path: Path) -> None:
    planted = {
        "tests/scenes/test_a.py": "import time\nclass A:\n  def test_a(self):\n    time.sleep(1)\n",
        "tests/scenes/test_b.py": "from time import sleep\nsleep(1)\n",
        "include/truelog/wait.py": "import time\ndef until():\n    time.sleep(1)\ndef other():\n    time.monotonic()\n",
        "include/runtime/wait.py": "import time\ntime.sleep(1)\n",
    }
    plant(tmp_path, planted)
    waiting = {("include/truelog/wait.py", "until"): "waits", ("include/truelog/wait.py", "other"): "used to"}
    assert sleeps(tmp_path, waiting) == [
        "tests/scenes/test_a.py:4 test_a sleeps; wait for a condition",
        "tests/scenes/test_b.py:2 <module> sleeps; wait for a condition",
        "include/truelog/wait.py other is allowed to sleep and does not",
    ]
