"""Each key has its own limit of dead letters."""

import pytest

from truelog.limits.dead_letters import DeadLetterLimit
from truelog.support.errors import RequestRefused


def test_dead_letters_are_limited_for_each_key() -> None:
    now = 0.0
    limit = DeadLetterLimit(rate=2.0, burst=10, clock=lambda: now)
    limit.take("flood", 10)
    with pytest.raises(RequestRefused) as raised:
        limit.take("flood", 5)
    assert (raised.value.status, raised.value.retry_after) == (429, 3)  # 2.5 s, rounded up
    limit.take("flood", 0)  # events without a defect always pass
    limit.take("other", 10)
    now = 2.4
    with pytest.raises(RequestRefused):
        limit.take("flood", 5)
    now = 2.5
    limit.take("flood", 5)
    now = 1000.0
    limit.take("flood", 10)
    with pytest.raises(RequestRefused):
        limit.take("flood", 1)
