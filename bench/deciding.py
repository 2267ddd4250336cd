"""Commands through the collector: how many are in the log per second, and how long one takes.

Each sender sends one command at a time. First all of them add to one cart, and then each to any of a million carts.
"""

import json
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from random import Random

import runtime
from bench.cpu import Meter, used
from bench.freshness import percentiles
from bench.row import OURS, Ran, Row
from truelog.storage.database import connect
from truelog.support.settings import Settings

CONNECTIONS = 48
KEYS = 1_000_000

_WARM_SECONDS = 15.0  # Java compiles meanwhile
_WATCHED = ("collector", "commands", "kafka", "postgresql")
_MADE = (  # carts without events
    "INSERT INTO truelog.command_key (event, key) "
    "SELECT 'cart_event', 'cart-' || n FROM generate_series(0, %s - 1) AS n ON CONFLICT DO NOTHING"
)


@dataclass
class Sender:
    """A client with a connection of its own."""

    settings: Settings
    keys: int
    random: Random
    seconds: list[float] = field(default_factory=list)  # of commands whose events are in the log
    receipts: int = 0
    wrong: list[bytes] = field(default_factory=list)

    def send(self, end: float) -> None:
        address = self.settings.address("collector")
        connection = HTTPConnection(address.host, address.port, timeout=30)
        key = self.settings.producer_key.get_secret_value()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        while (began := time.monotonic()) < end:
            cart = f"cart-{self.random.randrange(self.keys)}"
            body = {"cart_id": cart, "visitor_id": "ann", "product": "lamp", "quantity": 1}
            connection.request("POST", "/commands/add_to_cart", json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status == 200:
                self.seconds.append(time.monotonic() - began)
            elif response.status == 202:
                self.receipts += 1
            else:
                self.wrong.append(answer)
        connection.close()


def run(settings: Settings, *, seconds: float) -> list[Row]:
    """Measure one hot key, and then many keys."""
    runtime.up(settings, ["collector", "commands"], tethered=True)
    with connect(settings, autocommit=True) as connection:
        connection.execute(_MADE, (KEYS,))
        connection.execute("ANALYZE truelog.command_key")
    _sent(settings, KEYS, _WARM_SECONDS)
    return [_row(settings, keys, seconds) for keys in (1, KEYS)]


def _row(settings: Settings, keys: int, seconds: float) -> Row:
    watched = {each.name: each.pid for each in runtime.status(settings) if each.name in _WATCHED and each.pid}
    meter = Meter(watched)
    before, began = meter.read(), time.process_time()
    senders = _sent(settings, keys, seconds)
    spent, sending = used(before, meter.read()), time.process_time() - began
    ordered = sorted(latency for each in senders for latency in each.seconds)
    ran: Ran = "alone"
    return Row(
        f"commands on {'one key' if keys == 1 else f'{keys:,} keys'}",
        OURS,
        len(ordered) / spent.wall,
        ran,
        f"{CONNECTIONS} connections, acknowledged with coordinates",
        more=percentiles(ordered)
        | {"receipts": float(sum(each.receipts for each in senders)), "sender_cores": sending / spent.wall},
        cpu_us_per_event=spent.per_event(len(ordered)),
    )


def _sent(settings: Settings, keys: int, seconds: float) -> list[Sender]:
    senders = [Sender(settings, keys, Random(number)) for number in range(CONNECTIONS)]
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=each.send, args=(end,)) for each in senders]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if wrong := [answer for each in senders for answer in each.wrong]:
        raise RuntimeError(f"{len(wrong)} commands were not accepted, the first with {wrong[0].decode()}")
    return senders
