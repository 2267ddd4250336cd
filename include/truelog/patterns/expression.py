"""Expressions of rules: a subset of SQL, parsed by `sqlglot`, checked against a list of what is allowed, and typed.

An expression is a tree of frozen values, so it travels to executors. `docs/patterns.md` lists the subset. There are no
regular expressions, subqueries, casts or functions of the user.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from truelog.support.errors import BadInput

MOST_CHARACTERS = 2_000
MOST_TOKENS = 400
MOST_PARTS = 200
MOST_LIKE = 100  # characters in the text after LIKE
MOST_BACK = 100  # events that `prev` may go back

TEXT, NUMBER, BOOLEAN, UNKNOWN = "text", "number", "boolean", "unknown"  # unknown: NULL


@dataclass(frozen=True)
class Constant:
    """A value. In Python, 1, 1.0 and True are equal, so the type is a part of the constant."""

    value: str | int | float | bool | None
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value).__name__)


@dataclass(frozen=True)
class Field:
    """A column of an event: of the present one if `step` is None, else of the first or last event of that step.

    back: how many events of the rule before that one.
    """

    column: str
    step: str | None = None
    is_first: bool = False
    back: int = 0


@dataclass(frozen=True)
class Total:
    """A total over the events of a step in the whole match: count, sum, min or max."""

    function: str
    step: str
    column: str | None


@dataclass(frozen=True)
class Call:
    """An operator or a function with its arguments."""

    name: str
    arguments: "tuple[Expression, ...]"


Expression = Constant | Field | Total | Call


@dataclass(frozen=True)
class Scope:
    """What an expression may name.

    own: the step whose events the expression judges; None in the columns that a match shows.
    steps: the event type of each step.
    columns: the types of the columns of each event type.
    """

    own: str | None
    steps: Mapping[str, str]
    columns: Mapping[str, Mapping[str, str]]

    def type_of(self, step: str, column: str) -> str:
        event_type = self.steps[step]
        if column not in self.columns[event_type]:
            known = ", ".join(sorted(self.columns[event_type]))
            raise BadInput(f"{event_type} has no column {column} for rules; it has {known}")
        return self.columns[event_type][column]


def parse(text: str, scope: Scope, wanted: str | None = None) -> Expression:
    """The tree of an expression, whose type must be `wanted` if that is given.

    Raises:
        BadInput: says what is not allowed, and where.
    """
    if len(text) > MOST_CHARACTERS:
        raise BadInput(f"the expression has {len(text):,} characters; {MOST_CHARACTERS:,} are the limit")
    try:
        if len(sqlglot.tokenize(text)) > MOST_TOKENS:  # the time to parse grows faster than the text
            raise BadInput(f"the expression has more than {MOST_TOKENS} words and signs")
        parsed = sqlglot.parse_one(text)
        if sum(1 for _ in parsed.walk()) > MOST_PARTS:
            raise BadInput(f"the expression has more than {MOST_PARTS} parts")
        expression, found = _Reader(scope).read(parsed)
    except SqlglotError as error:
        raise BadInput(_reason(error)) from error
    except RecursionError:
        raise BadInput("the expression is nested too deeply") from None
    if wanted is not None and found not in (wanted, UNKNOWN):
        raise BadInput(f"the expression is a {found}, but a {wanted} is needed")
    return expression


def _reason(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return f"not valid SQL: {str(error).splitlines()[0]}"
    return f"not valid SQL at character {details[0]['col']}, near {details[0]['highlight']!r}"


_Typed = tuple[Expression, str]
_COMPARED = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "same",
    exp.NullSafeNEQ: "differs",
}
# The name of each operator, the type of its arguments, and the type of its result.
_TYPED = {
    exp.Add: ("+", NUMBER, NUMBER),
    exp.Sub: ("-", NUMBER, NUMBER),
    exp.Mul: ("*", NUMBER, NUMBER),
    exp.Div: ("/", NUMBER, NUMBER),
    exp.Mod: ("%", NUMBER, NUMBER),
    exp.Neg: ("negative", NUMBER, NUMBER),
    exp.Abs: ("abs", NUMBER, NUMBER),
    exp.And: ("and", BOOLEAN, BOOLEAN),
    exp.Or: ("or", BOOLEAN, BOOLEAN),
    exp.Not: ("not", BOOLEAN, BOOLEAN),
    exp.Lower: ("lower", TEXT, TEXT),
    exp.Upper: ("upper", TEXT, TEXT),
    exp.Length: ("length", TEXT, NUMBER),
    exp.DPipe: ("||", TEXT, TEXT),
}
_CHOSEN = {exp.Coalesce: "coalesce", exp.Greatest: "greatest", exp.Least: "least"}
_TOTALS = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max"}


class _Reader:
    """Turns the tree of `sqlglot` into an expression. What has no method here is not allowed."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def read(self, node: Any) -> _Typed:
        kind = type(node)
        if kind in _TYPED:
            arguments = (node.this, node.expression) if node.args.get("expression") else (node.this,)
            return self.call(*_TYPED[kind], *arguments)
        reader = self.readers().get(kind)
        if reader is None:
            raise BadInput(f"{_shown(node)} is not allowed in a rule")
        return reader(node)

    def readers(self) -> dict[type, Callable[[Any], _Typed]]:
        return {
            **dict.fromkeys(_COMPARED, self.compared),
            **dict.fromkeys(_CHOSEN, self.chosen),
            **dict.fromkeys(_TOTALS, self.total),
            exp.Paren: lambda node: self.read(node.this),
            exp.Like: self.like,
            exp.Is: self.is_,
            exp.In: self.in_,
            exp.Between: self.between,
            exp.Literal: self.literal,
            exp.Boolean: lambda node: (Constant(bool(node.this)), BOOLEAN),
            exp.Null: lambda node: (Constant(None), UNKNOWN),
            exp.Column: self.field,
            exp.First: lambda node: self.field(node.this, is_first=True),
            exp.Last: lambda node: self.field(node.this),
            exp.Anonymous: self.named,
        }

    def call(self, name: str, wanted: str, result: str, *nodes: Any) -> _Typed:
        return Call(name, tuple(self.typed(node, wanted) for node in nodes)), result

    def typed(self, node: Any, wanted: str) -> Expression:
        expression, found = self.read(node)
        if found not in (wanted, UNKNOWN):
            raise BadInput(f"{_shown(node)} is a {found}, but a {wanted} is needed there")
        return expression

    def alike(self, *nodes: Any) -> tuple[tuple[Expression, ...], str]:
        """Expressions of the same type, and the type."""
        read = [self.read(node) for node in nodes]
        types = {found for _, found in read} - {UNKNOWN}
        if len(types) > 1:
            raise BadInput(f"{' and '.join(map(_shown, nodes))} have different types: {', '.join(sorted(types))}")
        return tuple(expression for expression, _ in read), next(iter(types), UNKNOWN)

    def compared(self, node: Any) -> _Typed:
        sides, _ = self.alike(node.this, node.expression)
        return Call(_COMPARED[type(node)], sides), BOOLEAN

    def chosen(self, node: Any) -> _Typed:
        arguments, found = self.alike(node.this, *node.expressions)
        return Call(_CHOSEN[type(node)], arguments), found

    def like(self, node: Any) -> _Typed:
        if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
            raise BadInput(f"{_shown(node)}: LIKE needs a constant text")
        if len(node.expression.name) > MOST_LIKE:
            raise BadInput(f"{_shown(node)}: the text after LIKE has more than {MOST_LIKE} characters")
        return self.call("like", TEXT, BOOLEAN, node.this, node.expression)

    def is_(self, node: Any) -> _Typed:
        if isinstance(node.expression, exp.Null):
            return Call("is null", (self.read(node.this)[0],)), BOOLEAN
        if isinstance(node.expression, exp.Boolean):
            return self.call("same", BOOLEAN, BOOLEAN, node.this, node.expression)
        raise BadInput(f"{_shown(node)} is not allowed in a rule")

    def in_(self, node: Any) -> _Typed:
        if not node.expressions:
            raise BadInput(f"{_shown(node)} is not allowed in a rule")
        arguments, _ = self.alike(node.this, *node.expressions)
        return Call("in", arguments), BOOLEAN

    def between(self, node: Any) -> _Typed:
        if node.args.get("symmetric"):
            raise BadInput(f"{_shown(node)} is not allowed in a rule")
        (value, low, high), _ = self.alike(node.this, node.args["low"], node.args["high"])
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high)))), BOOLEAN

    def literal(self, node: Any) -> _Typed:
        if node.is_string:
            return Constant(str(node.this)), TEXT
        number = Decimal(node.this)
        whole = number.as_tuple().exponent == 0
        if abs(number) >= 2**63:
            raise BadInput(f"{node.this} is too large")
        return Constant(int(number) if whole else float(number)), NUMBER

    def field(self, node: Any, *, is_first: bool = False, back: int = 0) -> tuple[Field, str]:
        if not isinstance(node, exp.Column) or node.args.get("db"):
            raise BadInput(f"{_shown(node)}: a column is needed there")
        step, column = node.table or self.scope.own, node.name
        if step is None:
            raise BadInput(f"{column}: name the step too, as in step.{column}")
        if step not in self.scope.steps:
            raise BadInput(f"{_shown(node)}: there is no step {step}; the steps are {', '.join(self.scope.steps)}")
        is_own = step == self.scope.own and not is_first
        named = Field(column, None if is_own else step, is_first, back)
        return named, self.scope.type_of(step, column)

    def named(self, node: Any) -> _Typed:
        """`prev(column)` or `prev(column, n)`, the only function that `sqlglot` does not know."""
        if str(node.this).lower() != "prev" or not 1 <= len(node.expressions) <= 2:
            raise BadInput(f"{_shown(node)} is not allowed in a rule")
        column, *number = node.expressions
        back = self.read(number[0])[0] if number else Constant(1)
        if not (isinstance(back, Constant) and type(back.value) is int and 0 <= back.value <= MOST_BACK):
            raise BadInput(f"{_shown(node)}: prev goes back by a whole number up to {MOST_BACK}")
        return self.field(column, back=back.value)

    def total(self, node: Any) -> _Typed:
        name = _TOTALS[type(node)]
        if self.scope.own is not None:
            raise BadInput(f"{_shown(node)}: totals are allowed only in the columns that a match shows")
        of = node.this
        if name == "count" and isinstance(of, exp.Column) and not of.table and of.name in self.scope.steps:
            return Total(name, of.name, None), NUMBER
        named, found = self.field(of)
        if name == "sum" and found != NUMBER:
            raise BadInput(f"{_shown(node)}: a column of numbers is needed")
        return Total(name, str(named.step), named.column), NUMBER if name in ("count", "sum") else found


def _shown(node: Any) -> str:
    text = str(node.sql())
    return text if len(text) <= 80 else f"{text[:77]}..."
