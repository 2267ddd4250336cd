"""The alterations of a module's source, one at a time, and how one of them is applied to the loaded module."""

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

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
