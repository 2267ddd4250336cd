"""A batch waits for its views in proportion to its records."""

from types import SimpleNamespace
from typing import Any

import pytest

from truelog.log.positions import Positions
from truelog.streaming.stream import Stream
from truelog.support.settings import Settings


@pytest.mark.parametrize(("records", "times"), [(0, 1), (100_000, 1), (250_000, 2.5), (500_000, 5)])
def test_a_large_batch_waits_longer(settings: Settings, records: int, times: float) -> None:
    stream: Any = SimpleNamespace(settings=settings)
    begin, end = (Positions({"a": {0: 7, 1: 5 + more // 2}, "b": {0: more - more // 2}}) for more in (0, records))
    assert Stream._grace(stream, begin, end) == times * settings.batch_grace_seconds
