"""A subscriber while the API, the relay, the broker and the database are killed.

It misses no change, and gets none twice.
"""

import os
import signal
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

import runtime
from tests.deadline import until
from tests.library.relay.published import Published, changing, deployed
from tests.scenes.restarts import pids, require_restarted
from truelog.client.client import Client
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

KILLED = ("api", "relay", "kafka", "postgresql")
CHANGES = 15  # that arrive after each kill


class Follower(threading.Thread):
    """A subscriber with a table, in a thread. It ends when it has got a row with the key `end`."""

    def __init__(self, client: Client, view: Published) -> None:
        super().__init__()
        self.client, self.view = client, view
        self.rows: dict[str, Mapping[str, Any]] = {}
        self.numbers: list[int] = []
        self.beginnings = 0

    def run(self) -> None:
        for update in self.client.subscribe(self.view.compiled.name):
            update.apply(self.rows)
            self.beginnings += update.is_whole
            self.numbers.append(update.number)
            if '{"product":"end"}' in self.rows:
                return

    def require(self, told: int) -> None:
        if len(self.numbers) < told:
            raise ServiceDown(f"{len(self.numbers)} updates, and not {told}")


def test_a_subscriber_misses_and_repeats_nothing_whatever_is_killed(settings: Settings) -> None:
    runtime.up(settings, ("postgresql", "kafka", "relay", "api"), tethered=True)
    with connect(settings, autocommit=True) as connection:
        view = deployed(settings, connection)
    at, key = settings.address("api"), settings.reader_key.get_secret_value()
    with Client(api=f"http://{at.host}:{at.port}", reader_key=key, seconds=600) as client:
        follower = Follower(client, view)
        follower.start()
        with changing(settings, view):
            until(partial(follower.require, 1), 60, "the first rows")
            for name in KILLED:
                told, before = len(follower.numbers), pids(settings, name)
                os.kill(before[name], signal.SIGKILL)
                until(partial(require_restarted, settings, before), 60, f"the start of {name}")
                until(partial(follower.require, told + CHANGES), 90, f"changes after the kill of {name}")
        with connect(settings, autocommit=True) as view.connection:
            view.change({"end": "1"})
            follower.join()
            steps = view.connection.execute(
                "SELECT last FROM truelog.output_step WHERE view = %s ORDER BY last", (view.compiled.name,)
            ).fetchall()
            assert follower.beginnings == 1
            assert follower.numbers[1:] == [last for (last,) in steps if last > follower.numbers[0]]
            assert follower.rows.keys() == view.rows().keys()
            amounts = {each["product"]: float(str(each["amount"])) for each in follower.rows.values()}
            assert amounts == {product: float(amount) for product, amount in view.amounts().items()}
