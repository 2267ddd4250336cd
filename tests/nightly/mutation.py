"""Mutation run: alters one place of a module at a time, and lists the alterations that no test notices.

    python -m tests.nightly.mutation [MODULE …]

A module is a key of `SUITES`. Each alteration runs in a copy of the project, so that a killed run leaves nothing
altered. `docs/mutation.md` keeps the report, and explains each alteration that survives.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
COPIED = ("include", "spark_apps", "dags", "plugins", "tests", "pyproject.toml", "README.md", "docs")

# The narrowest tests that should notice every alteration of a module.
SUITES: dict[str, tuple[str, ...]] = {
    "log/positions.py": ("tests/library/log/test_positions.py",),
    "batch/partial_selection.py": ("tests/library/batch/test_partial_selection.py",),
    "kernel/merge.py": ("tests/library/kernel/test_merge_protocol.py", "tests/library/kernel/test_zombies.py"),
    "archive/archive_commit.py": ("tests/library/archive/test_archive_commit.py",),
    "batch/rebuild.py": ("tests/laws/test_stream_equals_batch.py", "tests/library/reconcile"),
    "reconcile/row_diff.py": ("tests/laws/test_stream_equals_batch.py", "tests/library/reconcile"),
    "reconcile/table_hash.py": ("tests/laws/test_digest.py", "tests/laws/test_golden_digest.py"),
    "reconcile/repair.py": ("tests/library/reconcile/test_repair.py",),
}
_LIMIT = 900.0  # seconds; an alteration that hangs the tests is noticed

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
    ast.Mult: ast.FloorDiv,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Alteration:
    """One altered place of a module."""

    line: int
    before: str
    after: str
    source: str  # of the whole module


def alterations(source: str) -> Iterator[Alteration]:
    """Every alteration of a module, one at a time."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for place in range(len(_altered(node))):
            copied = deepcopy(tree)
            target = list(ast.walk(copied))[number]
            before = ast.unparse(target)
            if isinstance(target, ast.Expr) and _is_text(target.value):
                continue
            new = _altered(target)[place]
            _replace(copied, target, new)
            ast.fix_missing_locations(copied)
            yield Alteration(getattr(node, "lineno", 0), before, ast.unparse(new), ast.unparse(copied))


def _altered(node: ast.AST) -> list[ast.AST]:  # noqa: C901, PLR0911 — a table of forms
    """The forms that replace a node. They share its children, so use them in a copy of the tree only."""
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=right) if type(operator) in _COMPARISONS:
            return [ast.Compare(left, [_COMPARISONS[type(operator)]()], right)]
        case ast.BinOp(left=left, op=operation, right=right_side) if type(operation) in _OPERATORS:
            return [ast.BinOp(left, _OPERATORS[type(operation)](), right_side)]
        case ast.BoolOp(op=ast.And(), values=values):
            return [ast.BoolOp(ast.Or(), values)]
        case ast.BoolOp(op=ast.Or(), values=values):
            return [ast.BoolOp(ast.And(), values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [operand]
        case ast.Constant(value=bool(flag)):
            return [ast.Constant(not flag)]
        case ast.Constant(value=int(value)):
            return [ast.Constant(value + 1)]
        case ast.Name(id=name) if name in _SWAPPED:
            return [ast.Name(_SWAPPED[name], ast.Load())]
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return [ast.Pass()]
        case ast.If(body=body, orelse=orelse):
            return [ast.If(ast.Constant(False), body, orelse), ast.If(ast.Constant(True), body, orelse)]
    return []


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _replace(tree: ast.AST, target: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(each is target for each in value):
                value[next(i for i, each in enumerate(value) if each is target)] = new
                return
    raise AssertionError("the node has no parent")


def _copy(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)


def _is_noticed(folder: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(folder / "include"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != 0


def run(module: str) -> list[Alteration]:
    """The alterations of a module that its tests do not notice."""
    survivors: list[Alteration] = []
    with tempfile.TemporaryDirectory(prefix="truelog-mutation-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        _copy(folder)
        file = folder / "include" / "truelog" / module
        original = file.read_text()
        assert not _is_noticed(folder, SUITES[module]), "the tests fail without an alteration"
        every = list(alterations(original))
        for number, each in enumerate(every, 1):
            file.write_text(each.source)
            noticed = _is_noticed(folder, SUITES[module])
            if not noticed:
                survivors.append(each)
            _tell(f"{number}/{len(every)} {'noticed ' if noticed else 'SURVIVED'} {_line(each)}")
    _tell(f"{module}: {len(every)} alterations, {len(survivors)} survived")
    return survivors


def _line(each: Alteration) -> str:
    before, after = (" ".join(text.split())[:60] for text in (each.before, each.after))
    return f"line {each.line}: `{before}` → `{after}`"


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or SUITES:
        run(wanted)
