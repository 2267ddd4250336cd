"""Truth: whether a condition may be true, and whether it may be false, for each of many events.

The answer is exact if the condition only depends on the event and those before it, in a form that arrays can compute.
Otherwise a condition may be both. So an event that cannot fit a step is known without a search, and no other answer
counts: the search judges what remains.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from truelog.patterns.evaluate import evaluator, fields_of
from truelog.patterns.expression import Call, Constant, Expression, Field
from truelog.patterns.together.events import EXACT, Bools, Column, Events, Floats, Ints, Numbers

_COMPARED: Mapping[str, Callable[[Floats, Floats], Bools]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_COMPUTED: Mapping[str, Callable[..., Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "negative": np.negative,
    "abs": np.abs,
}


class Truth(NamedTuple):
    """What a condition may be for each event. If it is neither, it is NULL."""

    may_be_true: Bools
    may_be_false: Bools


class Rows:
    """The events that are the rows of a rule, by their numbers, in order."""

    def __init__(self, events: Events, numbers: Ints) -> None:
        self.events = events
        self.numbers = numbers
        self.are_all = len(numbers) == len(events)
        self.group = events.group[numbers]
        self.at = events.at[numbers]
        self.place = events.place[numbers]
        is_first = np.append(True, self.group[1:] != self.group[:-1])[: len(numbers)]
        first = np.flatnonzero(is_first)
        self.bounds: Ints = np.append(first, len(numbers))  # the first row of each group, and the end
        self.groups: Ints = self.group[first]
        self.ends: Ints = np.repeat(self.bounds[1:], np.diff(self.bounds))  # of each row's group
        self._before: dict[int, tuple[Ints, Bools]] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def sums(self, values: Floats) -> Floats:
        """The sum of the rows' values in each group."""
        return np.add.reduceat(values, self.bounds[:-1]) if len(self) else values

    def rows_of(self, group: int) -> slice:
        """The rows of a group."""
        place = int(np.searchsorted(self.groups, group))
        is_there = place < len(self.groups) and self.groups[place] == group
        return slice(*self.bounds[place : place + 2].tolist()) if is_there else slice(0, 0)

    def only(self, chosen: Bools) -> "Rows":
        return Rows(self.events, self.numbers[chosen])

    def before(self, back: int) -> tuple[Ints, Bools]:
        """For each row, the number of the event so many rows before it, and whether its group has such a row."""
        if back not in self._before:
            place = np.maximum(np.arange(len(self)) - back, 0)
            is_there = (np.arange(len(self)) >= back) & (self.group[place] == self.group)
            self._before[back] = self.numbers[place], is_there
        return self._before[back]


class Truths:
    """The truth of conditions. What depends on single events is computed once for all rules."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._every = Rows(events, np.arange(len(events)))
        self._known: dict[Expression, Truth] = {}

    def of(self, condition: Expression, rows: Rows) -> Truth:
        """What the condition may be for each row."""
        match condition:
            case Call("and", (one, other)):
                first, second = self.of(one, rows), self.of(other, rows)
                return Truth(first.may_be_true & second.may_be_true, first.may_be_false | second.may_be_false)
            case Call("or", (one, other)):
                first, second = self.of(one, rows), self.of(other, rows)
                return Truth(first.may_be_true | second.may_be_true, first.may_be_false & second.may_be_false)
            case Call("not", (one,)):
                denied = self.of(one, rows)
                return Truth(denied.may_be_false, denied.may_be_true)
        return self._of_one(condition, rows)

    def _of_one(self, condition: Expression, rows: Rows) -> Truth:
        """The same of a condition that connects no others."""
        fields = fields_of(condition)
        if any(each.step is not None for each in fields):
            return _either(len(rows))
        if any(each.back for each in fields):
            return self._compared(condition, rows) or _either(len(rows))
        if condition not in self._known:
            self._known[condition] = self._of_event(condition, {each.column for each in fields})
        known = self._known[condition]
        if rows.are_all:
            return known
        return Truth(known.may_be_true[rows.numbers], known.may_be_false[rows.numbers])

    def _of_event(self, condition: Expression, columns: set[str]) -> Truth:
        """What a condition on single events may be for each event."""
        if len(columns) > 1:
            return self._compared(condition, self._every) or _either(len(self._events))
        if not columns:
            return _of_values([evaluator(condition, ())([{}], 0, ())], np.zeros(len(self._events), np.int64))
        [name] = columns
        column = self._events.column(name)
        compared = self._compared(condition, self._every)
        if compared is not None and column.numbers.is_known.all():
            return compared
        return _by_value(condition, name, column) or _either(len(self._events))

    def _compared(self, condition: Expression, rows: Rows) -> Truth | None:
        """What a comparison of numbers may be; None if the condition is something else."""
        if not (isinstance(condition, Call) and condition.name in _COMPARED) or _has_text(condition):
            return None
        sides = [side for each in condition.arguments if (side := _numbers(each, rows)) is not None]
        if len(sides) < len(condition.arguments):
            return None
        one, other = sides
        is_given = ~(one.is_null | other.is_null)
        is_unknown = ~(one.is_known & other.is_known)
        found = _COMPARED[condition.name](one.values, other.values)
        return Truth(
            np.broadcast_to((found | is_unknown) & is_given, len(rows)),
            np.broadcast_to((~found | is_unknown) & is_given, len(rows)),
        )


def _either(length: int) -> Truth:
    return Truth(np.ones(length, bool), np.ones(length, bool))


def _has_text(condition: Call) -> bool:
    return any(isinstance(each, Constant) and isinstance(each.value, str) for each in condition.arguments)


def _by_value(condition: Expression, name: str, column: Column) -> Truth | None:
    """What a condition on one column may be, from each different value; None if values cannot be distinguished."""
    if column.coded is None:
        return None
    codes, values = column.coded
    judge = evaluator(condition, ())
    return _of_values([judge([{name: each}], 0, ()) for each in values], codes)


def _of_values(found: list[Any], codes: Ints) -> Truth:
    """The truth of what an evaluator has found for each different value. It may be no truth value."""
    may_be_true = np.array([each is not False and each is not None for each in found], bool)
    may_be_false = np.array([each is not True and each is not None for each in found], bool)
    return Truth(may_be_true[codes], may_be_false[codes])


def _numbers(expression: Expression, rows: Rows) -> Numbers | None:
    """An expression's numbers for each row, or one number for all; None if arrays cannot compute it."""
    match expression:
        case Constant(int() | float() as value) if abs(value) < EXACT:
            return _one(float(value), is_null=False)
        case Constant(None):
            return _one(0.0, is_null=True)
        case Field(column, None, _, back):
            return _of_column(rows.events.column(column).numbers, rows, back)
        case Call(name, arguments) if name in _COMPUTED:
            computed = [_numbers(each, rows) for each in arguments]
            given = [each for each in computed if each is not None]
            return _computed(name, given) if len(given) == len(computed) else None
    return None


def _one(value: float, *, is_null: bool) -> Numbers:
    return Numbers(np.array(value), np.array(is_null), np.array(True))


def _of_column(numbers: Numbers, rows: Rows, back: int) -> Numbers:
    if not back:
        return numbers.of(rows.numbers)
    before, is_there = rows.before(back)
    earlier = numbers.of(before)
    return Numbers(earlier.values, earlier.is_null | ~is_there, earlier.is_known | ~is_there)


def _computed(name: str, arguments: list[Numbers]) -> Numbers:
    """The result of an operator. A division by zero is NULL. Python computes large whole numbers exactly."""
    with np.errstate(all="ignore"):
        values = _COMPUTED[name](*(each.values for each in arguments))
    is_null = np.logical_or.reduce([*np.broadcast_arrays(*(each.is_null for each in arguments))])
    is_known = np.logical_and.reduce([*np.broadcast_arrays(*(each.is_known for each in arguments))])
    if name == "/":
        is_null = is_null | (arguments[1].is_known & (arguments[1].values == 0))
    return Numbers(values, is_null, is_null | (is_known & (np.abs(values) < EXACT)))
