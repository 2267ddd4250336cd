"""Naive copies, which `truelog.tables.dedupe.compile` must match: every event is compared with every earlier event."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Appended:
    """A valid event of one partition: its id, and the second in which the broker appended it."""

    event_id: str
    second: float


def without_copies(partition: Sequence[Appended], horizon: int) -> list[int]:
    """The numbers of the events without the copies."""
    times = log_times(partition)
    return [
        number
        for number, event in enumerate(partition)
        if not any(
            earlier.event_id == event.event_id and time >= times[number] - horizon
            for earlier, time in zip(partition[:number], times, strict=False)
        )
    ]


def remembered(partition: Sequence[Appended], horizon: int) -> list[int]:
    """The numbers of the events that may have copies later."""
    times = log_times(partition)
    return [number for number, time in enumerate(times) if time >= times[-1] - horizon]


def log_times(partition: Sequence[Appended]) -> list[float]:
    """The greatest second up to each event."""
    return [max(event.second for event in partition[: number + 1]) for number in range(len(partition))]
