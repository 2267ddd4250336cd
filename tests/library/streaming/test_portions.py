"""The portion of a late view has the same events, whether it comes from recent batches or in two ways from the log."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.deadline import deadline
from truelog import Sum, View
from truelog.kernel.apply_batch import EventRange
from truelog.kernel.log_guard import LogGuard
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.streaming.batch_files import BatchFiles
from truelog.streaming.portions import Portions
from truelog.support.settings import KafkaUser, Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging import event_files

TOPIC = "late_click"
EPOCHS = {(TOPIC, 0): 3}
NEEDED = {TOPIC: frozenset({"event_id", "url"})}
VIEW = View(
    reads=(TOPIC,),
    transform=lambda late_click: late_click.select("url", F.lit(1).alias("clicks")),
    key=("url",),
    measures={"clicks": Sum()},
)


@pytest.fixture(scope="module")
def clicks(platform: Settings) -> Iterator[EventType]:
    """A topic with six records. The fourth is not an event."""
    declared = load_events()["click"]
    clicks = replace(declared, name=TOPIC, topic=replace(declared.topic, partitions=1))
    topics.sync_topics(platform, {TOPIC: clicks})
    producer = Producer({**platform.kafka(), "acks": "all"})
    common = {"search_id": "1", "visitor_id": "v", "occurred_at": "2026-03-01T00:00:00Z"}
    for number in range(6):
        value = json.dumps(common | {"event_id": f"e{number}", "url": f"u{number}"}) if number != 3 else "not an event"
        producer.produce(TOPIC, value.encode(), key=b"k")
    assert producer.flush(deadline(10)) == 0
    yield clicks
    client: Any = topics.client(platform, KafkaUser.ADMIN)
    client.delete_topics([TOPIC])[TOPIC].result()


@pytest.fixture
def portions(lab: Lab, platform: Settings, clicks: EventType, tmp_path: Path) -> Portions:
    portions = Portions(platform, lab.spark, LogGuard(), BatchFiles(platform, lab.spark, tmp_path))
    portions.declare({TOPIC: clicks}, NEEDED)
    return portions


@pytest.fixture
def compiled(lab: Lab, clicks: EventType) -> CompiledView:
    return replace(lab, types={TOPIC: clicks}).compiled("late_clicks", VIEW)


@pytest.fixture
def at(platform: Settings, clicks: EventType) -> Callable[[int], Positions]:
    ids = topics.topic_ids(platform, [TOPIC])
    return lambda offset: Positions({TOPIC: {0: offset}}, ids)


def add_batch(portions: Portions, begin: Positions, end: Positions, clicks: EventType) -> None:
    kept = ExitStack()
    files = portions.files.write(kept, {TOPIC: clicks}, begin.ranges_to(end), NEEDED)
    portions.recent.add(EventRange({}, begin, end, epochs=EPOCHS, files=files), kept, ())


def found(portion: EventRange) -> list[tuple[object, ...]]:
    return sorted(map(tuple, portion.events[TOPIC].select("offset", "event_id", "url").collect()))


def test_each_way_gives_the_same_events(
    lab: Lab, portions: Portions, compiled: CompiledView, clicks: EventType, at: Callable[[int], Positions]
) -> None:
    expected = [(offset, f"e{offset}", f"u{offset}") for offset in (1, 2, 4, 5)]
    span = at(1), at(6)
    with portions.next(lab.connection, compiled, span, again=False) as small:
        assert small.files is not None
        assert (small.begin, small.end, found(small)) == (*span, expected)
    for begin, end in ((0, 1), (1, 4), (4, 6)):
        add_batch(portions, at(begin), at(end), clicks)
    with portions.next(lab.connection, compiled, span, again=False) as recent:
        assert (recent.begin, recent.end, found(recent)) == (*span, expected)
        assert recent.epochs == EPOCHS
        assert recent.files is not None
        portions.recent.forget()
        assert found(recent) == expected, "the portion has files of its own"
    assert not recent.files.folder.exists()


def test_after_a_failure_the_log_is_read(
    lab: Lab, portions: Portions, compiled: CompiledView, clicks: EventType, at: Callable[[int], Positions]
) -> None:
    add_batch(portions, at(0), at(6), clicks)
    with portions.next(lab.connection, compiled, (at(0), at(2)), again=True) as again:
        assert (again.end, again.epochs) == (at(2), None)
        assert [offset for offset, *_ in found(again)] == [0, 1]


@pytest.fixture(
    params=[(BatchFiles, "are_for", lambda *_: False), (event_files, "MOST_BYTES", 10)],
    ids=["many records", "long records"],
)
def _is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*request.param)


@pytest.mark.usefixtures("_is_large")
def test_tasks_decode_a_large_portion(
    lab: Lab, portions: Portions, compiled: CompiledView, at: Callable[[int], Positions]
) -> None:
    with portions.next(lab.connection, compiled, (at(0), at(6)), again=False) as large:
        assert large.files is None
        rows = large.events[TOPIC].select("offset", "url").collect()  # it has no column that the view does not need
        assert sorted(each.offset for each in rows) == [0, 1, 2, 4, 5]


def test_recent_batches_that_moved_only_other_topics_do_not_keep_a_view_where_it_is(
    lab: Lab, portions: Portions, compiled: CompiledView, at: Callable[[int], Positions]
) -> None:
    portions.recent.add(EventRange({}, at(3), at(3), epochs=EPOCHS), ExitStack(), ())
    with portions.next(lab.connection, compiled, (at(3), at(6)), again=False) as portion:
        assert (portion.end, [offset for offset, *_ in found(portion)]) == (at(6), [4, 5])
