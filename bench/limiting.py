"""How many requests of one address pass beyond its limit, and how long the question takes whether it may make one.

A request counts once the stream has merged its page view, and the collector asks once a second, so some requests always
pass. Each flood has an address of its own, whose proxy is the benchmark.

The questions are about addresses whose windows are full of requests. They begin when the floods are over.
"""

import json
import os
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection

import runtime
from bench import streaming
from bench.cpu import Meter, Used, measured
from bench.freshness import percentiles
from bench.ground import services
from bench.reading import Readers
from bench.row import OURS, Row
from tests.beat import first
from tests.scenes.collector_client import JSON, another, page_view
from truelog.limits.rate import DEFAULT
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.settings import Settings

RATE = 1_000  # requests per second
FLOODS = 5
QUESTIONS = 2_000  # in SQL
ASKED = (200, 500)  # per second, over HTTP

_CONNECTIONS = 16
_WARM_REQUESTS = 30 * RATE  # from other addresses, each within its limit
_MOST_REQUESTS = 60 * RATE
_LOOK_SECONDS = 0.1
_ASKED_SECONDS, _WARM_SECONDS = 30.0, 5.0  # over HTTP; a shorter time would say how long one pause was
_PATIENCE_SECONDS = 120.0
_LIMIT = DEFAULT.max_requests
_ANSWER = b'"advisory":true'


@dataclass
class Flood:
    """Requests at a constant rate over several connections, until the first refusal."""

    settings: Settings
    network: str
    addresses: int
    requests: int
    began: float = field(default_factory=time.monotonic)
    passed: list[float] = field(default_factory=list)  # when each response arrived
    refused: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        threads = [threading.Thread(target=self._send, args=(number,)) for number in range(_CONNECTIONS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.passed.sort()

    def _send(self, begin: int) -> None:
        collector = self.settings.address("collector")
        connection = HTTPConnection(collector.host, collector.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.settings.producer_key.get_secret_value()}", "Content-Type": JSON}
        for number in range(begin, self.requests, _CONNECTIONS):
            if self.over.wait(max(0.0, self.began + number / RATE - time.monotonic())):
                break
            address = f"{self.network}{number % self.addresses + 1:x}"
            body = json.dumps(page_view(number, ip=address)).encode()
            connection.request("POST", "/events", body, headers | {"X-Forwarded-For": address})
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                self.passed.append(time.monotonic())
            else:
                self.refused.append(time.monotonic())
                self.over.set()
        connection.close()


def run(settings: Settings) -> list[Row]:
    """Flood a collector, and ask about addresses over HTTP and in SQL. A stream must be running."""
    return [_floods(settings), *(_over_http(settings, rate) for rate in ASKED), _in_sql(settings)]


def _floods(settings: Settings) -> Row:
    """Flood a collector several times and return the median and the largest overshoot."""
    proxy = settings.address("collector").host
    with another(settings, collector_rate_limit=True, collector_trusted_proxies=proxy) as (collector, _):
        Flood(collector, "2001:db8::", 2 * _WARM_REQUESTS // _LIMIT, _WARM_REQUESTS).send()
        floods = [_flooded(collector, number) for number in range(1, FLOODS + 1)]
    overshoots = sorted(len(flood.passed) - _LIMIT for flood in floods)
    seconds = sorted(min(flood.refused) - flood.passed[_LIMIT - 1] for flood in floods)
    return Row(
        "requests beyond a limit",
        OURS,
        sum(len(flood.passed) / (flood.passed[-1] - flood.began) for flood in floods) / FLOODS,
        "alone",
        f"one address, {FLOODS} times; seconds: from the last allowed request to the first refusal",
        more={
            "overshoot": overshoots[FLOODS // 2],
            "max_overshoot": overshoots[-1],
            "seconds": seconds[FLOODS // 2],
            "max_seconds": seconds[-1],
        },
    )


def _over_http(settings: Settings, rate: int) -> Row:
    """Ask the API, each time from when the question is due."""
    runtime.up(settings, ["api"], tethered=True)
    paths = [f"/rate-limits/{each}" for each in _busy(settings)]
    Readers(settings, paths, int(_WARM_SECONDS * rate), _ANSWER, rate=rate).read()  # for connections and plans
    readers = Readers(settings, paths, int(_ASKED_SECONDS * rate), _ANSWER, rate=rate)
    [api] = [each.pid for each in runtime.status(settings) if each.name == "api" and each.pid]
    meter = Meter({"api": api, "postgresql": services(settings)["postgresql"], "bench": os.getpid()})
    used = measured(meter, readers.read)
    return _asked(f"rate limit over HTTP, {rate} a second", sorted(readers.seconds), used)


def _in_sql(settings: Settings) -> Row:
    """Ask PostgreSQL, one question after the other."""
    addresses, seconds = _busy(settings), list[float]()

    def ask() -> None:
        with connect(settings, autocommit=True) as connection:
            for number in range(QUESTIONS):
                began, address = time.monotonic(), addresses[number % len(addresses)]
                connection.execute("SELECT * FROM truelog.limit_check(%s)", (address,)).fetchall()
                seconds.append(time.monotonic() - began)

    used = measured(Meter({"postgresql": services(settings)["postgresql"], "bench": os.getpid()}), ask)
    return _asked("rate limit in SQL", sorted(seconds), used)


def _busy(settings: Settings) -> list[str]:
    """The addresses with most requests."""
    with connect(settings) as connection:
        found = connection.execute(
            "SELECT ip FROM views.request_rates GROUP BY ip ORDER BY sum(requests) DESC LIMIT 100"
        )
        return [ip for (ip,) in found]


def _asked(job: str, seconds: list[float], used: Used) -> Row:
    return Row(
        job,
        OURS,
        len(seconds) / used.wall,
        "alone",
        f"{len(seconds)} questions about 100 addresses",
        more=percentiles(seconds),
        cpu_us_per_event=used.per_event(len(seconds)),
        other_cores=used.other_cores,
    )


def _flooded(collector: Settings, number: int) -> Flood:
    """A flood that begins when the stream has read everything."""
    ends = topics.end_offsets(collector, ["page_view"])
    with connect(collector, autocommit=True) as connection:
        has_read = partial(streaming.positions, connection, "request_rates")
        first(_LOOK_SECONDS, lambda: has_read().covers(ends), within=_PATIENCE_SECONDS, what="the stream")
    flood = Flood(collector, f"2001:db8:{number:x}::", 1, _MOST_REQUESTS)
    flood.send()
    if not flood.refused:
        raise RuntimeError(f"{len(flood.passed):,} requests of one address have passed")
    return flood
