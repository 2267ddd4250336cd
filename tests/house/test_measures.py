"""No module outside of `truelog.measures` asks for the type of a measure, so that a new measure is one module.

A module asks if it compares a class of measures, matches it in a pattern, or gives it to `isinstance` or `issubclass`.
The other packages ask a measure for its attributes and verbs.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.layers import LIBRARY
from tests.house.tree import PROJECT, calls, modules, plant
from truelog.measures.registry import MEASURES

NAMES = {"Measure", *MEASURES}
OUTSIDE = ("include/*.py", "spark_apps/*.py", "dags/*.py", "plugins/*.py")


def questions(root: Path) -> list[str]:
    return [
        f"{name}:{line} asks for the type of a measure; give the measure an attribute or a verb"
        for name, tree in modules(root, *OUTSIDE)
        if not name.startswith(f"{LIBRARY}/measures/")
        for line in sorted(_lines(tree))
    ]


def _lines(tree: ast.Module) -> set[int]:
    """The lines that name a class of measures in a question, or ask for the type of a variable named so."""
    names = (each for asked in _asked(tree) for each in ast.walk(asked) if isinstance(each, ast.Name | ast.Attribute))
    return {each.lineno for each in names if _last(each) in NAMES} | {
        call.lineno for call in calls(tree, "type") if "measure" in "".join(map(ast.unparse, call.args))
    }


def _asked(tree: ast.Module) -> Iterator[ast.AST]:
    """What a module compares, matches or gives to `isinstance`, without calls: `Sum()` asks nothing."""
    for call in calls(tree, "isinstance", "issubclass"):
        yield from call.args[1:]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (each for each in (node.left, *node.comparators) if not isinstance(each, ast.Call))
        elif isinstance(node, ast.MatchClass):
            yield node.cls


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def test_nobody_asks_for_the_type_of_a_measure() -> None:
    assert questions(PROJECT) == []


ASKING = """from truelog.measures.sum import Sum
measures = {"views": Sum()}
isinstance(each, Sum)
issubclass(kind, (int, latest.Latest))
[kind for kind in kinds] != [Latest]
match each:
    case First(most=2):
        pass
type(measure).__name__
type(view) is View
each == Sum()
"""


def test_a_question_is_seen(tmp_path: Path) -> None:
    planted = {"batch/x.py": ASKING, "cli/commands/x.py": "each.measures.is_additive\n", "measures/x.py": ASKING}
    plant(tmp_path, {f"{LIBRARY}/{name}": text for name, text in planted.items()})
    assert [problem.partition(" ")[0] for problem in questions(tmp_path)] == [
        f"{LIBRARY}/batch/x.py:{line}" for line in (3, 4, 5, 7, 9)
    ]
