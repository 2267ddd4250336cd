"""A question about a cube: which rows count, what to break them down by, and how long the steps of the plot are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from truelog.exports.query import Condition
from truelog.support.errors import BadInput

LONGEST = timedelta(days=400)
_POINTS = 120
_STEPS = (60, 300, 900, 3_600, 10_800, 21_600, 86_400)  # seconds


@dataclass(frozen=True)
class Question:
    """What to show of the rows whose time is from `since` to before `until`. Without `by`, only the total."""

    since: datetime
    until: datetime
    where: Sequence[Condition] = ()
    by: str | None = None
    order: str | None = None  # the figure that sorts values and that the plot shows; by default the first
    limit: int = 50

    def __post_init__(self) -> None:
        if not timedelta() < self.until - self.since <= LONGEST:
            raise BadInput(f"the time range must end after its begin, and have at most {LONGEST.days} days")

    @property
    def span(self) -> timedelta:
        return self.until - self.since

    @property
    def step(self) -> int:
        """The seconds of a step, unless the rows have longer intervals."""
        return next((each for each in _STEPS if self.span.total_seconds() / each <= _POINTS), _STEPS[-1])
