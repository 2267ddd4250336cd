"""The soak: mixed traffic, hostile records and kills for `TRUELOG_SOAK_SECONDS`. Then every view equals its raw bytes.

Each round sends traffic, does one step of harm, and waits until the platform has recovered. To add a step, add a
function to `STEPS`.
"""

import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pytest
from confluent_kafka import Producer

import runtime
from tests.laws.events import hostile
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.conftest import EACH_EVENT, World
from truelog.archive.archive_table import archived_positions
from truelog.log import topics
from truelog.schema.event import load_events
from truelog.support.errors import ServiceDown
from truelog.support.wait import until

SECONDS = float(os.environ.get("TRUELOG_SOAK_SECONDS", "1200"))
STREAM_POINTS = ("batch.begun", "merge.staged", "merge.locked", "merge.added", "merge.advanced", "merge.committed")
ARCHIVE_POINTS = ("archive.files_written", "archive.before_commit", "archive.after_commit")

log = logging.getLogger("truelog.soak")
pytestmark = pytest.mark.usefixtures("each_event")


@dataclass
class Soak:
    """The running applications. A step may kill any of them."""

    world: World
    draw: random.Random
    stream: Application | None = None
    archive: Application | None = None

    def running(self) -> None:
        """Start the applications that have ended, as Airflow does."""
        if self.stream is None or self.stream.process.poll() is not None:
            self.stream = start(self.world.settings, "stream.py")
        if self.archive is None or self.archive.process.poll() is not None:
            self.archive = start(self.world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")

    def end(self) -> None:
        for application in (self.stream, self.archive):
            if application is not None:
                application.die()

    def hostile(self, records: int) -> None:
        """Send records that are no valid events, drawn as the laws draw them."""
        strategy, producer = hostile(load_events()["page_view"]), Producer(self.world.settings.kafka())
        for _ in range(records):
            producer.produce("page_view", strategy.example())
        assert producer.flush(60) == 0

    def recover(self) -> None:
        """Wait until the stream and the archive have reached the end of the log."""
        ends = topics.end_offsets(self.world.settings, ["page_view"])

        def reached() -> bool:
            self.running()
            archived = archived_positions(self.world.settings, ["page_view"])
            return self.world.positions(EACH_EVENT).covers(ends) and archived.covers(ends)

        self.running()
        assert self.stream is not None
        _until(reached, 240)


def kill_stream(soak: Soak) -> None:
    """Kill the stream at a named point of a merge."""
    assert soak.stream is not None
    soak.stream.die()
    fault = f"{soak.draw.choice(STREAM_POINTS)}:1:kill"
    soak.stream = start(soak.world.settings, "stream.py", fault=fault)
    soak.world.traffic.send(200)
    soak.stream.wait_kill()


def kill_archive(soak: Soak) -> None:
    """Kill the archive at a named point of a commit."""
    assert soak.archive is not None
    soak.archive.die()
    fault = f"{soak.draw.choice(ARCHIVE_POINTS)}:1:kill"
    soak.archive = start(soak.world.settings, "archive.py", fault=fault, TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")
    soak.world.traffic.send(200)
    soak.archive.wait_kill()


def kill_service(name: str) -> Callable[[Soak], None]:
    """Kill a service. The supervisor starts the service again."""

    def step(soak: Soak) -> None:
        soak.world.traffic.send(500, flush=False)
        [pid] = [state.pid for state in runtime.status(soak.world.settings) if state.name == name]
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        runtime.up(soak.world.settings, [name], tethered=True)
        soak.world.traffic.flush()

    return step


def hostile_records(soak: Soak) -> None:
    soak.hostile(200)


STEPS: dict[str, Callable[[Soak], None]] = {
    "hostile records": hostile_records,
    "kill the stream": kill_stream,
    "kill the archive": kill_archive,
    "kill PostgreSQL": kill_service("postgresql"),
    "kill Kafka": kill_service("kafka"),
    "kill S3": kill_service("s3"),
}


@pytest.fixture
def soak(world: World) -> Iterator[Soak]:
    made = Soak(world, random.Random(1))
    made.running()
    yield made
    made.end()


def test_every_view_equals_its_raw_bytes_after_the_soak(soak: Soak, batch: Batch) -> None:
    began, rounds = time.monotonic(), 0
    while rounds < len(STEPS) or time.monotonic() - began < SECONDS:
        name = list(STEPS)[rounds % len(STEPS)]
        log.warning("%.0f s: %s", time.monotonic() - began, name)
        soak.world.traffic.send(500)
        STEPS[name](soak)
        soak.recover()
        rounds += 1
    soak.world.require_each_counted_once()
    batch.require_equal_from_raw([EACH_EVENT])
    log.warning("%d rounds, %d records acknowledged", rounds, soak.world.traffic.acknowledged)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    def met() -> None:
        with suppress(psycopg.OperationalError):
            if condition():
                return
        raise ServiceDown("the platform has not recovered")

    until(met, seconds, "recovery")
