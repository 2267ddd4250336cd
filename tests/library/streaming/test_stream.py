"""A batch waits for its views in proportion to its records."""

from concurrent.futures import Future
from contextlib import ExitStack
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from tests.deadline import deadline
from truelog.log.positions import Positions
from truelog.streaming.stream import Stream
from truelog.support.settings import Settings


@pytest.mark.parametrize(("records", "times"), [(0, 1), (100_000, 1), (250_000, 2.5), (500_000, 5)])
def test_a_large_batch_waits_longer(settings: Settings, records: int, times: float) -> None:
    stream: Any = SimpleNamespace(settings=settings)
    begin, end = (Positions({"a": {0: 7, 1: 5 + more // 2}, "b": {0: more - more // 2}}) for more in (0, records))
    assert Stream._grace(stream, begin, end) == times * settings.batch_grace_seconds


def test_the_files_of_a_batch_that_fails_stay_until_its_late_views_have_ended() -> None:
    """A late view would otherwise fail, although the log still has the records."""
    closed, late = Event(), Future[None]()

    def write(kept: ExitStack, *_: object) -> None:
        kept.callback(closed.set)

    files = SimpleNamespace(are_for=lambda _: True, write=write, frames=lambda _: {})
    view = SimpleNamespace(compiled=SimpleNamespace(view=SimpleNamespace(reads=("a",)), columns={}, scans=1))
    stream: Any = SimpleNamespace(workers=[view], types={"a": None}, batch_files=files)

    def fail() -> None:
        with Stream._decoded(stream, Positions({"a": {0: 1}}), Positions({"a": {0: 2}})) as (_, tasks, _):
            tasks.append(late)
            raise OSError("the database is gone")

    with pytest.raises(OSError, match="the database is gone"):
        fail()
    assert not closed.is_set()
    late.set_result(None)
    assert closed.wait(deadline(10))
