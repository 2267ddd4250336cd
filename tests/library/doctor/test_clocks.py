"""A clock is compared with the time between the question and the answer."""

from datetime import UTC, datetime, timedelta

import pytest

from truelog.doctor.clocks import clock
from truelog.doctor.machine import MACHINE
from truelog.doctor.result import Outcome

BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
AFTER = BEFORE + timedelta(seconds=3)


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [
        (-3, Outcome.WARNING),
        (-2, Outcome.FINE),
        (0, Outcome.FINE),
        (3, Outcome.FINE),
        (5, Outcome.FINE),
        (6, Outcome.WARNING),
    ],
)
def test_a_slow_answer_is_not_a_wrong_clock(seconds: int, outcome: Outcome) -> None:
    theirs = BEFORE + timedelta(seconds=seconds)
    assert clock(MACHINE, theirs, BEFORE, AFTER, timedelta(seconds=2)).outcome is outcome
