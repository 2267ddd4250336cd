"""Cause: why rows of a streamed view differ from their rebuild, as far as it can be known.

A stream loses or repeats whole batches: of each partition, the records of one range of offsets. So where a batch was
lost or counted twice, there are ranges such that all that they hold is what differs, and nothing beside it. Such ranges
are looked for here, by one measure that adds up; whether they explain every column is then proved by `inquiry`.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from truelog.log.positions import Range


class Cause(StrEnum):
    """What can be the matter with rows that differ."""

    DUPLICATE = "duplicate"
    LOST = "lost batch"
    CODE = "changed code"
    FILE = "missing archive file"
    PARTIAL = "wrong partial"
    HAND = "wrong value by hand"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Explanation:
    """A cause, of how many rows, and by what it was known."""

    cause: Cause
    rows: int
    about: str

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        return {"cause": self.cause.value, "rows": self.rows, "about": self.about}


Amounts = Mapping[str, int]  # by key


@dataclass(frozen=True)
class Contribution:
    """A record, and what it added to keys that differ: a run of such records holds no other one."""

    offset: int
    amounts: Amounts


@dataclass(frozen=True)
class ContributionRun:
    """Records of one partition that follow upon each other, all of whose keys differ."""

    topic: str
    partition: int
    records: Sequence[Contribution]


def search_ranges(runs: Iterable[ContributionRun], wanted: Amounts, *, from_right: bool = False) -> list[Range]:
    """A range within each run, such that together they hold what is wanted of every key; none where that fails.

    Records are taken from the ends of the runs, the shortest run first, as long as there is too much of their keys.
    Which end first decides where several ranges hold the same.
    """
    kept = [(run, deque(run.records)) for run in sorted(runs, key=lambda run: len(run.records))]
    surplus = Counter({key: -amount for key, amount in wanted.items()})
    for _, records in kept:
        for record in records:
            surplus.update(record.amounts)
    while any(_shortened(records, surplus, from_right) for _, records in kept):
        pass
    if any(surplus.values()):
        return []
    return [Range(r.topic, r.partition, left[0].offset, left[-1].offset + 1) for r, left in kept if left]


def _shortened(records: deque[Contribution], surplus: Counter[str], from_right: bool) -> bool:
    """Take what is too much from one end, then from the other; whether anything was taken."""
    before = len(records)
    for right in (from_right, not from_right):
        while records and _is_too_much((records[-1] if right else records[0]).amounts, surplus):
            surplus.subtract((records.pop() if right else records.popleft()).amounts)
    return len(records) < before


def _is_too_much(amounts: Amounts, surplus: Counter[str]) -> bool:
    return all(amount <= surplus[key] for key, amount in amounts.items())


def exceeds_recount(streamed: int | None, rebuilt: int | None) -> bool:
    """Whether a sum of positive amounts is more than each of them counted twice comes to, or less than none."""
    return not 0 <= (streamed or 0) <= 2 * (rebuilt or 0)
