"""Receipts: where the collector has stored events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stored:
    """An event in the log."""

    index: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class DeadLetter:
    """An event that is a dead letter, with the field and the reason."""

    index: int
    field: str
    reason: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Receipt:
    """Where the events are, and the token with which a read waits for the good ones. Rarely, there is no token."""

    good: tuple[Stored, ...]
    bad: tuple[DeadLetter, ...]
    token: str | None

    @staticmethod
    def of(answer: Mapping[str, Any]) -> "Receipt":
        """The receipt in the collector's answer."""
        good = tuple(Stored(**each) for each in answer["good"])
        return Receipt(good, tuple(DeadLetter(**each) for each in answer["bad"]), answer.get("token"))
