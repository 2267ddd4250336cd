"""Searches for the offsets of a lost or duplicated batch that explain why rows differ.

A stream loses or repeats whole batches, and a batch is one range of offsets in each partition. So if a batch was lost
or counted twice, the records in some ranges add up to exactly the difference. This module uses one measure to search
for these ranges. `root_cause` then proves that the ranges explain every column.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from truelog.log.positions import Range


class Cause(StrEnum):
    """Why rows differ."""

    DUPLICATE = "duplicate"
    LOST = "lost batch"
    CODE = "changed code"
    FILE = "missing archive file"
    PARTIAL = "wrong partial"
    EXCLUSION = "wrong exclusion"
    CLOCK = "wrong clock"
    HAND = "wrong value by hand"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Explanation:
    """A cause, the number of rows that the cause explains, and the evidence."""

    cause: Cause
    rows: int
    about: str

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {"cause": self.cause.value, "rows": self.rows, "about": self.about}


Amounts = Mapping[str, int]  # amount by key


@dataclass(frozen=True)
class Contribution:
    """A record, and the amounts that the record adds to differing keys."""

    offset: int
    amounts: Amounts


@dataclass(frozen=True)
class ContributionRun:
    """Consecutive records of one partition that only add to differing keys."""

    topic: str
    partition: int
    records: Sequence[Contribution]


def search_ranges(runs: Iterable[ContributionRun], wanted: Amounts, *, from_right: bool = False) -> list[Range]:
    """Find one range in each run so that the ranges together add the wanted amount to every key.

    The search starts with whole runs, shortest run first, and removes records from the ends of a run while their keys
    have more than the wanted amounts. If several ranges have the same total, `from_right` decides which one is found.
    Returns an empty list if no ranges fit.
    """
    candidates = [(run, deque(run.records)) for run in sorted(runs, key=lambda run: len(run.records))]
    surplus = Counter({key: -amount for key, amount in wanted.items()})
    for _, records in candidates:
        for record in records:
            surplus.update(record.amounts)
    while any(_shortened(records, surplus, from_right) for _, records in candidates):
        pass
    if any(surplus.values()):
        return []
    return [Range(r.topic, r.partition, left[0].offset, left[-1].offset + 1) for r, left in candidates if left]


def _shortened(records: deque[Contribution], surplus: Counter[str], from_right: bool) -> bool:
    """Remove surplus records from one end and then from the other, and return whether any record was removed."""
    before = len(records)
    for right in (from_right, not from_right):
        while records and _is_too_much((records[-1] if right else records[0]).amounts, surplus):
            surplus.subtract((records.pop() if right else records.popleft()).amounts)
    return len(records) < before


def _is_too_much(amounts: Amounts, surplus: Counter[str]) -> bool:
    return all(amount <= surplus[key] for key, amount in amounts.items())


def exceeds_recount(streamed: int | None, rebuilt: int | None) -> bool:
    """Whether a streamed sum is negative, or more than twice the rebuilt sum. A duplicate can at most double it."""
    return not 0 <= (streamed or 0) <= 2 * (rebuilt or 0)
