"""Live push: the time from Kafka's acknowledgement of an event to the subscriber whose row it changes.

Each subscriber follows one cart, and each event changes a row of one cart. The subscribers run in this process.
"""

import asyncio
import json
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

import psutil
from confluent_kafka import KafkaError, KafkaException, Message

import runtime
from bench import streaming
from bench.freshness import percentiles
from bench.row import OURS, Row
from tests.beat import every, first
from tests.scenes.applications import Application
from truelog.log import topics
from truelog.log.kafka_producer import make_producer
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.support.settings import Settings

VIEWS = ("cart",)
SUBSCRIBERS = 1_000
RATE = 200  # events per second

_AT_ONCE = 50  # subscribers that connect
_BEAT_SECONDS = 0.01
_LOOK_SECONDS = 0.1
_IDLE_SECONDS, _WARM_SECONDS = 20.0, 20.0
_PATIENCE_SECONDS = 180.0
_DATA = b"data: "

Key = tuple[str, str]  # cart and product


@dataclass
class Events:
    """Events at a constant rate, and when each was acknowledged, by the row that it changes."""

    settings: Settings
    acknowledged: dict[Key, float] = field(default_factory=dict)

    def send(self, begin: int, seconds: float) -> None:
        """Send the events from this number on."""
        kafka, began, sent = make_producer(self.settings), time.time(), 0
        for now in every(_BEAT_SECONDS, within=seconds + _PATIENCE_SECONDS, what="events of carts"):
            due = min(int((now - began) * RATE), int(seconds * RATE))
            for number in range(begin + sent, begin + due):
                cart, product = key_of(number)
                told = partial(self._acknowledge, (cart, product))
                kafka.produce("cart_event", _event(number), cart, on_delivery=told)
            sent = due
            kafka.poll(0)
            if sent == int(seconds * RATE):
                break
        kafka.flush()

    def _acknowledge(self, key: Key, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged[key] = time.time()


@dataclass
class Subscribers:
    """All subscribers, and when a change of each row arrived."""

    settings: Settings
    arrived: dict[Key, float] = field(default_factory=dict)
    connected: int = 0
    ended: list[str] = field(default_factory=list)

    async def follow(self, over: asyncio.Event) -> None:
        """Follow the carts until the event is set."""
        room = asyncio.Semaphore(_AT_ONCE)
        each = [asyncio.create_task(self._follow(number, room)) for number in range(SUBSCRIBERS)]
        await over.wait()
        for task in each:
            task.cancel()
        await asyncio.gather(*each, return_exceptions=True)

    async def _follow(self, number: int, room: asyncio.Semaphore) -> None:
        api = self.settings.address("api")
        cart = key_of(number)[0]
        async with room:
            reader, writer = await asyncio.open_connection(api.host, api.port, limit=2**22)
            writer.write(_request(cart, self.settings))
            while not (line := await reader.readline()).startswith(_DATA) and line:
                pass
            self.connected += 1
        while line := await reader.readline():
            if line.startswith(_DATA):
                self._take(json.loads(line[len(_DATA) :]))
        self.ended.append(cart)

    def _take(self, data: dict[str, object]) -> None:
        now = time.time()
        changes = data["changes"]
        assert isinstance(changes, list)
        for change in changes:
            self.arrived.setdefault((change["key"]["cart_id"], change["key"]["product"]), now)


def key_of(number: int) -> Key:
    """The row that an event adds. Each event adds another one."""
    return f"cart-{number % SUBSCRIBERS}", f"product-{number // SUBSCRIBERS}"


def run(settings: Settings, application: Application, seconds: float) -> Row:
    """Measure changes at a constant rate. A stream that runs the view `cart` must have been started."""
    _allow_files()
    runtime.up(settings, ["api"], tethered=True)
    _await_outbox(settings, application)
    events, subscribers, over = Events(settings), Subscribers(settings), asyncio.Event()
    loop = asyncio.new_event_loop()
    following = threading.Thread(target=loop.run_until_complete, args=(subscribers.follow(over),))
    following.start()
    try:
        first(_LOOK_SECONDS, lambda: subscribers.connected == SUBSCRIBERS, within=_PATIENCE_SECONDS, what="subscribers")
        [api] = [psutil.Process(each.pid) for each in runtime.status(settings) if each.name == "api"]
        idle_cores = cores_of(api, _idle)
        events.send(0, _WARM_SECONDS)
        warm = int(_WARM_SECONDS * RATE)
        cores = cores_of(api, lambda: events.send(warm, seconds))
        wanted = [key_of(number) for number in range(warm, warm + int(seconds * RATE))]
        arrived = subscribers.arrived
        first(_LOOK_SECONDS, lambda: arrived.keys() >= {*wanted}, within=_PATIENCE_SECONDS, what="all changes")
    finally:
        loop.call_soon_threadsafe(over.set)
        following.join()
    if subscribers.ended:
        raise RuntimeError(f"{len(subscribers.ended)} subscriptions ended, the first of {subscribers.ended[0]}")
    ordered = sorted(arrived[each] - events.acknowledged[each] for each in wanted)
    return Row(
        f"live push to {SUBSCRIBERS:,} subscribers",
        OURS,
        RATE,
        "alone",
        f"acknowledged to the subscriber of the changed row, {len(ordered):,} events",
        more=percentiles(ordered) | {"api_cores": cores, "idle_api_cores": idle_cores},
    )


def _idle() -> None:
    """Wait, while no event comes."""
    end = time.monotonic() + _IDLE_SECONDS
    first(_LOOK_SECONDS, lambda: time.monotonic() >= end, within=_PATIENCE_SECONDS, what="the end of the idle time")


def cores_of(process: psutil.Process, work: Callable[[], object]) -> float:
    """The share of a core that a process uses while the work is done."""
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    work()
    return float((sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began))


def _await_outbox(settings: Settings, application: Application) -> None:
    """Wait until the stream has deployed the view and read its topic, so that subscribers find an output."""
    ends = topics.end_offsets(settings, ["cart_event"])
    with connect(settings, autocommit=True) as connection:

        def is_ready() -> bool:
            streaming.require_running(application)
            begun = connection.execute("SELECT FROM truelog.output WHERE view = 'cart' AND beginning IS NOT NULL")
            return bool(begun.fetchall()) and streaming.positions(connection, VIEWS[0]).covers(ends)

        first(_LOOK_SECONDS, is_ready, within=_PATIENCE_SECONDS, what="the output of `cart`")


def _request(cart: str, settings: Settings) -> bytes:
    key = settings.reader_key.get_secret_value()
    path = f"/views/{VIEWS[0]}/changes?where={quote(f'cart_id={cart}', safe='')}"
    return f"GET {path} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def _event(number: int) -> bytes:
    cart, product = key_of(number)
    event = {"event_id": f"e{number}", "occurred_at": timestamps.to_text(datetime.now(UTC)), "cart_id": cart}
    return json.dumps(event | {"visitor_id": "v", "verb": "added", "product": product, "quantity": 1}).encode()


def _allow_files() -> None:
    """Allow this process, and the services that it starts, a connection for each subscriber."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
