"""The log clock: its time at given positions, and a tick service that survives a broker crash."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

import runtime
from tests.deadline import deadline, until
from tests.laws.naive_clock import Log, Tick, at, clock
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT, load_events
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers


def tick(offset: int, second: int, **ends: dict[int, int]) -> Tick:
    return Tick(offset, at(second), Positions(ends))


TICKS = [tick(0, 0, a={0: 0, 1: 0}, b={0: 9}), tick(1, 10, a={0: 5, 1: 0}, b={0: 9}), tick(2, 20, a={0: 5, 1: 7})]


@pytest.mark.parametrize(
    ("ticks", "a", "read", "second"),
    [
        (0, {0: 9, 1: 9}, ["a"], None),  # the reader has not passed a tick
        (1, {0: 0, 1: 0}, ["a"], 0),
        (3, {0: 0, 1: 0}, ["a"], 0),  # the later ticks were passed, but their end offsets were not reached
        (3, {0: 5, 1: 0}, ["a"], 10),  # partition 1 is idle and does not hold the clock back
        (3, {0: 5, 1: 7}, ["a"], 20),
        (2, {0: 5, 1: 7}, ["a"], 10),  # the last tick's end offsets were reached, but the tick was not passed
        (3, {0: 5, 1: 7}, ["a", "b"], 20),  # the last tick has no end of b, because b did not exist
        (2, {0: 5, 1: 7}, ["a", "b"], None),  # the other ticks require offset 9 of b, which was not reached
        (3, {0: 5, 1: 7}, [], 20),
    ],
)
def test_the_clock_at_positions(ticks: int, a: dict[int, int], read: list[str], second: int | None) -> None:
    positions = Positions({"ticks": {0: ticks}, "a": a})
    assert clock(TICKS, positions, read) == (None if second is None else at(second))


def test_a_system_clock_that_is_set_back_does_not_set_the_log_back() -> None:
    ticks = [tick(0, 10, a={0: 1}), tick(1, 5, a={0: 1})]
    assert clock(ticks, Positions({"ticks": {0: 2}, "a": {0: 1}}), ["a"]) == at(10)


histories = st.lists(st.sampled_from(["a", "b", "c", "tick"]), max_size=40)
vectors = st.fixed_dictionaries({topic: st.integers(0, 15) for topic in ("a", "b", "c", "ticks")})
seeded = hypothesis(derandomize=True, database=None, deadline=None, max_examples=300)


def at_vector(vector: dict[str, int]) -> Positions:
    return Positions({topic: {0: offset} for topic, offset in vector.items()})


@seeded
@given(histories, vectors, st.sets(st.sampled_from(["a", "b", "c"])))
def test_every_record_that_was_appended_before_the_clocks_time_was_read(
    history: list[str], vector: dict[str, int], read: set[str]
) -> None:
    log, now = Log(history), clock(Log(history).ticks, at_vector(vector), read)
    for topic, offset, appended in log.records:
        if now is not None and topic in read and appended < now:
            assert offset < vector[topic]


@seeded
@given(histories, vectors, vectors)
def test_the_clock_is_monotonic_in_the_positions(history: list[str], one: dict[str, int], two: dict[str, int]) -> None:
    ticks, more = Log(history).ticks, {topic: max(one[topic], two[topic]) for topic in one}
    early, late = clock(ticks, at_vector(one), ["a", "b"]), clock(ticks, at_vector(more), ["a", "b"])
    assert early is None or (late is not None and early <= late)


@pytest.fixture
def ticker(kafka: Settings) -> Iterator[subprocess.Popen[str]]:
    topics.sync_topics(kafka, load_events())
    environment = os.environ | {"TRUELOG_TICK_SECONDS": "0.1"}
    command = [sys.executable, "-m", "truelog.log.ticks"]
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
    kafka: Settings, ticker: subprocess.Popen[str]
) -> None:
    begin = topics.end_offsets(kafka, ["ticks"]).at("ticks", 0)
    wait_for_ticks(kafka, begin, more=3)
    send_page_view(kafka)
    reached = topics.end_offsets(kafka, ["page_view"])
    ticks = wait_for_ticks(kafka, begin, more=2)
    assert ticks[-1].ends.only(["page_view"]).offsets == reached.offsets
    for earlier, later in pairwise(ticks):
        assert later.time > earlier.time
        assert later.ends.covers(earlier.ends)

    passed = Positions({**reached.offsets, "ticks": {0: begin + len(ticks)}})
    assert clock(ticks, passed, ["page_view"]) == ticks[-1].time

    kill_and_wait(kafka)
    after = wait_for_ticks(kafka, begin, more=3)
    assert after[: len(ticks)] == ticks
    assert after[-1].time > ticks[-1].time

    ticker.send_signal(signal.SIGTERM)
    _, logged = ticker.communicate(timeout=deadline(20))
    assert ticker.returncode == 0
    assert "Traceback" not in logged


def kill_and_wait(settings: Settings) -> None:
    [pid] = [state.pid for state in runtime.status(settings) if state.name == "kafka"]
    psutil.Process(pid).kill()

    def restarted() -> None:
        [state] = [state for state in runtime.status(settings) if state.name == "kafka"]
        if state.state != "READY" or state.pid == pid:
            raise ServiceDown(state.state)

    until(restarted, 60, "Kafka after its kill")
