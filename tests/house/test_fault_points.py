"""Some test fails at each named point of the protocols (`truelog.support.faults`), or waits there."""

import ast
import re
from pathlib import Path
from textwrap import dedent

from tests.house.tree import PROJECT, calls, imports, modules, plant

FAILING = (
    "dying_at(",
    "TRUELOG_FAULT",
    '"_armed"',
    " fault=",
    '"reach"',
    'faults.reach"',
)  # in a test that fails there
BARRIER = "tests/library/commands/barrier.py"  # sessions meet at its points, and none of them dies there
ACTION = re.compile(r":[^:]+:(kill|stop|raise)$")


def points_without_a_test(root: Path) -> list[str]:
    """The points of the product at which no test fails or waits. In a name, `{}` is a part that depends on the call."""
    found = {
        _text(call.args[0])
        for _, tree in modules(root, "include/truelog/*.py")
        for call in calls(tree, "reach", "faults.reach", "fault_points.reach")
    }
    patterns = {point: re.escape(point).replace(r"\{\}", "[a-z_{}]+") for point in found if point}
    failing = _failing_at(root)
    return sorted(
        point for point, pattern in patterns.items() if not any(re.fullmatch(pattern, each) for each in failing)
    )


def _failing_at(root: Path) -> set[str]:
    """The points that tests name with an action, or that a test which fails somewhere names or imports."""
    trees, failing = dict(modules(root, "tests/*.py")), set[str]()
    named = {name: {text for node in ast.walk(tree) if (text := _text(node))} for name, tree in trees.items()}
    for name, tree in trees.items():
        failing.update(ACTION.sub("", each) for each in named[name] if ACTION.search(each))
        if name != BARRIER and any(word in (root / name).read_text() for word in FAILING):
            imported = {each.rpartition(".")[0].replace(".", "/") + ".py" for _, each in imports(tree)}
            failing.update(*(named[each] for each in {name, *imported} & named.keys()))
    return failing


def _text(node: ast.AST) -> str:
    """A constant text, or an f-string with `{}` in the place of each value. Empty if it is neither."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_some_test_fails_at_every_point() -> None:
    assert points_without_a_test(PROJECT) == []


def test_planted_points_without_a_test_are_found(tmp_path: Path) -> None:
    code = """
        from truelog.support import faults, faults as fault_points
        from truelog.support.faults import reach
        def work(step, view):
            faults.reach("a.killed"), reach("a.listed"), fault_points.reach("a.imported"), reach(f"a.{step}.done")
            reach("b.met"), faults.reach("b.prefix"), fault_points.reach("b.named"), reach(f"c.{view}")
    """
    planted = {
        "include/truelog/work.py": dedent(code),
        "tests/points.py": 'POINTS = ("a.imported",)\n',
        "tests/test_a.py": 'from tests.points import POINTS\nstart( fault="a.killed:2:stop")\nLISTED = ["a.listed"]\n'
        'killed(f"a.{name}.done:{nth}:kill")\n',
        "tests/test_b.py": 'start( fault="b.prefix_of_another:1:kill")\n',
        "tests/test_c.py": 'assert "b.named"\n',
        BARRIER: 'setattr(states, "reach", wait)\nPOINTS = ("b.met",)\n',
    }
    assert points_without_a_test(plant(tmp_path, planted)) == ["b.met", "b.named", "b.prefix", "c.{}"]
