"""A naive matcher: it tries every way through the tree of a pattern, in the order of preference, and remembers nothing.

Conditions are Python functions of the event, the event before it, and the last event of each step so far.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from truelog.patterns.grammar import Choice, Repeat, Skip, Step, Tree
from truelog.patterns.grammar import Sequence as InOrder
from truelog.patterns.matcher import Event

Taken = tuple[tuple[int, str], ...]  # the numbers of events, with their steps
Fits = Callable[[Event, Event | None, Mapping[str, Event]], bool]


@dataclass(frozen=True)
class Naive:
    """A rule. Durations are in microseconds. `absent` is a condition, and until when after the last event it counts."""

    tree: Tree
    fits: Mapping[str, Fits]
    within: int
    is_past_last: bool = True
    gaps: Mapping[str, int] | None = None
    absent: tuple[Fits, int | None] | None = None

    def find(self, events: Sequence[Event], undoing: Sequence[Event] | None = None) -> list[Taken]:
        """The matches that no event of `undoing` undoes; by default, no event of `events`."""
        ordered, found, start = sorted(events), list[Taken](), 0
        while start < len(ordered):
            ways = _Ways(self, ordered, start, ordered if undoing is None else undoing)
            taken = next((taken for taken, _ in ways.through(self.tree, (), start) if ways.holds(taken)), ())
            if taken:
                found.append(taken)
            start = taken[-1][0] + 1 if taken and self.is_past_last else start + 1
        return found

    def deadline(self, events: Sequence[Event], taken: Taken) -> int:
        """Until when no event may undo a match."""
        until = None if self.absent is None else self.absent[1]
        return events[taken[0][0]].at + self.within if until is None else events[taken[-1][0]].at + until


@dataclass(frozen=True)
class _Ways:
    """The ways to match that begin with the event `start`: the events taken so far, and the next event."""

    rule: Naive
    events: Sequence[Event]
    start: int
    undoing: Sequence[Event]

    def through(self, tree: Tree, taken: Taken, at: int) -> Iterator[tuple[Taken, int]]:
        match tree:
            case Step(name):
                if at < len(self.events) and self.takes(name, taken, at):
                    yield (*taken, (at, name)), at + 1
            case Skip():
                yield taken, at
                while taken and at < len(self.events) and self.since_start(at) <= self.rule.within:
                    at += 1
                    yield taken, at
            case InOrder(items):
                yield from self.in_order(items, taken, at)
            case Choice(alternatives):
                for each in alternatives:
                    yield from self.through(each, taken, at)
            case Repeat():
                yield from self.repeated(tree, taken, at, 0)

    def in_order(self, items: Sequence[Tree], taken: Taken, at: int) -> Iterator[tuple[Taken, int]]:
        if not items:
            yield taken, at
            return
        for now, then in self.through(items[0], taken, at):
            yield from self.in_order(items[1:], now, then)

    def repeated(self, tree: Repeat, taken: Taken, at: int, times: int) -> Iterator[tuple[Taken, int]]:
        def again() -> Iterator[tuple[Taken, int]]:
            if tree.most is None or times < tree.most:
                for now, then in self.through(tree.item, taken, at):
                    if then > at or times < tree.least or tree.most is not None:
                        yield from self.repeated(tree, now, then, times + 1)

        if tree.is_greedy:
            yield from again()
        if times >= tree.least:
            yield taken, at
        if not tree.is_greedy:
            yield from again()

    def takes(self, name: str, taken: Taken, at: int) -> bool:
        event, gap = self.events[at], (self.rule.gaps or {}).get(name)
        if self.since_start(at) > self.rule.within:
            return False
        if gap is not None and taken and event.at - self.events[taken[-1][0]].at > gap:
            return False
        last = {step: self.events[number] for number, step in taken}
        return self.rule.fits[name](event, self.events[at - 1] if at else None, last)

    def holds(self, taken: Taken) -> bool:
        if not taken or self.rule.absent is None:
            return True
        fits, _ = self.rule.absent
        last, deadline = self.events[taken[-1][0]], self.rule.deadline(self.events, taken)
        marked = {step: self.events[number] for number, step in taken}
        return not any(e > last and e.at <= deadline and fits(e, None, marked) for e in self.undoing)

    def since_start(self, at: int) -> int:
        return self.events[at].at - self.events[self.start].at
