"""Point reads of the API at a constant rate: the time from the moment at which a read is due to its whole answer.

A late read delays no other one, so the times include every wait. The readers run on the same machine. They are measured
while the streams are idle, and then with steady traffic, which the view counts meanwhile.
"""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from urllib.parse import urlencode

import psutil

import runtime
from bench import streaming
from bench.corpus import good
from bench.freshness import percentiles
from bench.row import OURS, Ran, Row
from tests.beat import every, first
from truelog.log import topics
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.traffic import generator

RATE = 500  # reads per second
TRAFFIC = 200  # events per second
VIEWS = ("page_views",)

_CONNECTIONS = 16
_KEYS = 2_000
_WARM_SECONDS = 5.0
_FILL_SECONDS = 100.0  # of traffic, from which the view's rows come
_BEAT_SECONDS = 0.01
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 180.0
_SEED = 17
_SAMPLE = "SELECT minute, host, page, browser FROM views.page_views ORDER BY random() LIMIT %s"


@dataclass
class Readers:
    """Reads of one row or one answer each, at a constant rate over several connections."""

    settings: Settings
    paths: list[str]
    reads: int
    expects: bytes  # in each answer
    rate: int = RATE  # per second
    began: float = field(init=False)  # when `read` is called: what comes before it delays no read
    seconds: list[float] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)

    def read(self) -> None:
        threads = [threading.Thread(target=self._read, args=(number,)) for number in range(_CONNECTIONS)]
        gc.disable()  # or a pause of the bench would count as the API's
        self.began = time.monotonic()
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        gc.enable()
        if self.wrong:
            raise RuntimeError(f"{len(self.wrong)} reads failed, the first with status {self.wrong[0]}")

    def _read(self, begin: int) -> None:
        api, waiting = self.settings.address("api"), threading.Event()
        connection = HTTPConnection(api.host, api.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.settings.reader_key.get_secret_value()}"}
        for number in range(begin, self.reads, _CONNECTIONS):
            due = self.began + number / self.rate
            waiting.wait(max(0.0, due - time.monotonic()))
            connection.request("GET", self.paths[number % len(self.paths)], headers=headers)
            response = connection.getresponse()
            body = response.read()
            self.seconds.append(time.monotonic() - due)
            if response.status != 200 or self.expects not in body:
                self.wrong.append(response.status)
        connection.close()


def run(settings: Settings, *, seconds: float) -> list[Row]:
    """Measure idle, and with traffic. A stream of the view must be running."""
    _fill(settings)
    runtime.up(settings, ["api"], tethered=True)
    paths = _paths(settings)
    _measured(settings, paths, _WARM_SECONDS)
    idle = _row(settings, paths, seconds, "streams idle")
    with _traffic(settings):
        return [idle, _row(settings, paths, seconds, f"{TRAFFIC} events/s")]


def _row(settings: Settings, paths: list[str], seconds: float, load: str) -> Row:
    ran: Ran = "alone"
    [api] = [psutil.Process(each.pid) for each in runtime.status(settings) if each.name == "api"]
    before, began = sum(api.cpu_times()[:2]), time.monotonic()
    latencies = _measured(settings, paths, seconds)
    took = time.monotonic() - began
    return Row(
        f"point reads, {load}",
        OURS,
        len(latencies) / took,
        ran,
        f"one row by its key, {len(latencies)} reads over {_CONNECTIONS} connections, each from when it was due",
        more={**percentiles(latencies), "api_cores": (sum(api.cpu_times()[:2]) - before) / took},
    )


def _measured(settings: Settings, paths: list[str], seconds: float) -> list[float]:
    readers = Readers(settings, paths, int(seconds * RATE), b'"rows":[{')
    readers.read()
    return sorted(readers.seconds)


def _paths(settings: Settings) -> list[str]:
    """The address of each of some rows."""
    with connect(settings) as connection:
        keys = connection.execute(_SAMPLE, (_KEYS,)).fetchall()
    whole = [[each.isoformat() if isinstance(each, datetime) else each for each in k] for k in keys if None not in k]
    return [f"/views/{VIEWS[0]}/rows?{urlencode([('key', each) for each in key])}" for key in whole]


def _fill(settings: Settings) -> None:
    producer = make_producer(settings)
    for record in _records(_FILL_SECONDS):
        producer.produce(record.topic, record.value, record.key)
    producer.flush()
    ends = topics.end_offsets(settings, ["page_view"])
    with connect(settings, autocommit=True) as connection:
        has_read = partial(streaming.positions, connection, VIEWS[0])
        first(_LOOK_SECONDS, lambda: has_read().covers(ends), within=_PATIENCE_SECONDS, what="the stream")


@contextmanager
def _traffic(settings: Settings) -> Iterator[None]:
    """Events at a constant rate, until the end of the block."""
    over = threading.Event()
    sender = threading.Thread(target=_send, args=(settings, over))
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _send(settings: Settings, over: threading.Event) -> None:
    producer, begin, sent = make_producer(settings), time.time(), 0
    records = list(_records(_PATIENCE_SECONDS))
    for now in every(_BEAT_SECONDS, within=_PATIENCE_SECONDS, what="sending"):
        due = int((now - begin) * TRAFFIC)
        for record in records[sent:due]:
            producer.produce(record.topic, record.value, record.key)
        sent = due
        producer.poll(0)
        if over.is_set():
            break
    producer.flush()


def _records(seconds: float) -> Iterator[OutgoingRecord]:
    return good(generator.generate(seed=_SEED, begin=datetime.now(UTC), rate=TRAFFIC, seconds=seconds))
