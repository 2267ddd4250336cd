"""The matcher: searches the events of one key for the matches of a rule.

The search goes through a rule's program from each possible first event. A place of the search that has failed is not
tried again. A place is an instruction, an event, the events that conditions refer to, and the last event of the path if
a gap or an absence counts from it. The work is therefore bounded, and a search that exceeds its budget says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from truelog.patterns.evaluate import Marks, Values, evaluator, show
from truelog.patterns.program import Accept, Jump, Pass, Split, Take
from truelog.patterns.rule import Rule

BUDGET, BUDGET_OF_EVENT = 100_000, 200  # steps of the search for one rule and key, and more for each event


class TooCostly(Exception):
    """A search exceeded its budget."""


class Event(NamedTuple):
    """An event of a key. Events are ordered by their first four fields. Times are in microseconds.

    at: the event's time.
    logged_at: when it reached the log.
    """

    at: int
    topic: str
    partition: int
    offset: int
    logged_at: int
    values: Values


@dataclass(frozen=True)
class Match:
    """The events of a match, each with its step.

    settled_after: the time that the log's clock must have passed before the match is shown; None: it is shown at once.
    shown: the columns that the rule shows.
    """

    events: tuple[tuple[Event, str], ...]
    settled_after: int | None
    shown: Mapping[str, Any]

    @property
    def first(self) -> Event:
        return self.events[0][0]

    @property
    def last(self) -> Event:
        return self.events[-1][0]


class Budget:
    """How many steps a search may still take."""

    def __init__(self, steps: float) -> None:
        self.steps = steps

    @staticmethod
    def of(events: Sequence[Event]) -> "Budget":
        return Budget(BUDGET + BUDGET_OF_EVENT * len(events))

    def spend(self, steps: float) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TooCostly


def find(
    rule: Rule,
    events: Sequence[Event],
    budget: Budget | None = None,
    may_match: Callable[[Event], bool] = lambda event: True,
) -> list[Match]:
    """The matches of a rule among the events of a key, in the order of their first events.

    Events for which `may_match` is false only undo matches.

    Raises:
        TooCostly: the search exceeds its budget.
    """
    ordered = sorted(events)
    rows = [each for each in ordered if each.topic in rule.row_types and may_match(each)]
    return search(rule, Searched(rows, ordered), budget or Budget.of(events))


class Searched(NamedTuple):
    """The events of a search, in order.

    rows: the events that may be part of a match.
    every: the rows, and the events that may undo a match.
    begins: for each row, whether a match may begin with it; None: it may begin with any.
    cost: the most steps that the search would take from the other rows.
    """

    rows: Sequence[Event]
    every: Sequence[Event]
    begins: Sequence[bool] | None = None
    cost: float = 0


def search(rule: Rule, searched: Searched, budget: Budget) -> list[Match]:
    """The matches of a rule among events, as `find` finds them."""
    if len(searched.rows) < rule.least:
        return []
    budget.spend(searched.cost)
    found = _Search(rule, searched, budget)
    return [found.match(path) for path in found.paths(searched.begins)]


@dataclass(frozen=True)
class _Path:
    """The events of a match so far: the number of an event, its step, and the path before it."""

    number: int
    step: str
    before: "_Path | None"


class _Thread(NamedTuple):
    """A place of the search: the next instruction, the next event, the marked events, and the path."""

    instruction: int
    number: int
    marks: Marks
    path: _Path | None


class _Search:
    """The search for a rule among the rows of `searched`."""

    def __init__(self, rule: Rule, searched: Searched, budget: Budget) -> None:
        self.rule = rule
        self.events = events = searched.rows
        self.rows: list[Values] = [each.values for each in events]
        self.tests = rule.tests
        self.known: dict[tuple[str, int], bool] = {}  # the answers of conditions that depend on no match
        absence = rule.absence
        self.needs_last = absence is not None or any(each.gap is not None for each in rule.steps.values())
        self.budget = budget
        self.absent = [e for e in searched.every if absence and e.topic == absence.condition.event_type]

    def paths(self, begins: Sequence[bool] | None) -> list[_Path]:
        found, start = [], 0
        while start < len(self.events):
            path = self.path_from(start) if begins is None or begins[start] else None
            if path is not None:
                found.append(path)
            start = path.number + 1 if path is not None and self.rule.is_past_last else start + 1
        return found

    def path_from(self, start: int) -> _Path | None:
        """The preferred path of a match that begins with this event; None if there is no match, or an empty one."""
        end = self.events[start].at + self.rule.within
        threads = [_Thread(0, start, (None,) * len(self.rule.slots), None)]
        tried: set[tuple[int, int, Marks, int | None]] = set()
        while threads:
            self.budget.spend(1)
            thread = threads.pop()
            last = thread.path.number if self.needs_last and thread.path else None
            place = (thread.instruction, thread.number, thread.marks, last)
            if place in tried:
                continue
            tried.add(place)
            if not isinstance(self.rule.program[thread.instruction], Accept):
                threads.extend(self.following(thread, end))
            elif self.is_undisturbed(thread):
                return thread.path
        return None

    def following(self, thread: _Thread, end: int) -> list[_Thread]:
        """Where the search continues; the preferred place is last."""
        at, number, marks, path = thread
        instruction = self.rule.program[at]
        if isinstance(instruction, Jump):
            return [_Thread(instruction.to, number, marks, path)]
        if isinstance(instruction, Split):
            return [_Thread(to, number, marks, path) for to in (instruction.other, instruction.preferred)]
        if number >= len(self.events) or self.events[number].at > end:
            return []
        if isinstance(instruction, Pass):  # a match begins with an event of its own
            return [_Thread(at + 1, number + 1, marks, path)] if path is not None else []
        assert isinstance(instruction, Take)  # noqa: S101
        step = instruction.step
        if not self.fits(step, thread):
            return []
        return [_Thread(at + 1, number + 1, self.marked(marks, step, number), _Path(number, step, path))]

    def fits(self, step: str, thread: _Thread) -> bool:
        """Whether the next event fits a step."""
        condition, number = self.rule.steps[step], thread.number
        event = self.events[number]
        if event.topic != condition.event_type:
            return False
        before = thread.path and self.events[thread.path.number]
        if condition.gap is not None and before and event.at - before.at > condition.gap:
            return False
        if not condition.is_alone:
            return self.tests[step](self.rows, number, thread.marks) is True
        if (step, number) not in self.known:
            self.known[step, number] = self.tests[step](self.rows, number, thread.marks) is True
        return self.known[step, number]

    def marked(self, marks: Marks, step: str, number: int) -> Marks:
        if not marks:
            return marks
        slots = zip(self.rule.slots, marks, strict=True)
        return tuple(
            number if name == step and not (is_first and mark is not None) else mark for (name, is_first), mark in slots
        )

    def is_undisturbed(self, thread: _Thread) -> bool:
        """Whether no event undoes the match that ends here."""
        path, absence = thread.path, self.rule.absence
        if path is None or absence is None:
            return True
        last, deadline = self.events[path.number], self.deadline(path)
        test, rows = evaluator(absence.condition.where, self.rule.slots), [*self.rows, {}]
        for event in self.absent:
            if event > last and event.at <= deadline:
                self.budget.spend(1)
                rows[-1] = event.values
                if test(rows, len(self.rows), thread.marks) is True:
                    return False
        return True

    def deadline(self, path: _Path) -> int:
        """Until when no event may undo a match."""
        absence, first = self.rule.absence, path
        while first.before is not None:
            first = first.before
        if absence is None or absence.until is None:
            return self.events[first.number].at + self.rule.within
        return self.events[path.number].at + absence.until

    def match(self, path: _Path) -> Match:
        taken, last = [(path.number, path.step)], path
        while path.before is not None:
            path = path.before
            taken.append((path.number, path.step))
        taken.reverse()
        shown = {name: show(each, self.rows, taken) for name, each in self.rule.shown.items()}
        return Match(tuple((self.events[n], step) for n, step in taken), self.settled_after(path, last), shown)

    def settled_after(self, first: _Path, last: _Path) -> int | None:
        """When the log's clock shows that no event in time can change a match."""
        rule = self.rule
        until = rule.absence.until if rule.absence else None
        if rule.is_final:
            return self.events[first.number].at + rule.within + (until or 0) + rule.late_after
        return None if rule.absence is None else self.deadline(last) + rule.late_after
