"""A second, naive implementation of the lag verdict, which shares nothing with the library but its data types."""

import statistics

from truelog.lag.verdict import Limits, Sample


def verdict(history: list[Sample], now: float, limits: Limits) -> tuple[str, int]:
    """The verdict and the number of the rule that decides it."""
    if len(history) == 0 or now > history[-1].at + limits.blind or history[-1].blind != "":
        return "UNKNOWN", 1
    newest = history[-1]
    length = max(600, 2 * limits.still)
    window = [sample for sample in history if sample.blind == "" and sample.at >= newest.at - length]
    window = [sample for sample in window if sample.topic_id == newest.topic_id]
    watched = newest.at - window[0].at
    unread = newest.end - newest.position
    far = unread > 0 and newest.seconds >= limits.fine
    is_stuck = unread > 0 and newest.seconds >= limits.still and newest.at - _still_since(window) >= limits.still
    has_no_batch = newest.batch_at is None or newest.at - newest.batch_at >= limits.still
    passed = min(newest.earliest, newest.end) > newest.position
    at_risk = far and not (limits.backed and passed)
    moved_back = any(sample.position > newest.position for sample in window)
    answers = [
        (passed and not limits.backed, "FALLING_OFF", 2),
        (moved_back or unread < 0 or newest.cut_at is not None, "REWIND", 3),
        (at_risk and _ends_soon_by_time(window[0], newest, limits), "FALLING_OFF", 4),
        (at_risk and _ends_soon_by_offsets(window, limits), "FALLING_OFF", 5),
        (is_stuck and has_no_batch, "STOP", 6),
        (is_stuck and not has_no_batch, "STALL", 7),
        (far and watched < 60, "UNKNOWN", 8),
        (far and watched >= 0.9 * length and _loses_in_each_third(window), "UNDERPROVISIONED", 9),
        (_usually_late(window, limits), "WARN", 10),
        (far and _grows(window, limits), "WARN", 11),
        (True, "OK", 12),
    ]
    return next((word, number) for holds, word, number in answers if holds)


def _usually_late(window: list[Sample], limits: Limits) -> bool:
    return statistics.median(s.seconds for s in window if s.at >= window[-1].at - 120) >= limits.late


def _grows(window: list[Sample], limits: Limits) -> bool:
    newest = window[-1].at
    first_minute = [s.seconds for s in window if newest - 120 <= s.at < newest - 60]
    second_minute = [s.seconds for s in window if s.at >= newest - 60]
    if not first_minute:
        return False
    before, after = statistics.median(first_minute), statistics.median(second_minute)
    return after >= limits.fine and after >= 1.2 * before


def _ends_soon_by_time(oldest: Sample, newest: Sample, limits: Limits) -> bool:
    if newest.retention is None:
        return False
    left = newest.retention - newest.seconds
    if left <= 0:
        return not limits.backed
    speed = 1.0
    if newest.at > oldest.at:
        speed = (newest.seconds - oldest.seconds) / (newest.at - oldest.at)
    return speed > 0 and left / speed < min(limits.falling, newest.retention / 2)


def _ends_soon_by_offsets(window: list[Sample], limits: Limits) -> bool:
    moves = 0
    for number in range(1, len(window)):
        if window[number].earliest > window[number - 1].earliest:
            moves += 1
    if moves < 2:
        return False
    oldest, newest = window[0], window[-1]
    room_then, room_now = oldest.position - oldest.earliest, newest.position - newest.earliest
    if room_now == 0:
        return not limits.backed
    speed = (room_then - room_now) / (newest.at - oldest.at)
    return speed > 0 and room_now / speed < limits.falling


def _still_since(window: list[Sample]) -> float:
    since = window[-1].at
    for sample in reversed(window):
        if sample.position != window[-1].position or _is_hidden(sample):
            break
        since = sample.at
    return since


def _is_hidden(sample: Sample) -> bool:
    """Whether the reader is where an open transaction begins, and so has nothing to read."""
    readable = sample.end if sample.committed_end is None else sample.committed_end
    return sample.position < sample.end and readable - sample.position <= 0


def _loses_in_each_third(window: list[Sample]) -> bool:
    if window[-1].seconds <= window[0].seconds:
        return False
    for third in range(3):
        begin = window[round(third * (len(window) - 1) / 3)]
        end = window[round((third + 1) * (len(window) - 1) / 3)]
        consumed, produced = end.position - begin.position, end.end - begin.end
        if consumed <= 0 or produced <= consumed:
            return False
    return True
