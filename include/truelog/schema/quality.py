"""Quality: the expected metrics of an event type's log days, declared next to the event as `QUALITY = Quality(…)`.

An event type without a declaration uses the default bounds. The usual value of a metric is the median of the preceding
seven log days, so one unusual day has no effect. A metric that cannot be checked yet is reported as not checked, never
as passed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration

EVENTS, KEYS, LATE, MALFORMED = "events", "keys", "late", "malformed"
MISSING = "missing "  # and the field's name
HISTORY = 7  # preceding log days from which the usual value is computed
_ENOUGH = 3  # preceding log days that a usual value needs, because the first of them is rarely complete

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Quality:
    """The bounds of a log day's metrics.

    `volume` and `keys` bound the number of events and the number of distinct keys, as multiples of their usual values.
    `nulls` maps a field or a derived column to the largest share of events in which it may be NULL. For other columns,
    `drift` is the largest increase in that share over its usual value. `late` is the largest share of events that may
    arrive more than `lateness` after they happened. `malformed` is the largest share of invalid records.
    """

    volume: Bounds = (0.5, 2.0)
    keys: Bounds = (0.5, 2.0)
    nulls: Mapping[str, float] = field(default_factory=dict, hash=False)
    drift: float = 0.2
    late: float = 0.05
    lateness: str = "1 hour"
    malformed: float = 0.05

    @property
    def lateness_seconds(self) -> int:
        return seconds(self.lateness)

    def require_valid(self, name: str, nullable: Collection[str]) -> None:
        """Reject bounds that no log day, or every log day, would meet. `nullable` has the columns that may be NULL.

        Raises:
            BadDeclaration: a bound is invalid. The message says which bound.
        """
        unknown = set(self.nulls) - {*nullable}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise BadDeclaration(f"{name}: `nulls` may only list optional fields and derived columns, not {names}.")
        for least, most in (self.volume, self.keys):
            if not 0 <= least <= most:
                raise BadDeclaration(f"{name}: no number is between {least} and {most} times the usual value.")
        for share in (*self.nulls.values(), self.drift, self.late, self.malformed):
            if not 0 <= share <= 1:
                raise BadDeclaration(f"{name}: {share} is not a share; use a number from 0 to 1.")
        if self.lateness_seconds < 1:
            raise BadDeclaration(f"{name}: a lateness of {self.lateness!r} is too short; use at least one second.")


DEFAULTS = Quality()  # for an event type without a declaration


@dataclass(frozen=True)
class QualityMetric:
    """A metric of a log day, with its usual value and its bounds. `unjudged` says why the metric was not checked."""

    name: str
    value: float | None
    usual: float | None = None
    least: float | None = None
    most: float | None = None
    unjudged: str = ""

    @property
    def observed(self) -> str:
        return self._text(self.value)

    @property
    def description(self) -> str:
        """The metric and its bounds as text."""
        if self.unjudged:
            return f"{self.name} {self.observed}: not checked, {self.unjudged}"
        bounds = [f"at least {self._text(self.least)}"] if self.least else []
        bounds += [f"at most {self._text(self.most)}"] if self.most is not None else []
        usual = "" if self.usual is None else f", usually {self._text(self.usual)}"
        return f"{self.name} {self.observed}: {' and '.join(bounds)}{usual}"

    def _text(self, number: float | None) -> str:
        """A count as a number, and a share as a percentage."""
        if number is None:
            return "unknown"
        if self.name in (EVENTS, KEYS):
            return f"{number:,.0f}" if number >= 1 else f"{number:.3g}"
        return f"{100 * number:.3g} %"


def quality_metric(quality: Quality, name: str, value: float | None, before: Sequence[float]) -> QualityMetric:
    """The metric with its bounds. `before` contains its known values on the preceding log days."""
    usual = median(before) if len(before) >= _ENOUGH else None
    if value is None:
        return QualityMetric(name, None, usual, unjudged="the day has no events to compute it from")
    if (limit := _declared_limit(quality, name)) is not None:
        return QualityMetric(name, value, usual, most=limit)
    if usual is None:
        reason = f"not enough history: {len(before)} preceding log days, {_ENOUGH} needed"
        return QualityMetric(name, value, unjudged=reason)
    if name.startswith(MISSING):
        return QualityMetric(name, value, usual, most=min(1.0, usual + quality.drift))
    if not usual:
        return QualityMetric(name, value, usual, unjudged="usually there are none")
    least, most = quality.volume if name == EVENTS else quality.keys
    return QualityMetric(name, value, usual, least * usual, most * usual)


def _declared_limit(quality: Quality, name: str) -> float | None:
    """The declared maximum of a metric, which needs no history."""
    known = {LATE: quality.late, MALFORMED: quality.malformed}
    return known.get(name, quality.nulls.get(name.removeprefix(MISSING)))
