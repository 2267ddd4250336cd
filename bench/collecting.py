"""The collector's throughput over HTTP, with senders on the same machine and batches of 100 events.

The bodies are prepared in advance, so that the senders use little CPU time. The report shows how much they use.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection

import psutil

import runtime
from bench.row import OURS, Ran, Row
from tests.scenes.collector_client import JSON, page_view
from tests.scenes.marks import at
from truelog.support.settings import Settings

BATCH = 100  # events
CONNECTIONS = 4

_BODIES = 20


@dataclass
class Sender:
    """A client that sends one request at a time over one connection."""

    settings: Settings
    bodies: list[bytes]
    acknowledged: int = 0
    latencies: list[float] = field(default_factory=list)

    def send(self, until: float) -> None:
        address = self.settings.address("collector")
        connection = HTTPConnection(address.host, address.port, timeout=30)
        key = self.settings.producer_key.get_secret_value()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": JSON}
        while (began := time.monotonic()) < until:
            connection.request("POST", "/events", self.bodies[len(self.latencies) % _BODIES], headers)
            response = connection.getresponse()
            answer = response.read()
            self.latencies.append(time.monotonic() - began)
            if response.status == 200:
                self.acknowledged += answer.count(b'"offset"')
        connection.close()


def run(settings: Settings, *, seconds: float, ran: Ran) -> Row:
    """Send as many events as possible over a few connections."""
    runtime.up(settings, ["collector"], tethered=True)
    senders = [Sender(settings, _bodies()) for _ in range(CONNECTIONS)]
    watched = {s.name: psutil.Process(s.pid) for s in runtime.status(settings) if s.name in ("collector", "kafka")}
    watched["senders"] = psutil.Process()
    before, began = {name: _cpu(process) for name, process in watched.items()}, time.monotonic()
    threads = [threading.Thread(target=sender.send, args=(began + seconds,)) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    latencies = sorted(latency for sender in senders for latency in sender.latencies)
    return Row(
        "collector",
        OURS,
        sum(sender.acknowledged for sender in senders) / took,
        ran,
        f"batches of {BATCH} over {CONNECTIONS} connections, acknowledged by Kafka; *_cores: cores per process",
        more={"p50_seconds": at(0.5, latencies), "p99_seconds": at(0.99, latencies)}
        | {f"{name}_cores": (_cpu(process) - before[name]) / took for name, process in watched.items()},
    )


def _bodies() -> list[bytes]:
    events = [
        page_view(n, referrer="https://search.example/", browser="Firefox", language="de", bytes=n, status=200)
        for n in range(_BODIES * BATCH)
    ]
    return [json.dumps(events[start : start + BATCH]).encode() for start in range(0, len(events), BATCH)]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
