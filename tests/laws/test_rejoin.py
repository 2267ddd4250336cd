"""The decision to wait for a view lets a view that is faster than its input rejoin the batches in bounded time.

A real `Progress` decides whether a batch waits, and how large a portion is. The tests model everything else, in
simulated time: batches follow one another without a pause, and a portion that the view reads on its own takes a fixed
time for the log query, plus a time for each record. `tests/scenes/test_defective_stream.py` runs a real stream with a
slow view, which rejoins.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from truelog.log.positions import Positions
from truelog.log.records import RECORDS_PER_TASK
from truelog.streaming.view_task import Progress
from truelog.support.settings import Settings

INPUT = 1_000.0  # records per second
BATCH_SECONDS = 0.5  # duration of a batch that waits for no view
PORTION, GRACE, HANG = 100_000, 5.0, 90.0


def at(records: float) -> Positions:
    return Positions({"t": {0: int(records)}})


@dataclass
class View:
    """Reads [offset, until) on its own until `done_at`."""

    rate: float  # records per second
    fixed: float  # seconds per portion
    offset: float
    until: float = 0.0
    done_at: float = 0.0
    progress: Progress = field(default_factory=Progress)
    waited_for: list[float] = field(default_factory=list)
    longest: float = 0.0  # of its portions, in seconds, after the first

    def is_waited_for(self, settings: Settings, end: float) -> bool:
        """Whether the batch that reaches `end` waits for this view, which is reading a portion."""
        return replace(self.progress, positions=at(self.offset)).is_nearly_at(at(end), settings)

    def begin(self, settings: Settings, now: float, end: float) -> None:
        self.until = self.progress.portion_to(at(self.offset), at(end), settings).at("t", 0)
        self.done_at = now + self.took

    @property
    def took(self) -> float:
        return self.fixed + (self.until - self.offset) / self.rate

    def read(self, settings: Settings, now: float, end: float) -> bool:
        """Read portion by portion until `now`. Return whether the view has caught up and joins the next batch."""
        while self.done_at <= now:
            self.longest = max(self.longest, self.took if self.offset else 0.0)
            began = datetime.now(UTC) - timedelta(seconds=self.took)
            step = Progress(None, at(self.offset), pace=self.progress.pace, step_began=began)
            self.offset, self.progress = self.until, step.after_step(cast(Any, None), at(self.until))
            if self.offset >= int(end):
                return True
            self.begin(settings, self.done_at, end)
        return False


def rejoins_after(settings: Settings, view: View, *, seconds: float, waiting: bool = True) -> float | None:
    """The time when the view rejoins the batches. The log grows, and the view starts at the log's beginning."""
    behind, now = 1_000_000.0, 0.0
    view.begin(settings, now, behind)
    while now < seconds:
        end = behind + INPUT * now
        near = waiting and view.is_waited_for(settings, end)
        if near:
            view.waited_for.append(now)
        until = now + (GRACE if near else BATCH_SECONDS)
        if view.read(settings, until, end):
            return max(view.done_at, now + BATCH_SECONDS)
        now = until
    return None


@pytest.fixture
def rule(settings: Settings) -> Settings:
    limits = {"max_offsets_per_trigger": PORTION, "batch_grace_seconds": GRACE, "hang_seconds": HANG}
    return settings.model_copy(update=limits)


@pytest.mark.parametrize("times", [1.1, 1.5, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("fixed", [0.4, 1.0, 1.5])
def test_a_view_faster_than_its_input_joins_the_batches_again(rule: Settings, fixed: float, times: float) -> None:
    """The view rejoins soon after it has caught up. Batches wait a few times, and only for a view close to the end.

    This applies if the view's last portions take less time than a batch waits. Each portion contains the records that
    arrived during the previous portion. If the portions take longer, waiting would not help, so no batch waits.
    """
    view = View(rate=times * INPUT, fixed=fixed, offset=0.0)
    portion = min(PORTION, max(view.rate * (HANG / 3 - fixed), RECORDS_PER_TASK))
    sustained = portion / (fixed + portion / view.rate)  # records per second, including log queries
    needed = 1_000_000 / (sustained - INPUT)
    found = rejoins_after(rule, view, seconds=5 * needed)
    if fixed / (1 - 1 / times) < GRACE:
        assert found is not None
        assert found <= 1.2 * needed + 10 * GRACE
        assert 1 <= len(view.waited_for) <= 15
    else:
        assert (found, view.waited_for) == (None, [])


def test_without_the_wait_it_would_never_join_the_batches(rule: Settings) -> None:
    """The view is twenty times as fast as its input, but each log query takes longer than a batch."""
    view = View(rate=20 * INPUT, fixed=0.6, offset=0.0)
    assert rejoins_after(rule, view, seconds=3_600, waiting=False) is None
    assert view.offset > 1_000_000 + 3_590 * INPUT


def test_no_batch_waits_for_a_view_whose_every_step_is_slow(rule: Settings) -> None:
    view = View(rate=20 * INPUT, fixed=10.0, offset=0.0)
    rejoins_after(rule, view, seconds=3_600)
    assert view.waited_for == []


@pytest.mark.parametrize("rate", [300.0, 700.0, 2_000.0])
def test_a_slow_view_is_not_reported_as_hanging_because_it_has_much_to_read(rule: Settings, rate: float) -> None:
    """Its first portion may be large, because nothing is known about it. A later one takes a third of a hang."""
    view = View(rate=rate, fixed=1.0, offset=0.0)
    rejoins_after(rule, view, seconds=3_600)
    assert 0 < view.longest <= max(HANG / 3, 1.0 + RECORDS_PER_TASK / rate) + 1.0
