"""How long a batch waits for its views, how long its files stay, and how long the log grows after it."""

import time
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.deadline import deadline
from truelog.kernel.apply_batch import EventRange
from truelog.kernel.log_guard import LogGuard
from truelog.log import records
from truelog.log.positions import Positions
from truelog.streaming import stream
from truelog.streaming.recent_batches import RecentBatches
from truelog.streaming.stream import Stream, rest_after, wait_for_views
from truelog.support.settings import Settings
from truelog.tables.staging.event_files import EventFiles


@pytest.mark.parametrize(("records", "times"), [(0, 1), (100_000, 1), (250_000, 2.5), (500_000, 5)])
def test_a_large_batch_waits_longer(settings: Settings, records: int, times: float) -> None:
    stream: Any = SimpleNamespace(settings=settings)
    begin, end = (Positions({"a": {0: 7, 1: 5 + more // 2}, "b": {0: more - more // 2}}) for more in (0, records))
    assert Stream._grace(stream, begin, end) == times * settings.batch_grace_seconds


def finished(after: float) -> "Future[None]":
    future = Future[None]()
    Timer(after, future.set_result, (None,)).start()
    return future


def waited(tasks: "Collection[Future[None]]", most_busy: int, grace: float, most_seconds: float) -> float:
    began = time.monotonic()
    wait_for_views(tasks, most_busy, grace, most_seconds)
    return time.monotonic() - began


def test_a_batch_ends_when_all_its_views_are_done() -> None:
    done = [finished(0), finished(0.1)]
    assert waited(done, 1, deadline(60), 0.0) < deadline(60)
    assert all(each.done() for each in done)
    assert waited((), 1, deadline(60), deadline(60)) < deadline(60)


def test_one_slow_view_of_three_delays_the_others_by_the_grace_only() -> None:
    hanging, first, second = Future[None](), finished(0), finished(0)
    assert 0.5 <= waited([hanging, first, second], 1, 0.5, deadline(60)) < deadline(60)
    assert not hanging.done()


def test_a_large_batch_waits_as_long_again_as_most_of_its_views_needed() -> None:
    """Two of four views need longer than the grace, and the third one ends soon after them."""
    first, second, third, hanging = finished(1), finished(1), Future[None](), Future[None]()
    second.add_done_callback(lambda _: Timer(0.05, third.set_result, (None,)).start())
    assert 2 <= waited([first, second, third, hanging], 2, 0.1, deadline(60)) < deadline(60)
    assert all(each.done() for each in (first, second, third))
    assert not hanging.done()


@pytest.mark.parametrize(("grace", "most", "least"), [(0.2, 0.0, 0.2), (0.1, 0.5, 0.5), (0.5, 0.1, 0.5)])
def test_views_that_all_hang_end_no_wait(grace: float, most: float, least: float) -> None:
    """Without `most`, as for a small batch, it lasts the grace."""
    assert least <= waited([Future[None](), Future[None]()], 1, grace, most) < deadline(60)


def test_a_batch_waits_for_most_views_only_if_its_records_would_be_decoded_again(settings: Settings) -> None:
    """Late views share the files of a small batch, and a batch of ticks has no events."""
    stream: Any = SimpleNamespace(settings=settings)
    begin, end = Positions({"a": {0: 1}}), Positions({"a": {0: 2}})
    large = EventRange({"a": mock.Mock()}, begin, end)
    assert Stream._most_wait(stream, large) == settings.hang_seconds / 2
    assert Stream._most_wait(stream, replace(large, files=EventFiles(Path(), {}, frozenset()))) == 0.0
    assert Stream._most_wait(stream, EventRange({}, begin, end)) == 0.0


@pytest.mark.parametrize("is_large", [True, False])
def test_an_application_waits_for_most_views_of_a_large_batch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Both views need longer than the grace. A small batch ends while they work."""
    begin, end = Positions({"a": {0: 1}}), Positions({"a": {0: 2}})
    batch = EventRange({"a": mock.Mock()}, begin, end, files=None if is_large else EventFiles(Path(), {}, frozenset()))
    tasks = [Future[None](), Future[None]()]
    view = SimpleNamespace(compiled=SimpleNamespace(view=SimpleNamespace(reads_clock=False)), future=None)
    view.soon_free = lambda _: False
    application: Any = object.__new__(Stream)
    limits = {"batch_grace_seconds": 0.05, "stream_rest_seconds": 0.0, "hang_seconds": deadline(120)}
    application.settings, application.stop = settings.model_copy(update=limits), Event()
    application.checkpoint, application.begin, application.types, application.workers = Path(), begin, {}, [view, view]
    for name in ("stream_topics", "connection", "applier", "runs", "patience", "_outlasting"):
        setattr(application, name, mock.Mock())
    application._decoded, application._offer = lambda *_: nullcontext((batch, [])), lambda _: tasks
    monkeypatch.setattr(stream, "batch_range", lambda *_: (begin, end))
    if is_large:
        for each in tasks:
            Timer(1, each.set_result, (None,)).start()
    application._on_batch(0)
    assert [each.done() for each in tasks] == [is_large, is_large]


def test_no_batch_can_come_before_the_beginning_is_offered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view would otherwise forget the batch, and a quiet log has no other one."""
    steps, started = list[str](), mock.MagicMock()
    trigger = started.writeStream.foreachBatch.return_value.option.return_value.trigger
    trigger.return_value.start.side_effect = lambda: steps.append("query")
    monkeypatch.setattr(records, "read_stream", lambda *_: started)
    stream: Any = SimpleNamespace(settings=settings, spark=None, application="quiet", topics=("a",), begin=Positions())
    stream.stop, stream._offer = Event(), lambda batch: steps.append(f"offer {batch.begin == batch.end}")
    Stream._follow(stream, mock.Mock())
    assert steps == ["offer True", "query"]


def test_the_files_of_a_batch_that_fails_stay_until_its_late_views_have_ended() -> None:
    """A late view would otherwise fail, although the log still has the records."""
    closed, late = Event(), Future[None]()

    def write(kept: ExitStack, *_: object) -> EventFiles:
        kept.callback(closed.set)
        return EventFiles(Path(), {}, frozenset())

    files = SimpleNamespace(are_for=lambda _: True, write=write, frames=lambda _: {})
    view = SimpleNamespace(compiled=SimpleNamespace(view=SimpleNamespace(reads=("a",)), columns={}, scans=1))
    recent = RecentBatches()
    portions = SimpleNamespace(recent=recent)
    applier = SimpleNamespace(guard=LogGuard())
    stream: Any = SimpleNamespace(workers=[view], types={}, batch_files=files, portions=portions, applier=applier)
    stream.types = {"a": SimpleNamespace(name="a", reading=0)}

    def fail() -> None:
        begin, end = Positions({"a": {0: 1}}), Positions({"a": {0: 2}})
        with Stream._decoded(stream, begin, end, None) as (_, tasks):
            tasks.append(late)
            raise OSError("the database is gone")

    with pytest.raises(OSError, match="the database is gone"):
        fail()
    recent.forget()
    assert not closed.is_set()
    late.set_result(None)
    assert closed.wait(deadline(10))


@pytest.mark.parametrize(("worked", "rest"), [(0.1, 0.1), (0.5, 0.5), (3.0, 0.5)])
def test_after_a_small_batch_the_log_grows_for_as_long_as_the_batch_took(
    settings: Settings, worked: float, rest: float
) -> None:
    """At most for as long as the setting says. After any other batch, the application goes on at once."""
    files = EventFiles(Path(), {}, frozenset())
    begin, end = Positions({"a": {0: 1}}), Positions({"a": {0: 2}})
    assert rest_after(settings, EventRange({}, begin, end, files=files), worked) == rest
    assert rest_after(settings, EventRange({}, begin, end), worked) == 0.0


def test_tasks_decode_a_batch_of_few_but_long_records(monkeypatch: pytest.MonkeyPatch) -> None:
    view = SimpleNamespace(compiled=SimpleNamespace(view=SimpleNamespace(reads=("a",)), columns={}, scans=1))
    files = SimpleNamespace(are_for=lambda _: True, write=lambda *_: None)
    stream: Any = SimpleNamespace(workers=[view], batch_files=files, spark=None, settings=None)
    stream.types = {"a": SimpleNamespace(name="a", reading=0)}
    decoded: Any = "decoded"
    monkeypatch.setattr(records, "read", lambda *_: decoded)
    monkeypatch.setattr(records, "events", lambda each, _: {"a": each})
    with Stream._decoded(stream, Positions({"a": {0: 1}}), Positions({"a": {0: 2}}), None) as (batch, _):
        assert batch.events["a"] is decoded
        assert batch.files is None
