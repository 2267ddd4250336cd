"""Mutation run: alters one place of a module at a time, and lists the alterations that no test notices.

    python -m tests.nightly.mutation [--minutes N] [--skip N] [MODULE …]

A module is a key of `SUITES`. One pytest process runs a module's tests again for each alteration, so that PostgreSQL,
S3 and Spark start once. The alteration replaces the code of the module's functions in memory, and no file changes. The
tests run without an alteration at the beginning, after every tenth alteration and at the end. If they fail then, the
run ends with an error, because an alteration has damaged the services.

The alterations run in a random order with a fixed seed. If `--minutes` limits a module, the run reports how many ran,
and `--skip` leaves out as many as an earlier run of the module has done. `docs/mutation.md` keeps the report, and
explains each alteration that survives.
"""

import argparse
import ast
import importlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

LIBRARY = Path(__file__).parents[2] / "include" / "truelog"

# The narrowest tests that should notice every alteration of a module. All of them call the module in their own process.
SUITES: dict[str, tuple[str, ...]] = {
    "log/positions.py": ("tests/library/log/test_positions.py",),
    "batch/partial_selection.py": ("tests/library/batch/test_partial_selection.py",),
    "archive/log_day.py": ("tests/library/archive/test_log_day.py",),
    "kernel/merge.py": (
        "tests/library/kernel/test_merge.py",
        "tests/library/kernel/test_merge_erasures.py",
        "tests/library/kernel/test_merge_guards.py",
    ),
    "kernel/log_guard.py": ("tests/library/kernel/test_log_guard.py", "tests/library/kernel/test_log_guard_cuts.py"),
    "log/topic_health.py": ("tests/library/log/test_topic_health.py", "tests/library/kernel/test_log_guard_cuts.py"),
    "control/log_cuts.py": ("tests/library/control/test_log_cuts.py",),
    "log/leader_epochs.py": ("tests/library/log/test_leader_epochs.py", "tests/library/log/test_topic_health.py"),
    "streaming/change_watch.py": (
        "tests/library/streaming/test_change_watch_causes.py",
        "tests/library/streaming/test_change_watch.py",
    ),
    "maintenance/accept_cut.py": ("tests/library/maintenance/test_accept_cut_steps.py",),
    "tables/output/outbox.py": ("tests/library/tables/output/test_outbox.py",),
    "kernel/bad_records.py": (
        "tests/library/kernel/test_bad_records.py",
        "tests/library/kernel/test_bad_records_search.py",
        "tests/library/kernel/test_bad_records_frames.py",
    ),
    "kernel/exclusions.py": ("tests/library/kernel/test_exclusions_protocol.py",),
    "kernel/clock.py": ("tests/library/kernel/test_clock.py", "tests/laws/test_clock.py"),
    "log/clock_guard.py": ("tests/library/log/test_clock_guard.py", "tests/library/log/test_clock_guard_newest.py"),
    "reconcile/comparison/clock_check.py": ("tests/library/reconcile/comparison/test_clock_check_guard.py",),
    "tables/fold/failing.py": (
        "tests/library/tables/fold/test_failing_search.py",
        "tests/library/tables/fold/test_failing_left_out.py",
    ),
    "tables/fold/merge.py": ("tests/library/tables/fold/test_merge.py",),
    "archive/commit.py": ("tests/library/archive/test_commit.py",),
    "tables/table_hash.py": ("tests/laws/test_golden_digest.py", "tests/laws/test_digest.py"),
    "reconcile/row_diff.py": ("tests/library/reconcile/test_row_diff.py",),
    "reconcile/repair.py": ("tests/library/reconcile/test_repair.py",),
    "batch/base.py": ("tests/laws/test_base.py", "tests/library/batch/test_base.py"),
    "batch/rebuild.py": (
        "tests/library/batch/test_rebuild.py",
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_repair.py",
        "tests/laws/test_stream_equals_batch.py",
    ),
    "batch/partials.py": ("tests/library/maintenance/test_upkeep.py", "tests/laws/test_stream_equals_batch.py"),
    "reconcile/comparison/compare.py": (
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_reconcile_snapshot.py",
        "tests/library/reconcile/test_root_cause.py",
    ),
    "reconcile/reconcile.py": (
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_repair.py",
        "tests/library/reconcile/test_certificate_verifier.py",
        "tests/library/reconcile/test_root_cause.py",
    ),
}
_LIMIT = 120  # seconds; an alteration that hangs a test is noticed
_SEED = 20261122
_HEALTH_EVERY = 10  # alterations

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
# Within SQL. Each form is replaced once, at its first place.
_SQL = {
    " FOR UPDATE": "",
    " IS NOT NULL": " IS NULL",
    " IS NULL": " IS NOT NULL",
    "EXCEPT ALL": "EXCEPT",
    "UNION ALL": "UNION",
    "LEFT JOIN": "JOIN",
    "SELECT DISTINCT": "SELECT",
    " AND ": " OR ",
    " WHERE ": " WHERE NOT ",
    "count(*)": "count(*) + 1",
    " + ": " - ",
    " DO UPDATE ": " DO NOTHING --",
    "ON CONFLICT DO NOTHING": "",
    "clock_timestamp()": "now()",
}
_IS_SQL = ("SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ")


@dataclass(frozen=True)
class Alteration:
    """One altered place of a module."""

    line: int
    before: str
    after: str
    tree: ast.Module  # of the whole module

    def __str__(self) -> str:
        before, after = (" ".join(text.split())[:70] for text in (self.before, self.after))
        return f"line {self.line}: `{before}` → `{after}`"


def alterations(source: str) -> Iterator[Alteration]:
    """Every alteration of a module, one at a time."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for place in range(len(_altered(node))):
            copied = deepcopy(tree)
            target = list(ast.walk(copied))[number]
            before = ast.unparse(target)
            new = _altered(target)[place]
            ast.copy_location(new, target)
            _replace(copied, target, new)
            ast.fix_missing_locations(copied)
            yield Alteration(getattr(node, "lineno", 0), *_difference(before, ast.unparse(new)), copied)


def _difference(before: str, after: str) -> tuple[str, str]:
    """Both texts from shortly before their first difference."""
    at = next((i for i, (b, a) in enumerate(zip(before, after, strict=False)) if b != a), 0)
    return before[max(0, at - 30) :], after[max(0, at - 30) :]


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
        case ast.Constant(value=str(text)) if any(word in text for word in _IS_SQL):
            return [ast.Constant(text.replace(old, new, 1)) for old, new in _SQL.items() if old in text]
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


def load(alteration: Alteration, module: ModuleType) -> dict[str, Any]:
    """The namespace of the altered module."""
    namespace: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(alteration.tree, str(module.__file__), "exec"), namespace)
    return namespace


@contextmanager
def applied(alteration: Alteration, module: ModuleType, namespace: dict[str, Any]) -> Iterator[bool]:
    """Replace the code of the module's functions for the block. False if it cannot be applied to a loaded module.

    A decorator cannot be applied, and neither can a function that no longer uses `super()`.
    """
    new, undo = dict(_functions(namespace, module.__name__)), list[Callable[[], None]]()
    for name, function in _functions(vars(module), module.__name__):
        other = new[name]
        kept = function.__code__, function.__defaults__, function.__kwdefaults__
        if _form(function) != _form(other) and len(kept[0].co_freevars) == len(other.__code__.co_freevars):
            undo.append(partial(_set, function, *kept))
            _set(function, other.__code__, other.__defaults__, other.__kwdefaults__)
    for name in _constants(alteration):
        undo.append(partial(setattr, module, name, getattr(module, name)))
        setattr(module, name, namespace[name])
    try:
        yield bool(undo)
    finally:
        for each in undo:
            each()


def _functions(namespace: Any, module: str, prefix: str = "") -> Iterator[tuple[str, FunctionType]]:
    """The functions and methods that a module defines."""
    for name, value in list(namespace.items()):
        if isinstance(value, type) and value.__module__ == module:
            yield from _functions(vars(value), module, f"{prefix}{name}.")
            continue
        inner = value
        for wrapper in ("__func__", "fget", "func", "__wrapped__"):
            inner = getattr(inner, wrapper, None) or inner if not isinstance(inner, FunctionType | type) else inner
        inner = getattr(inner, "__wrapped__", inner)
        is_written = isinstance(inner, FunctionType) and inner.__code__.co_filename.endswith(".py")
        if is_written and inner.__module__ == module:  # not what a dataclass generates
            yield prefix + name, inner


def _form(function: FunctionType) -> tuple[object, ...]:
    return _code_form(function.__code__), repr(function.__defaults__), repr(function.__kwdefaults__)


def _code_form(code: Any) -> tuple[object, ...]:
    """What a function does, without its line numbers."""
    constants = tuple(_code_form(c) if hasattr(c, "co_code") else (type(c), repr(c)) for c in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, constants


def _set(function: FunctionType, code: Any, defaults: Any, keyword_defaults: Any) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keyword_defaults


def _constants(alteration: Alteration) -> list[str]:
    """The names that the altered statement assigns, if it is an assignment of the module."""
    for statement in alteration.tree.body:
        is_here = statement.lineno <= alteration.line <= (statement.end_lineno or 0)
        if is_here and isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []


class _Pause(pytest.Item):
    """The item after the last one: every fixture of a module ends before it, and those of the session stay."""

    def runtest(self) -> None:
        raise AssertionError


class MutationRun:
    """A pytest plugin that runs the collected tests once for each alteration."""

    def __init__(self, name: str, minutes: float | None, skip: int) -> None:
        self.name, self.minutes, self.skip = name, minutes, skip
        source = (LIBRARY / name).read_text()
        self.every = list(alterations(source))
        self.module = importlib.import_module("truelog." + name.removesuffix(".py").replace("/", "."))
        self.survived: list[Alteration] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._require_health(session)
        began, run, left = time.monotonic(), 0, list(self.every)
        random.Random(_SEED).shuffle(left)
        for each in left[self.skip :]:
            if self.minutes is not None and time.monotonic() - began > 60 * self.minutes:
                break
            self._try(session, each)
            run += 1
            if run % _HEALTH_EVERY == 0:
                self._require_health(session)
        self._require_health(session)
        _tell(f"{self.name}: {len(self.every)} alterations, {run} ran, {len(self.survived)} survived")
        return True

    def _try(self, session: pytest.Session, each: Alteration) -> None:
        started = time.monotonic()
        try:
            namespace = load(each, self.module)
        except Exception:  # every import of the module would fail
            _tell(f"{each}: noticed by the import")
            return
        with applied(each, self.module, namespace) as is_applied:
            test = self._first_failure(session) if is_applied else None
        if test is None:
            self.survived.append(each)
        result = f"noticed by {test}" if test else "SURVIVED" if is_applied else "SURVIVED (not applied)"
        _tell(f"{time.monotonic() - started:5.1f} s {each}: {result}")

    def _require_health(self, session: pytest.Session) -> None:
        if test := self._first_failure(session, tell=True):
            raise pytest.UsageError(f"without an alteration, {test} fails")

    def _first_failure(self, session: pytest.Session, *, tell: bool = False) -> str | None:
        pause = _Pause.from_parent(session, name="pause")
        for number, item in enumerate(session.items):
            following = session.items[number + 1] if number + 1 < len(session.items) else pause
            if hasattr(item, "_initrequest"):
                item._initrequest()
            with _limit():
                reports = runtestprotocol(item, log=False, nextitem=following)
            if failed := [report for report in reports if report.failed]:
                if tell:
                    _tell(str(failed[0].longrepr))
                session._setupstate.teardown_exact(pause)
                return item.name
        return None


@contextmanager
def _limit() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"the test did not end within {_LIMIT} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_LIMIT)
    try:
        with suppress(TimeoutError):
            yield
    finally:
        signal.alarm(0)


def _tell(text: str) -> None:
    sys.__stdout__.write(f"{text}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("module", nargs="*")
    given = parser.parse_args()
    modules = given.module or list(SUITES)
    if given.skip and len(modules) != 1:
        parser.error("--skip needs one module, because each has an order of its own")
    if len(modules) == 1:
        plugin = MutationRun(modules[0], given.minutes, given.skip)
        options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:randomly"]
        return int(pytest.main([*options, *SUITES[modules[0]]], plugins=[plugin]))
    limit = [] if given.minutes is None else ["--minutes", str(given.minutes)]
    command = [sys.executable, "-m", "tests.nightly.mutation", *limit]
    return max(subprocess.run([*command, module], check=False).returncode for module in modules)


if __name__ == "__main__":
    sys.exit(main())
