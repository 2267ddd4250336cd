"""Quality: what a log day of an event type should be like, declared beside the event as `QUALITY = Quality(…)`.

An event type that declares nothing is judged by the defaults. What is usual is the median of the seven log days before,
so that one odd day changes nothing; what nobody can tell yet is said to be not judged, and never passes for good.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from truelog.schema.field import Field
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration

EVENTS, KEYS, LATE, MALFORMED = "events", "keys", "late", "malformed"
MISSING = "missing "  # and the field's name
HISTORY = 7  # log days before that are asked what is usual
_ENOUGH = 3  # of them: the first is hardly ever a whole one

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Quality:
    """The bounds of a log day's figures.

    `volume` and `keys`: how many events, and how many different values of the topic's key, as multiples of what is
    usual. `nulls`: at which share of events, at most, a field may be missing; one that is not named, at most `drift`
    more often than usual. `late`: the share of events that may come later than `lateness` after they happened.
    `malformed`: the share of records that may be no such event.
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

    def require_sound(self, name: str, fields: Iterable[Field]) -> None:
        """Refuse bounds that nothing, or everything, would lie within.

        Raises:
            BadDeclaration: with what is wrong.
        """
        missing = set(self.nulls) - {each.name for each in fields if not each.required}
        if missing:
            raise BadDeclaration(f"{name}: {', '.join(sorted(missing))} in `nulls` is no field that may be missing.")
        for least, most in (self.volume, self.keys):
            if not 0 <= least <= most:
                raise BadDeclaration(f"{name}: nothing lies between {least} and {most} times what is usual.")
        for share in (*self.nulls.values(), self.drift, self.late, self.malformed):
            if not 0 <= share <= 1:
                raise BadDeclaration(f"{name}: {share} is no share, which lies between 0 and 1.")
        if self.lateness_seconds < 1:
            raise BadDeclaration(f"{name}: a lateness of {self.lateness!r} is no time.")


DEFAULTS = Quality()  # of an event type that declares nothing


@dataclass(frozen=True)
class Figure:
    """A number about a log day, what it usually is, and what it should be; `unjudged` says why nobody can tell."""

    name: str
    value: float | None
    usual: float | None = None
    least: float | None = None
    most: float | None = None
    unjudged: str = ""

    @property
    def said(self) -> str:
        """With what it should be, for people."""
        if self.unjudged:
            return f"{self.name} {_written(self.value)}: not judged, {self.unjudged}"
        bounds = [f"at least {_written(self.least)}"] if self.least else []
        bounds += [f"at most {_written(self.most)}"] if self.most is not None else []
        usual = "" if self.usual is None else f", usually {_written(self.usual)}"
        return f"{self.name} {_written(self.value)}: {' and '.join(bounds)}{usual}"


def figure(quality: Quality, name: str, value: float | None, before: Sequence[float]) -> Figure:
    """The number with its bounds, given what it was on the log days before that have it."""
    usual = median(before) if len(before) >= _ENOUGH else None
    if value is None:
        return Figure(name, None, usual, unjudged="there was nothing to tell it by")
    if (limit := _limit(quality, name)) is not None:
        return Figure(name, value, usual, most=limit)
    if usual is None:
        return Figure(name, value, unjudged=f"no history yet: {len(before)} log days before, and it takes {_ENOUGH}")
    if name.startswith(MISSING):
        return Figure(name, value, usual, most=min(1.0, usual + quality.drift))
    if not usual:
        return Figure(name, value, usual, unjudged="usually there are none")
    least, most = quality.volume if name == EVENTS else quality.keys
    return Figure(name, value, usual, least * usual, most * usual)


def _limit(quality: Quality, name: str) -> float | None:
    """The declared one, which asks for no history."""
    known = {LATE: quality.late, MALFORMED: quality.malformed}
    return known.get(name, quality.nulls.get(name.removeprefix(MISSING)))


def _written(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,.4g}" if abs(number) < 1 else f"{number:,.0f}"
