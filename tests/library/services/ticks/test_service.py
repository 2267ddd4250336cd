"""The tick service survives a crash of the broker, and writes the ends of every registered topic."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import runtime
from tests.builders.event_types import an_event_type
from tests.deadline import deadline, until
from tests.laws.naive_clock import Tick, clock
from tests.scenes.declared import copy_events
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT
from truelog.schema.loading.events import load_events
from truelog.services.ticks import service
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

pytestmark = pytest.mark.own_servers


@pytest.fixture
def ticker(platform: Settings, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A running service. The files of `page_view` and `ticks` were deleted after their registration."""
    folder = copy_events(tmp_path)
    for name in ("page_view", "ticks"):
        (folder / f"{name}.py").unlink()
    environment = os.environ | {"TRUELOG_TICK_SECONDS": "0.1", "TRUELOG_EVENTS_FOLDER": str(folder)}
    command = [sys.executable, "-m", "truelog.services.ticks.service"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def send_page_view(settings: Settings) -> None:
    producer = Producer({**settings.kafka(), "acks": "all"})
    producer.produce("page_view", b"{}", partition=2)
    assert producer.flush(deadline(30)) == 0


def read_ticks(settings: Settings, begin: int) -> list[Tick]:
    """Every tick in the log from `begin` on, decoded like any other event."""
    end = topics.end_offsets(settings, ["ticks"]).at("ticks", 0)
    consumer = Consumer({**settings.kafka(), "group.id": "test"})
    consumer.assign([TopicPartition("ticks", 0, begin)])
    messages = consumer.consume(end - begin, timeout=deadline(10))
    consumer.close()
    times = pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC"))
    values = pa.array([message.value() for message in messages], pa.binary())
    rows = decode(load_events()["ticks"], values, times, FUTURE_LIMIT).to_pylist()
    assert [row["invalid"] for row in rows] == [None] * (end - begin)
    return [Tick(n, row["event_time"], Positions.from_json(row["ends"])) for n, row in enumerate(rows, begin)]


def wait_for_ticks(settings: Settings, begin: int, more: int) -> list[Tick]:
    before = topics.end_offsets(settings, ["ticks"]).at("ticks", 0)

    def arrived() -> None:
        if topics.end_offsets(settings, ["ticks"]).at("ticks", 0) < before + more:
            raise ServiceDown("not yet")

    until(arrived, 30, f"{more} ticks")
    return read_ticks(settings, begin)


def test_ticks_hold_the_end_of_the_log_and_continue_after_a_crash_of_the_broker(
    platform: Settings, ticker: subprocess.Popen[str]
) -> None:
    begin = topics.end_offsets(platform, ["ticks"]).at("ticks", 0)
    wait_for_ticks(platform, begin, more=3)
    send_page_view(platform)
    reached = topics.end_offsets(platform, ["page_view"])
    ticks = wait_for_ticks(platform, begin, more=2)
    assert ticks[-1].ends.only(["page_view"]).offsets == reached.offsets
    assert ticks[-1].ends.offsets.keys() == load_events().keys() - {"ticks"}
    for earlier, later in pairwise(ticks):
        assert later.time > earlier.time
        assert later.ends.covers(earlier.ends)

    passed = Positions({**reached.offsets, "ticks": {0: begin + len(ticks)}})
    assert clock(ticks, passed, ["page_view"]) == ticks[-1].time

    kill_and_wait(platform)
    after = wait_for_ticks(platform, begin, more=3)
    assert after[: len(ticks)] == ticks
    assert after[-1].time > ticks[-1].time

    ticker.send_signal(signal.SIGTERM)
    _, logged = ticker.communicate(timeout=deadline(20))
    assert ticker.returncode == 0
    assert "Traceback" not in logged


def test_no_tick_is_written_while_the_registered_topics_are_unknown(
    platform: Settings, ticker: subprocess.Popen[str]
) -> None:
    """A tick that lacks a topic of a view would end the view's windows with records unread."""
    begin = topics.end_offsets(platform, ["ticks"]).at("ticks", 0)
    wait_for_ticks(platform, begin, more=1)
    with connect(platform, autocommit=True) as connection:
        connection.execute("ALTER TABLE truelog.event_cut RENAME TO hidden")
        assert ticker.stderr is not None
        next(line for line in ticker.stderr if "tick skipped: the registered topics are unknown" in line)
        connection.execute("ALTER TABLE truelog.hidden RENAME TO event_cut")
    ticks = wait_for_ticks(platform, begin, more=2)
    assert {frozenset(tick.ends.offsets) for tick in ticks} == {frozenset(load_events()) - {"ticks"}}


def test_a_topic_that_is_deleted_while_a_tick_is_made_costs_one_tick(
    platform: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    event, list_topics = replace(load_events()["page_view"], name="deleted"), topics.existing_topics
    with connect(platform, autocommit=True) as connection:
        an_event_type(connection, event, "an-id")
    topics.sync_topics(platform, {event.name: event})
    administrator = topics.client(platform, KafkaUser.ADMIN)

    def list_before_deletion(broker: AdminClient) -> set[str]:
        found = list_topics(broker)
        if event.name in found:
            administrator.delete_topics([event.name])[event.name].result(deadline(20))
            until(lambda: require_missing(event.name, list_topics(broker)), 20, "the deletion")
        return found

    monkeypatch.setattr(topics, "existing_topics", list_before_deletion)
    begin, stopped = topics.end_offsets(platform, ["ticks"]).at("ticks", 0), Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.run, platform.model_copy(update={"tick_seconds": 0.1}), stopped)
        try:
            ticks = wait_for_ticks(platform, begin, more=2)
        finally:
            stopped.set()
            running.result(deadline(20))
    assert f"tick skipped: Kafka has no topic {event.name}" in caplog.text
    assert event.name not in ticks[-1].ends.offsets


def require_missing(name: str, found: set[str]) -> None:
    if name in found:
        raise ServiceDown(f"Kafka still has {name}")


def kill_and_wait(settings: Settings) -> None:
    [pid] = [state.pid for state in runtime.status(settings) if state.name == "kafka"]
    psutil.Process(pid).kill()

    def restarted() -> None:
        [state] = [state for state in runtime.status(settings) if state.name == "kafka"]
        if state.state != "READY" or state.pid == pid:
            raise ServiceDown(state.state)
        topics.end_offsets(settings, ["ticks"])  # until it knows the leader epochs that clients have seen, it refuses

    until(restarted, 60, "Kafka after its kill")
