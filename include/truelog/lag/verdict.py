"""The verdict on the lag of one reader in one partition: a pure function of its history and the current time.

A reader is a view or the archive. The first rule that applies decides:

1. UNKNOWN: there is no sample, the last sample is too old, or the last poll could not see the partition.
2. FALLING_OFF: the log has dropped records that the reader had not read, and there is no other copy.
3. REWIND: the reader has moved back from a position that it had reached, or is past the end of the log.
4. FALLING_OFF: at the pace measured in the window, retention will reach the reader in less than `falling` seconds. If
   there is only one sample, the reader counts as motionless. If half the retention is shorter than `falling`, half the
   retention is the limit.
5. FALLING_OFF: as in rule 4 but measured in offsets, if the beginning of the log moved at least twice in the window.
6. STOP: for `still` seconds the reader had records to read but did not move, and its application finished no batch.
   Records that an open transaction hides do not count, because no reader of committed records gets them.
7. STALL: as in rule 6, but the application did finish batches.
8. UNKNOWN: the reader is behind, but the history is too short to show a trend.
9. UNDERPROVISIONED: in each third of a full window, the reader moved but read fewer records than arrived.
10. WARN: the median lag of the last two minutes is `late` seconds or more, whether or not the lag is growing.
11. WARN: the lag is growing. Its median in the last minute is at least a fifth above its median in the previous minute.
12. OK.

Rules 4, 5, 8, 9 and 11 apply only to readers that are at least `fine` seconds behind. Once the beginning of the log has
passed a `backed` reader, that reader continues from the archive, so rules 2, 4 and 5 do not apply. Medians prevent one
good sample from hiding a problem. No rule depends on whether a reader commits: a reader that has no new records to read
is OK, however long ago it last moved. If a topic was deleted and re-created, the history starts with the new topic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise, takewhile
from statistics import median

from truelog.support.durations import in_words

WINDOW = 600.0  # minimum length of the history in seconds
UNKNOWN_RULE = 1  # there is no current sample
RECENT = 120.0  # seconds over which a trend is measured
GROWTH = 1.2  # minimum ratio of the second half's median lag to the first half's median lag


class LagVerdict(StrEnum):
    """The verdicts, ordered from harmless to severe."""

    OK = "OK"
    WARN = "WARN"
    UNDERPROVISIONED = "UNDERPROVISIONED"
    UNKNOWN = "UNKNOWN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    FALLING_OFF = "FALLING_OFF"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one poll found for one reader in one partition. Times are seconds since 1970."""

    at: float
    position: int = 0
    earliest: int = 0
    end: int = 0
    seconds: float = 0.0  # age of the first unread record, by the broker's clock
    batch_at: float | None = None  # when the application last finished a batch
    retention: float | None = None  # seconds for which the log retains a record; None if there is no time limit
    topic_id: str = ""  # a re-created topic has a new id
    blind: str = ""  # why the poll could not see the partition; offsets and seconds are then meaningless
    cut_at: int | None = None  # where the log was cut below the position; new records have reused the offsets since
    committed_end: int | None = None  # an open transaction hides the records from here to the end; None if unknown

    @property
    def events(self) -> int:
        return max(0, self.end - self.position)

    @property
    def hidden(self) -> bool:
        """Whether an open transaction hides all unread records from the reader."""
        return self.committed_end is not None and self.committed_end <= self.position < self.end

    @property
    def dropped(self) -> int:
        """Records that retention deleted before the reader read them."""
        return max(0, min(self.earliest, self.end) - self.position)


@dataclass(frozen=True)
class Limits:
    """A reader's limits in seconds, and whether the reader can fall back on the archive."""

    blind: float = 30.0
    fine: float = 10.0
    late: float = 60.0
    still: float = 120.0
    falling: float = 6 * 3600.0
    backed: bool = False  # the reader can read dropped records from the archive

    @property
    def window(self) -> float:
        """The length of the history, which is long enough to show that a reader is not moving."""
        return max(WINDOW, 2 * self.still)


@dataclass(frozen=True)
class LagAssessment:
    """The verdict, the deciding rule and the reason. The rates are in records per second."""

    verdict: LagVerdict
    rule: int
    reason: str
    rate_in: float | None = None
    rate_counted: float | None = None
    caught_up_in: float | None = None  # seconds; None if the reader is not catching up with the log


@dataclass(frozen=True)
class _Case:
    """The samples within the window, newest last."""

    samples: Sequence[Sample]
    limits: Limits

    @property
    def first(self) -> Sample:
        return self.samples[0]

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def span(self) -> float:
        return self.last.at - self.first.at

    @property
    def behind(self) -> bool:
        return self.last.events > 0 and self.last.seconds >= self.limits.fine

    @cached_property
    def recent(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.at >= self.last.at - RECENT]

    @property
    def motionless(self) -> float:
        """How long the reader has been at its last position with records that it could read, in seconds."""
        here = self.last.position
        still = takewhile(lambda each: each.position == here and not each.hidden, reversed(self.samples))
        return max((self.last.at - each.at for each in still), default=0.0)

    @property
    def hidden(self) -> str:
        """Says what hides all unread records from the reader, or is empty."""
        if not self.last.hidden:
            return ""
        return f": an open transaction hides the records from offset {self.last.committed_end:,} on"


RuleResult = tuple[LagVerdict, str] | None


def assess(history: Sequence[Sample], now: float, limits: Limits) -> LagAssessment:
    """Return the verdict on a history that is in chronological order."""
    if blind := blindness(history[-1] if history else None, now, limits):
        return LagAssessment(LagVerdict.UNKNOWN, UNKNOWN_RULE, blind)
    window = history[-1].at - limits.window
    case = _Case([each for each in history if each.at >= window and _is_same_topic(each, history[-1])], limits)
    rate_in, rate_counted = _rate(case, lambda each: each.end), _rate(case, lambda each: each.position)
    caught_up_in = _caught_up_in(case, rate_in, rate_counted)
    for number, rule in enumerate(_RULES, 2):
        if result := rule(case):
            verdict, reason = result
            return LagAssessment(verdict, number, reason, rate_in, rate_counted, caught_up_in)
    raise AssertionError("the last rule applies to every case")


def _is_same_topic(sample: Sample, last: Sample) -> bool:
    """Whether a sample describes the current topic. Samples from a deleted topic say nothing about its replacement."""
    return not sample.blind and sample.topic_id == last.topic_id


def blindness(last: Sample | None, now: float, limits: Limits) -> str:
    """1. Why there is no current sample, or an empty string if there is one. `last` is the last sample."""
    if last is None:
        return "the lag service has no sample"
    if now - last.at > limits.blind:
        return f"the lag service's last sample is {in_words(now - last.at)} old"
    return last.blind


def _dropped(case: _Case) -> RuleResult:
    """2. The log has dropped unread records."""
    lost = 0 if case.limits.backed else case.last.dropped
    return (LagVerdict.FALLING_OFF, f"the log dropped {lost:,} records before they were read") if lost else None


def _rewind(case: _Case) -> RuleResult:
    """3. The position has moved back, is past the end of the log, or is past a place where the log was cut."""
    peak = max(sample.position for sample in case.samples)
    if case.last.position < peak:
        return LagVerdict.REWIND, f"it moved back from {peak:,} to {case.last.position:,}"
    if case.last.cut_at is not None:
        return LagVerdict.REWIND, f"the log lost its records from {case.last.cut_at:,} on, before its position"
    if case.last.position > case.last.end:
        return LagVerdict.REWIND, f"the log ends at {case.last.end:,}, before its position {case.last.position:,}"
    return None


def _falling_by_time(case: _Case) -> RuleResult:
    """4. Retention by time will soon reach the reader."""
    retention = case.last.retention
    if retention is None or not case.behind:
        return None
    margin = retention - case.last.seconds
    closing = 1.0 if case.span == 0 else (case.last.seconds - case.first.seconds) / case.span
    return _overtaken(case, margin, closing, min(case.limits.falling, retention / 2))


def _falling_by_offsets(case: _Case) -> RuleResult:
    """5. Retention by size, or deletion by hand, will soon reach the reader. A single move shows no pace."""
    moves = sum(1 for before, after in pairwise(case.samples) if after.earliest > before.earliest)
    if moves < 2 or not case.behind:
        return None
    margin, before = (each.position - each.earliest for each in (case.last, case.first))
    return _overtaken(case, margin, (before - margin) / case.span, case.limits.falling)


def _overtaken(case: _Case, margin: float, closing: float, limit: float) -> RuleResult:
    if case.limits.backed and (margin <= 0 or case.last.dropped):
        return None
    if margin <= 0:
        return LagVerdict.FALLING_OFF, "the log may drop unread records at any moment"
    if closing <= 0 or margin / closing >= limit:
        return None
    return LagVerdict.FALLING_OFF, f"the log will drop unread records in {in_words(margin / closing)}"


def _stop(case: _Case) -> RuleResult:
    """6. The reader is not moving, and its application is finishing no batches."""
    if not _is_motionless(case) or not _makes_no_batches(case):
        return None
    return (
        LagVerdict.STOP,
        f"it has not moved for {in_words(case.motionless)} or more, and its application is finishing no batches",
    )


def _stall(case: _Case) -> RuleResult:
    """7. The application is finishing batches, but the reader is not moving."""
    if not _is_motionless(case):
        return None
    return (
        LagVerdict.STALL,
        f"it has not moved for {in_words(case.motionless)} or more, although its application is finishing batches",
    )


def _is_motionless(case: _Case) -> bool:
    has_unread = case.last.events > 0 and case.last.seconds >= case.limits.still
    return has_unread and case.motionless >= case.limits.still


def _makes_no_batches(case: _Case) -> bool:
    return case.last.batch_at is None or case.last.at - case.last.batch_at >= case.limits.still


def _too_new(case: _Case) -> RuleResult:
    """8. The history is too short for a trend."""
    if not case.behind or case.span >= RECENT / 2:
        return None
    return (
        LagVerdict.UNKNOWN,
        f"it is {in_words(case.last.seconds)} behind, with a history of only {in_words(case.span)}",
    )


def _underprovisioned(case: _Case) -> RuleResult:
    """9. Records are arriving faster than the reader can read them."""
    if not case.behind or case.span < 0.9 * case.limits.window or case.last.seconds <= case.first.seconds:
        return None
    marks = [case.samples[round(n * (len(case.samples) - 1) / 3)] for n in range(4)]
    if all(0 < after.position - before.position < after.end - before.end for before, after in pairwise(marks)):
        return LagVerdict.UNDERPROVISIONED, f"for {in_words(case.span)} it has read fewer records than arrived"
    return None


def _late(case: _Case) -> RuleResult:
    """10. The reader is far behind, whether or not the lag is growing."""
    typical = median(sample.seconds for sample in case.recent)
    return (LagVerdict.WARN, f"it is {in_words(typical)} behind{case.hidden}") if typical >= case.limits.late else None


def _growing(case: _Case) -> RuleResult:
    """11. The lag is growing."""
    if not case.behind:
        return None
    middle = case.last.at - RECENT / 2
    earlier = [sample.seconds for sample in case.recent if sample.at < middle]
    later = median(sample.seconds for sample in case.recent if sample.at >= middle)
    if earlier and later >= case.limits.fine and later >= GROWTH * median(earlier):
        growth = f"its lag is growing: {in_words(median(earlier))} a minute ago, {in_words(later)} now"
        return LagVerdict.WARN, f"{growth}{case.hidden}"
    return None


def _ok(case: _Case) -> RuleResult:
    """12. There is no problem."""
    if case.last.events == 0:
        return LagVerdict.OK, "it has read everything"
    return LagVerdict.OK, f"it is {in_words(case.last.seconds)} behind{case.hidden}"


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


def _rate(case: _Case, offset: Callable[[Sample], int]) -> float | None:
    """The recent rate in records per second."""
    first, last = case.recent[0], case.recent[-1]
    return (offset(last) - offset(first)) / (last.at - first.at) if last.at > first.at else None


def _caught_up_in(case: _Case, rate_in: float | None, rate_counted: float | None) -> float | None:
    if case.last.events == 0:
        return 0.0
    if rate_in is None or rate_counted is None or rate_counted <= rate_in:
        return None
    return case.last.events / (rate_counted - rate_in)
