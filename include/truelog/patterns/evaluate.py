"""Evaluates expressions of rules on events, with the three truth values of SQL. Whatever goes wrong is NULL.

Text is compared by code points. `/` is a division of real numbers. A number that is too large for a float is NULL.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from truelog.patterns.expression import Call, Constant, Expression, Field, Total

Values = Mapping[str, Any]  # the columns of an event; a NULL is missing or None
Marks = tuple[int | None, ...]  # the numbers of the events that a match has marked so far
Slots = tuple[tuple[str, bool], ...]  # what each mark is: a step, and whether its first or its last event
Evaluator = Callable[[Sequence[Values], int, Marks], Any]  # the events of a rule, the present one, and the marks


_MOST_REPEATED = 100_000  # characters


def fields_of(expression: Expression) -> list[Field]:
    """The fields in an expression."""
    if isinstance(expression, Call):
        return [field for argument in expression.arguments for field in fields_of(argument)]
    return [expression] if isinstance(expression, Field) else []


@lru_cache(maxsize=10_000)
def evaluator(expression: Expression, slots: Slots) -> Evaluator:
    """The function that evaluates an expression without totals."""
    match expression:
        case Constant(value):
            return lambda rows, at, marks: value
        case Field():
            return _field(expression, slots)
        case Call(name, arguments):
            return _CONNECTED.get(name, _strict(name))(*(evaluator(each, slots) for each in arguments))
        case Total():
            raise AssertionError("totals are evaluated with the whole match")


def show(expression: Expression, rows: Sequence[Values], taken: Sequence[tuple[int, str]]) -> Any:
    """The value of a shown column, given the number and the step of each event of a match, in order.

    A number that JSON does not have is NULL.
    """
    first, last = {step: number for number, step in reversed(taken)}, {step: number for number, step in taken}
    slots = tuple(dict.fromkeys((str(each.step), each.is_first) for each in fields_of(expression)))
    marks = tuple((first if is_first else last).get(step) for step, is_first in slots)
    value = evaluator(_with_totals(expression, rows, taken), slots)(rows, taken[-1][0], marks)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _with_totals(expression: Expression, rows: Sequence[Values], taken: Sequence[tuple[int, str]]) -> Expression:
    """The expression with the values of its totals."""
    if isinstance(expression, Call):
        return replace(expression, arguments=tuple(_with_totals(each, rows, taken) for each in expression.arguments))
    if isinstance(expression, Total):
        return Constant(_total(expression, [rows[number] for number, step in taken if step == expression.step]))
    return expression


def _total(expression: Total, values: Sequence[Values]) -> Any:
    """A total over the events of its step."""
    if expression.column is None:
        return len(values)
    present = [each[expression.column] for each in values if each.get(expression.column) is not None]
    if expression.function == "count":
        return len(present)
    functions: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
    return _or_null(functions[expression.function], present) if present else None


def _or_null(function: Callable[..., Any], *values: Any) -> Any:
    try:
        return function(*values)
    except (ArithmeticError, TypeError, ValueError):
        return None


def _field(field: Field, slots: Slots) -> Evaluator:
    column, back = field.column, field.back
    if field.step is None:

        def present(rows: Sequence[Values], at: int, marks: Marks) -> Any:
            return rows[at - back].get(column) if at >= back else None

        return present
    slot = slots.index((field.step, field.is_first))

    def marked(rows: Sequence[Values], at: int, marks: Marks) -> Any:
        mark = marks[slot]
        return rows[mark - back].get(column) if mark is not None and mark >= back else None

    return marked


def _strict(name: str) -> Callable[..., Evaluator]:
    """An operator that is NULL if one of its arguments is NULL."""

    def connect(*arguments: Evaluator) -> Evaluator:
        function = _FUNCTIONS[name]

        def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
            values = [each(rows, at, marks) for each in arguments]
            return None if None in values else _or_null(function, *values)

        return evaluate

    return connect


def _and(one: Evaluator, other: Evaluator) -> Evaluator:
    def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
        first = one(rows, at, marks)
        if first is False:
            return False
        second = other(rows, at, marks)
        return second if first is True or second is False else None

    return evaluate


def _or(one: Evaluator, other: Evaluator) -> Evaluator:
    def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
        first = one(rows, at, marks)
        if first is True:
            return True
        second = other(rows, at, marks)
        return second if first is False or second is True else None

    return evaluate


def _is_null(one: Evaluator) -> Evaluator:
    return lambda rows, at, marks: one(rows, at, marks) is None


def _same(one: Evaluator, other: Evaluator) -> Evaluator:
    return lambda rows, at, marks: one(rows, at, marks) == other(rows, at, marks)


def _differs(one: Evaluator, other: Evaluator) -> Evaluator:
    return lambda rows, at, marks: one(rows, at, marks) != other(rows, at, marks)


def _in(value: Evaluator, *listed: Evaluator) -> Evaluator:
    def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
        found = value(rows, at, marks)
        if found is None:
            return None
        values = [each(rows, at, marks) for each in listed]
        return True if found in values else None if None in values else False

    return evaluate


def _coalesce(*arguments: Evaluator) -> Evaluator:
    def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
        return next((value for each in arguments if (value := each(rows, at, marks)) is not None), None)

    return evaluate


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[..., Evaluator]:
    """The greatest or least of the arguments that are not NULL."""

    def connect(*arguments: Evaluator) -> Evaluator:
        def evaluate(rows: Sequence[Values], at: int, marks: Marks) -> Any:
            values = [value for each in arguments if (value := each(rows, at, marks)) is not None]
            return _or_null(choose, values) if values else None

        return evaluate

    return connect


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is LIKE a pattern. The time is at most the product of the lengths."""
    at = place = 0
    star: tuple[int, int] | None = None  # the last % in the pattern, and where its text ends
    while at < len(text):
        if place < len(pattern) and pattern[place] == "%":
            star, place = (place, at), place + 1
        elif place < len(pattern) and pattern[place] in ("_", text[at]):
            at, place = at + 1, place + 1
        elif star is not None:
            star = (star[0], star[1] + 1)
            place, at = star[0] + 1, star[1]
        else:
            return False
    return all(rest == "%" for rest in pattern[place:])


def _remainder(one: Any, other: Any) -> Any:
    """The remainder with the sign of the dividend, as in SQL."""
    rest = abs(one) % abs(other)
    return -rest if one < 0 else rest


def _product(one: Any, other: Any) -> Any:
    """A product. Python repeats what is multiplied, which may take all memory. A text may be NaN, as JSON has it."""
    if isinstance(one, list) or isinstance(other, list):
        raise TypeError("a list has no product")
    for text, number in ((one, other), (other, one)):
        if isinstance(text, str) and isinstance(number, int) and len(text) * number > _MOST_REPEATED:
            raise ValueError("the product is too long a text")
    return one * other


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": _product,
    "/": operator.truediv,
    "%": _remainder,
    "negative": operator.neg,
    "abs": abs,
    "not": operator.not_,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "||": operator.add,
    "like": is_like,
}
_CONNECTED: dict[str, Callable[..., Evaluator]] = {
    "and": _and,
    "or": _or,
    "is null": _is_null,
    "same": _same,
    "differs": _differs,
    "in": _in,
    "coalesce": _coalesce,
    "greatest": _extreme(max),
    "least": _extreme(min),
}
