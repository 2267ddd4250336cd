"""A view that reads behind the batches takes part in them again, in bounded time, where it is faster than its input.

The stream and one view of it, in a model whose time is counted: batches begin one after the other, and a portion that
the view reads by itself costs a fixed time, for its look at the log, and a time for each record.
"""

from dataclasses import dataclass, field

import pytest

from truelog.log.positions import Positions
from truelog.streaming.view_worker import is_nearly_caught_up
from truelog.support.settings import Settings

INPUT = 1_000.0  # records a second
BATCH_SECONDS = 0.5  # that a batch takes which waits for nobody
PORTION, GRACE = 100_000, 5.0


def at(records: float) -> Positions:
    return Positions({"t": {0: int(records)}})


@dataclass
class View:
    """Reads [stands, until) by itself until `done_at`."""

    rate: float  # records a second
    fixed: float  # seconds a portion
    stands: float
    until: float = 0.0
    done_at: float = 0.0
    took: float = float("inf")
    waited_for: list[float] = field(default_factory=list)

    def begin(self, now: float, end: float) -> None:
        self.until = min(self.stands + PORTION, end)
        self.done_at = now + self.fixed + (self.until - self.stands) / self.rate

    def read(self, now: float, end: float) -> bool:
        """Portion by portion until then; whether it stands at the end, and takes part in the next batch."""
        while self.done_at <= now:
            self.took = self.fixed + (self.until - self.stands) / self.rate
            self.stands = self.until
            if self.stands >= end:
                return True
            self.begin(self.done_at, end)
        return False


def rejoins_after(settings: Settings, view: View, *, seconds: float, waiting: bool = True) -> float | None:
    """When it takes part again; the log is as long as the view is behind, and grows."""
    behind, now = 1_000_000.0, 0.0
    view.begin(now, behind)
    while now < seconds:
        end = behind + INPUT * now
        near = waiting and is_nearly_caught_up(settings, at(view.stands), at(end), view.took)
        if near:
            view.waited_for.append(now)
        until = now + (GRACE if near else BATCH_SECONDS)
        if view.read(until, end):
            return max(view.done_at, now + BATCH_SECONDS)
        now = until
    return None


@pytest.fixture
def rule(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_offsets_per_trigger": PORTION, "batch_grace_seconds": GRACE})


@pytest.mark.parametrize("times", [1.1, 1.5, 2.0, 5.0, 20.0])
@pytest.mark.parametrize("fixed", [0.4, 1.0, 1.5])
def test_a_view_faster_than_its_input_takes_part_again(rule: Settings, fixed: float, times: float) -> None:
    """Soon after it has read what it was behind; the batches wait for it a few times, and not before it is near.

    That holds where the portions which it reads in the end, each as long as the one before brought records, are
    shorter than a batch waits. Where they are longer, waiting would not help, and nobody waits.
    """
    view = View(rate=times * INPUT, fixed=fixed, stands=0.0)
    sustained = PORTION / (fixed + PORTION / view.rate)  # records a second, looks at the log included
    needed = 1_000_000 / (sustained - INPUT)
    found = rejoins_after(rule, view, seconds=5 * needed)
    if fixed / (1 - 1 / times) < GRACE:
        assert found is not None
        assert found <= 1.2 * needed + 10 * GRACE
        assert 1 <= len(view.waited_for) <= 15
    else:
        assert (found, view.waited_for) == (None, [])


def test_without_the_wait_it_would_read_behind_the_batches_for_ever(rule: Settings) -> None:
    """Twenty times as fast as its input: each look at the log takes longer than a batch."""
    view = View(rate=20 * INPUT, fixed=0.6, stands=0.0)
    assert rejoins_after(rule, view, seconds=3_600, waiting=False) is None
    assert view.stands > 1_000_000 + 3_590 * INPUT


def test_nobody_waits_for_a_view_whose_every_step_is_slow(rule: Settings) -> None:
    view = View(rate=20 * INPUT, fixed=10.0, stands=0.0)
    rejoins_after(rule, view, seconds=3_600)
    assert view.waited_for == []
