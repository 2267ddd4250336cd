"""Verdict: what the lag of one reader in one partition comes to; a pure function of its history and now.

A reader is a view or the archive. The first rule that holds decides:

1. UNKNOWN: there is no sample; the last one is too old; or it says what kept the poller from seeing.
2. FALLING_OFF: the log has dropped records that the reader had not read, and nobody else has them.
3. REWIND: the reader stands before a position that it has had, or past the end of the log.
4. FALLING_OFF: at the pace of the window, retention overtakes the reader in less than `falling` seconds. With one
   sample only, it is taken to stand still. Of a short log, at most half its retention counts as soon.
5. FALLING_OFF: the same by offsets, where the log's beginning is seen to flow: it moved twice or more in the window.
6. STOP: it has had something to read for `still` seconds, did not move in that time, and made no batch either.
7. STALL: the same, though its application makes batches.
8. UNKNOWN: it is behind, and has not been watched for long enough to tell more.
9. UNDERPROVISIONED: in each third of a whole window it moved, and counted less than came.
10. WARN: in the median of the last two minutes it was `late` seconds behind or more, whether or not that grows.
11. WARN: it falls behind: in the second of these minutes it was farther behind, by a fifth at least, than in the first.
12. OK.

Rules 4, 5, 8, 9 and 11 hold only of readers that are `fine` seconds behind or more. A `backed` reader that the log's
beginning has passed reads on elsewhere: rules 2, 4 and 5 do not hold of it. Medians make one dip hide nothing. Nothing
here asks whether a reader commits: one with nothing to read is OK, however long ago it moved. Where its topic was
deleted and made again, its history begins with the new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from statistics import median

from truelog.support.durations import in_words

WINDOW = 600.0  # seconds of history that count, at least
BLIND_SECONDS = 1  # the rule by which nothing is known
RECENT = 120.0  # seconds in which a trend is looked for
GROWTH = 1.2  # of the median from the first half of these seconds to the second


class LagVerdict(StrEnum):
    """In the order of what they cost."""

    OK = "OK"
    WARN = "WARN"
    UNDERPROVISIONED = "UNDERPROVISIONED"
    UNKNOWN = "UNKNOWN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    FALLING_OFF = "FALLING_OFF"


@dataclass(frozen=True)
class Sample:
    """What the poller saw of one reader in one partition; times are seconds since 1970."""

    at: float
    position: int = 0
    earliest: int = 0
    end: int = 0
    seconds: float = 0.0  # age, by the broker's clock, of the first record still to be counted
    batch_at: float | None = None  # when its application last ended a batch
    retention: float | None = None  # seconds for which the log keeps a record; None where it is not kept by time
    topic_id: str = ""  # of another id, it is another log
    blind: str = ""  # what kept the poller from seeing; then nothing above says anything

    @property
    def events(self) -> int:
        return max(0, self.end - self.position)

    @property
    def dropped(self) -> int:
        """Records that retention took before they were read."""
        return max(0, min(self.earliest, self.end) - self.position)


@dataclass(frozen=True)
class Limits:
    """What counts as too much for a reader, in seconds, and whether the log is all that it has."""

    blind: float = 30.0
    fine: float = 10.0
    late: float = 60.0
    still: float = 120.0
    falling: float = 6 * 3600.0
    backed: bool = False  # what the log drops, it reads from the archive

    @property
    def window(self) -> float:
        """How much history counts: enough for it to have stood still in."""
        return max(WINDOW, 2 * self.still)


@dataclass(frozen=True)
class LagAssessment:
    """The verdict, the rule that decided, why; and how fast records come and are counted."""

    verdict: LagVerdict
    rule: int
    reason: str
    came: float | None = None  # records a second
    counted: float | None = None
    caught_up_in: float | None = None  # seconds; None where that is not in sight


@dataclass(frozen=True)
class _Case:
    """The history as far as it counts: what was seen in the window before now, the newest last."""

    seen: Sequence[Sample]
    limits: Limits

    @property
    def first(self) -> Sample:
        return self.seen[0]

    @property
    def last(self) -> Sample:
        return self.seen[-1]

    @property
    def span(self) -> float:
        return self.last.at - self.first.at

    @property
    def behind(self) -> bool:
        return self.last.events > 0 and self.last.seconds >= self.limits.fine

    @cached_property
    def recent(self) -> list[Sample]:
        return [sample for sample in self.seen if sample.at >= self.last.at - RECENT]

    @property
    def stood(self) -> float:
        """For how long it is seen at its last position."""
        moved = max((n for n, each in enumerate(self.seen) if each.position != self.last.position), default=-1)
        return self.last.at - self.seen[moved + 1].at


RuleResult = tuple[LagVerdict, str] | None


def assess(history: Sequence[Sample], now: float, limits: Limits) -> LagAssessment:
    """The verdict on a history that is in order of time."""
    if blind := _blind(history, now, limits):
        return LagAssessment(LagVerdict.UNKNOWN, BLIND_SECONDS, blind)
    window = history[-1].at - limits.window
    case = _Case([each for each in history if each.at >= window and _of_this_log(each, history[-1])], limits)
    came, counted = _pace(case, lambda each: each.end), _pace(case, lambda each: each.position)
    for number, rule in enumerate(_RULES, 2):
        if told := rule(case):
            verdict, reason = told
            return LagAssessment(verdict, number, reason, came, counted, _caught_up_in(case, came, counted))
    raise AssertionError("the last rule holds of every case")


def _of_this_log(sample: Sample, last: Sample) -> bool:
    """What was seen before its topic was deleted and made again tells nothing of the one that there is now."""
    return not sample.blind and sample.topic_id == last.topic_id


def _blind(history: Sequence[Sample], now: float, limits: Limits) -> str:
    """1. The poller is blind."""
    if not history:
        return "the lag service has no sample"
    if now - history[-1].at > limits.blind:
        return f"the lag service's last sample is {in_words(now - history[-1].at)} old"
    return history[-1].blind


def _dropped(case: _Case) -> RuleResult:
    """2. Records are gone."""
    lost = 0 if case.limits.backed else case.last.dropped
    return (LagVerdict.FALLING_OFF, f"the log dropped {lost:,} records before they were read") if lost else None


def _rewind(case: _Case) -> RuleResult:
    """3. Positions go forward, and the log does not end before them."""
    peak = max(sample.position for sample in case.seen)
    if case.last.position < peak:
        return LagVerdict.REWIND, f"it went back from {peak:,} to {case.last.position:,}"
    if case.last.position > case.last.end:
        return LagVerdict.REWIND, f"the log ends at {case.last.end:,}, before its position {case.last.position:,}"
    return None


def _falling_by_time(case: _Case) -> RuleResult:
    """4. Retention in time."""
    retention = case.last.retention
    if retention is None or not case.behind:
        return None
    margin = retention - case.last.seconds
    closing = 1.0 if case.span == 0 else (case.last.seconds - case.first.seconds) / case.span
    return _overtaken(case, margin, closing, min(case.limits.falling, retention / 2))


def _falling_by_offsets(case: _Case) -> RuleResult:
    """5. Retention in bytes, or records deleted by hand: a beginning that moves once tells no pace."""
    moves = sum(1 for before, after in pairwise(case.seen) if after.earliest > before.earliest)
    if moves < 2 or not case.behind:
        return None
    margin, before = (each.position - each.earliest for each in (case.last, case.first))
    return _overtaken(case, margin, (before - margin) / case.span, case.limits.falling)


def _overtaken(case: _Case, margin: float, closing: float, soon: float) -> RuleResult:
    if case.limits.backed and (margin <= 0 or case.last.dropped):
        return None
    if margin <= 0:
        return LagVerdict.FALLING_OFF, "the log may drop what it has not read at any moment"
    if closing <= 0 or margin / closing >= soon:
        return None
    return LagVerdict.FALLING_OFF, f"the log drops what it has not read in {in_words(margin / closing)}"


def _stop(case: _Case) -> RuleResult:
    """6. Nothing runs."""
    if not _stands(case) or not _silent(case):
        return None
    return (
        LagVerdict.STOP,
        f"it has stood still for {in_words(case.stood)} or more, and its application makes no batches",
    )


def _stall(case: _Case) -> RuleResult:
    """7. It runs, and counts nothing."""
    if not _stands(case):
        return None
    return (
        LagVerdict.STALL,
        f"it has stood still for {in_words(case.stood)} or more, though its application makes batches",
    )


def _stands(case: _Case) -> bool:
    waits = case.last.events > 0 and case.last.seconds >= case.limits.still
    return waits and case.stood >= case.limits.still


def _silent(case: _Case) -> bool:
    return case.last.batch_at is None or case.last.at - case.last.batch_at >= case.limits.still


def _too_new(case: _Case) -> RuleResult:
    """8. A trend takes time."""
    if not case.behind or case.span >= RECENT / 2:
        return None
    return LagVerdict.UNKNOWN, f"it is {in_words(case.last.seconds)} behind, and watched for {in_words(case.span)} only"


def _underprovisioned(case: _Case) -> RuleResult:
    """9. More comes than it can count."""
    if not case.behind or case.span < 0.9 * case.limits.window or case.last.seconds <= case.first.seconds:
        return None
    marks = [case.seen[round(n * (len(case.seen) - 1) / 3)] for n in range(4)]
    if all(0 < after.position - before.position < after.end - before.end for before, after in pairwise(marks)):
        return LagVerdict.UNDERPROVISIONED, f"for {in_words(case.span)} it has counted less than came"
    return None


def _late(case: _Case) -> RuleResult:
    """10. Far behind is far behind."""
    usual = median(sample.seconds for sample in case.recent)
    return (LagVerdict.WARN, f"it is {in_words(usual)} behind") if usual >= case.limits.late else None


def _growing(case: _Case) -> RuleResult:
    """11. On its way there."""
    if not case.behind:
        return None
    middle = case.last.at - RECENT / 2
    earlier = [sample.seconds for sample in case.recent if sample.at < middle]
    later = median(sample.seconds for sample in case.recent if sample.at >= middle)
    if earlier and later >= case.limits.fine and later >= GROWTH * median(earlier):
        return LagVerdict.WARN, f"it falls behind: {in_words(median(earlier))} a minute ago, {in_words(later)} now"
    return None


def _ok(case: _Case) -> RuleResult:
    """12. Nothing is wrong."""
    if case.last.events == 0:
        return LagVerdict.OK, "it has read everything"
    return LagVerdict.OK, f"it is {in_words(case.last.seconds)} behind"


_RULES: tuple[Callable[[_Case], RuleResult], ...] = (
    _dropped,
    _rewind,
    _falling_by_time,
    _falling_by_offsets,
    _stop,
    _stall,
    _too_new,
    _underprovisioned,
    _late,
    _growing,
    _ok,
)


def _pace(case: _Case, where: Callable[[Sample], int]) -> float | None:
    """Records a second, of late."""
    first, last = case.recent[0], case.recent[-1]
    return (where(last) - where(first)) / (last.at - first.at) if last.at > first.at else None


def _caught_up_in(case: _Case, came: float | None, counted: float | None) -> float | None:
    if case.last.events == 0:
        return 0.0
    if came is None or counted is None or counted <= came:
        return None
    return case.last.events / (counted - came)
