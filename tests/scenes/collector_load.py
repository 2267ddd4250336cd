"""How much the collector of this home takes in, from senders on the same machine; it prints one line of JSON.

    python -m tests.scenes.collector_load [--seconds 20] [--batch 100] [--connections 4] [--rate 0]

Bodies are made beforehand, so that the generator's own share of the machine, which is told, stays small.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection

import psutil

import runtime
from tests.scenes.collector_client import JSON, page_view
from truelog.settings import Settings


@dataclass
class Sender:
    """One connection, one request at a time; a `pause` between their beginnings, if any."""

    settings: Settings
    bodies: list[bytes]
    pause: float
    acknowledged: int = 0
    latencies: list[float] = field(default_factory=list)
    other: list[int] = field(default_factory=list)

    def send(self, until: float) -> None:
        connection = HTTPConnection(self.settings.collector_host, self.settings.collector_port, timeout=30)
        key = self.settings.producer_key.get_secret_value()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": JSON}
        due, turn = time.monotonic(), 0
        idle = threading.Event()
        while (began := time.monotonic()) < until:
            connection.request("POST", "/events", self.bodies[turn % len(self.bodies)], headers)
            response = connection.getresponse()
            answer = response.read()
            self.latencies.append(time.monotonic() - began)
            if response.status == 200:
                self.acknowledged += answer.count(b'"offset"')
            else:
                self.other.append(response.status)
            turn += 1
            due = max(due + self.pause, began)
            idle.wait(max(0.0, due - time.monotonic()))
        connection.close()


def batches(count: int, size: int) -> list[bytes]:
    events = [
        page_view(n, referrer="https://search.example/", browser="Firefox", language="de", bytes=n, status=200)
        for n in range(count * size)
    ]
    return [json.dumps(events[start : start + size]).encode() for start in range(0, count * size, size)]


def measure(settings: Settings, seconds: float, batch: int, connections: int, rate: float) -> dict[str, object]:
    """The rates and shares over `seconds`; `rate` events a second over all connections, 0 for as many as go."""
    bodies = batches(20, batch)
    pause = connections * batch / rate if rate else 0.0
    senders = [Sender(settings, bodies, pause) for _ in range(connections)]
    watched = {state.name: psutil.Process(state.pid) for state in runtime.status(settings) if state.pid}
    watched["generator"] = psutil.Process()
    before, began = {name: _cpu(each) for name, each in watched.items()}, time.monotonic()
    threads = [threading.Thread(target=sender.send, args=(began + seconds,)) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    latencies = sorted(latency for sender in senders for latency in sender.latencies)
    return {
        "events_per_second": round(sum(sender.acknowledged for sender in senders) / took),
        "batch": batch,
        "bytes_per_event": round(len(bodies[0]) / batch),
        "p50_ms": round(statistics.median(latencies) * 1000, 1),
        "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 1),
        "not_200": sum(len(sender.other) for sender in senders),
        "cores": {name: round((_cpu(each) - before[name]) / took, 2) for name, each in watched.items()},
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--rate", type=float, default=0)
    arguments = parser.parse_args()
    sys.stdout.write(json.dumps(measure(Settings(), **vars(arguments))) + "\n")


if __name__ == "__main__":
    main()
