"""Versions of rules: which rule judges which events, as a function of the records in the topic of rules.

A record says what happened to a rule, and carries the end of each partition, read before the record was written. A
version judges the events from these offsets on, up to the offsets of the rule's next record. The place of a version in
the log is therefore part of the log, and every reader agrees on it (`docs/decisions/084-pattern-rules.md`).

A stored search is a rule in this sense, too: `versions` asks its caller what a record sets.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from truelog.patterns import rule as rules
from truelog.patterns.catalogue import Sources
from truelog.patterns.rule import Rule, TooLong
from truelog.support.errors import BadInput

SET, RETIRED = "set", "retired"  # what may happen to a rule

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")
Ends = Mapping[str, Mapping[str, int]]  # offsets by topic and partition; 0 if absent


class Named(Protocol):
    """What judges events: a rule, or a stored search."""

    @property
    def name(self) -> str: ...
    @property
    def event_types(self) -> frozenset[str]: ...


class Placed(Protocol):
    """An event's coordinates."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


R = TypeVar("R", bound=Named)
Read = Callable[[str, str | None], R | TooLong | None]  # of a name and a definition; None if they are not valid


class Change(NamedTuple):
    """A record of the topic of rules. Records are ordered by their first three fields.

    logged_at: when it reached the log, in microseconds.
    begins: the ends of the partitions as JSON, {topic: {partition: offset}}.
    """

    topic: str
    partition: int
    offset: int
    logged_at: int
    rule: str
    verb: str
    definition: str | None
    begins: str


@dataclass(frozen=True)
class Version(Generic[R]):
    """A rule from one change to the next.

    number: 1 for the first version of a rule.
    change: the record that made the version.
    begins, ends: the offsets of its first events, and of the first events that it no longer judges.
    ended_at: when the record that ended it reached the log; None while it is in force.
    """

    number: int
    change: Change
    rule: R
    begins: Ends
    ends: Ends | None
    ended_at: int | None

    def judges(self, event: Placed) -> bool:
        """Whether an event may be part of a match."""
        return is_judged(event, self.begins, self.ends)

    def begins_before(self, event: Placed) -> bool:
        """Whether an event may undo a match. Events after the end of the version still do."""
        return is_judged(event, self.begins, None)


def is_judged(event: Placed, begins: Ends, ends: Ends | None) -> bool:
    """Whether an event is between these offsets."""
    topic, partition = event.topic, str(event.partition)
    begun = event.offset >= offset_in(begins, topic, partition)
    return begun and (ends is None or event.offset < offset_in(ends, topic, partition))


def versions(changes: Iterable[Change], read: Read[R]) -> list[Version[R]]:
    """The versions that follow from these changes. A record that is not valid changes nothing.

    A rule that is too long has no version, but it ends the version before it, which its author has replaced.
    """
    found: list[Version[R]] = []
    current: dict[str, int] = {}  # the place of each rule's version in force
    numbers: dict[str, int] = {}
    reached: dict[str, Ends] = {}  # where the last record of each rule takes effect
    for change in sorted(changes):
        begins = read_ends(change.begins)
        rule = read(change.rule, change.definition) if change.verb == SET else None
        if begins is None or (rule is None and change.verb != RETIRED):
            continue
        name = change.rule
        begins = reached[name] = _latest(reached.get(name, {}), begins)
        if name in current:
            place = current.pop(name)
            found[place] = replace(found[place], ends=begins, ended_at=change.logged_at)
        if rule is not None and not isinstance(rule, TooLong):
            numbers[name] = numbers.get(name, 0) + 1
            current[name] = len(found)
            found.append(Version(numbers[name], change, rule, begins, None, None))
    return found


@dataclass(frozen=True)
class Book(Generic[R]):
    """The records of each rule and its versions, which follow from these records alone."""

    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    versions: Mapping[str, tuple[Version[R], ...]] = field(default_factory=dict)

    def with_changes(self, changes: Iterable[Change], read: Read[R]) -> "Book[R]":
        """The book with further records. Only the versions of their rules are made again."""
        further: defaultdict[str, list[Change]] = defaultdict(list)
        for each in changes:
            further[each.rule].append(each)
        changed = {name: (*self.changes.get(name, ()), *of_rule) for name, of_rule in further.items()}
        made = {name: tuple(versions(of_rule, read)) for name, of_rule in changed.items()}
        return Book({**self.changes, **changed}, {**self.versions, **made})

    def every(self) -> list[Version[R]]:
        """The versions of all rules, those of a rule in order."""
        return [each for of_rule in self.versions.values() for each in of_rule]

    def of(self, names: Iterable[str]) -> list[Version[R]]:
        """The versions of these rules."""
        return [each for name in names for each in self.versions.get(name, ())]

    def changed_since(self, before: "Book[R]") -> list[str]:
        """The rules whose versions were made again since `before`, from which this book was made."""
        return [name for name, each in self.versions.items() if before.versions.get(name) is not each]


@dataclass(frozen=True)
class Difference:
    """A version that other changes have made another one.

    cuts: from these offsets on, events may belong to other matches of the version. Matches that it has had so far may
        also vanish.
    event_types: the types of these events.
    """

    rule: str
    number: int
    cuts: tuple[Ends, ...]
    event_types: frozenset[str]


def differences(before: Iterable[Version[R]], after: Iterable[Version[R]]) -> list[Difference]:
    """The versions that are not the same `before` and `after` some changes."""
    old, new = ({(each.rule.name, each.number): each for each in versions} for versions in (before, after))
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return [_difference(old.get(key), new.get(key)) for key in changed]


def _difference(before: Version[R] | None, after: Version[R] | None) -> Difference:
    either = [each for each in (before, after) if each is not None]
    event_types = frozenset().union(*(each.rule.event_types for each in either))
    return Difference(either[0].rule.name, either[0].number, _cuts(before, after), event_types)


def _cuts(before: Version[R] | None, after: Version[R] | None) -> tuple[Ends, ...]:
    if before and after and before.ends is None and after.ends is not None:
        ended = replace(before, ends=after.ends, ended_at=after.ended_at)
        if ended == after:
            return (after.ends,)
    return tuple(each.begins for each in (before, after) if each is not None)


def reader(sources: Sources) -> Read[Rule]:
    """Reads rules that may name what these sources declare."""
    return lambda name, definition: read_rule(name, definition, sources)


def read_rule(name: str, definition: str | None, sources: Sources) -> Rule | TooLong | None:
    """The rule of this name in a definition, or that it is too long; None if it contains anything else."""
    rule = None if definition is None else _read(definition, _Frozen(sources))
    return rule if rule is not None and rule.name == name else None


class _Frozen:
    """What rules may name, as a part of a cache's key."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.sources)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and self.sources == other.sources


@lru_cache(maxsize=1_000)
def _read(definition: str, frozen: _Frozen) -> Rule | TooLong | None:
    try:
        return rules.check(rules.read(json.loads(definition)), frozen.sources)
    except TooLong as error:
        return error
    except (ValueError, RecursionError, BadInput):
        return None


def read_ends(text: str) -> Ends | None:
    """The offsets in a text; None if it contains anything else."""
    try:
        ends = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return ends if isinstance(ends, dict) and all(map(_are_offsets, ends.values())) else None


def _are_offsets(by_partition: object) -> bool:
    return isinstance(by_partition, dict) and all(
        _PARTITION.fullmatch(partition) and type(offset) is int and 0 <= offset < 2**62
        for partition, offset in by_partition.items()
    )


def _latest(one: Ends, other: Ends) -> Ends:
    """The greater offset of each partition."""
    return {
        topic: {
            partition: max(offset_in(one, topic, partition), offset_in(other, topic, partition))
            for partition in {**one.get(topic, {}), **other.get(topic, {})}
        }
        for topic in {**one, **other}
    }


def offset_in(ends: Ends, topic: str, partition: str) -> int:
    return ends.get(topic, {}).get(partition, 0)
