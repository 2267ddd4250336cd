"""Commands while Kafka is down, and while Kafka or PostgreSQL is killed: what is decided, and what is answered."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from runtime import kafka, keeper
from runtime.postgresql import admin
from tests.deadline import until
from tests.library.commands.command_client import (
    CART,
    Answer,
    Collector,
    new_name,
    ready,
    send_until_answered,
    start_collector,
    start_commands,
)
from tests.library.commands.log_contents import in_log
from tests.scenes.restarts import pids, require_restarted
from truelog.support.errors import ServiceDown
from truelog.support.settings import COLLECTOR_ROLE, Settings

pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]

COMMANDS = 60
OF_COLLECTORS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = %s"
)


@pytest.fixture(scope="module")
def collector(platform: Settings) -> Iterator[Collector]:
    """A collector that has decided commands. It waits for half a second until their events are in the log."""
    service = start_commands(platform)
    made = start_collector(platform, TRUELOG_COLLECTOR_COMMAND_SECONDS="0.5")
    yield ready(made)
    for each in (made.process, service):
        each.die()


@contextmanager
def kafka_down(settings: Settings) -> Iterator[None]:
    keeper.stop(settings, "kafka")
    try:
        yield
    finally:
        keeper.start(settings, "kafka")
        until(lambda: kafka.ready(settings), 90, "Kafka")


def added(collector: Collector, cart: str, number: int) -> Answer:
    """The answer to a command, which is sent until it is decided."""
    return send_until_answered([collector], "add_to_cart", f"{cart}-{number}", cart_id=cart, quantity=number, **CART)


def quantities(settings: Settings, cart: str) -> list[int]:
    """The quantities that the log says were added to a cart, in order."""
    events = in_log(settings, "cart_event")
    return [each["quantity"] for each in events if (each["cart_id"], each["verb"]) == (cart, "added")]


def require_quantities(settings: Settings, cart: str, expected: list[int]) -> None:
    if (found := quantities(settings, cart)) != expected:
        raise ServiceDown(f"the log has {found}")


def require_refused(collector: Collector, cart: dict[str, Any], reason: str) -> None:
    """Require that a command is not decided, and that the answer says why and when to send it again."""
    found = collector.send("check_out_cart", **cart)
    assert (found.status, int(found.retry_after or 0) > 0) == (503, True), found
    if reason not in found.json["error"]:
        raise ServiceDown(found.json["error"])


def test_while_kafka_is_down_commands_get_receipts(platform: Settings, collector: Collector) -> None:
    """A collector that has lost its session decides nothing before Kafka is back."""
    cart: dict[str, Any] = {"cart_id": new_name(), "visitor_id": "v1"}
    with kafka_down(platform):
        answers = [added(collector, cart["cart_id"], number) for number in (1, 2)]
        assert [(each.status, each.json["version"]) for each in answers] == [(202, 1), (202, 2)]
        refused = collector.send("remove_from_cart", **cart, product="chair")
        assert (refused.status, refused.json["refused"]) == (409, "chair is not in the cart")
        assert added(collector, cart["cart_id"], 1) == answers[0]
        with admin(platform, platform.database_name) as connection:
            assert connection.execute(OF_COLLECTORS, (COLLECTOR_ROLE,)).fetchall()
        until(lambda: require_refused(collector, cart, "Kafka"), 60, "a refusal because of Kafka")
    assert send_until_answered([collector], "check_out_cart", new_name(), **cart).json["version"] == 3
    for answer in answers:
        until(partial(require_in_log, collector, answer), 60, "the events of the receipts")
    assert quantities(platform, cart["cart_id"]) == [1, 2]


def require_in_log(collector: Collector, answer: Answer) -> None:
    if not collector.request("GET", f"/commands/receipts/{answer.json['receipt']}").json["in_log"]:
        raise ServiceDown("not in the log yet")


@pytest.mark.parametrize("store", ["kafka", "postgresql"])
def test_commands_during_a_kill_are_decided_and_published_once(
    platform: Settings, collector: Collector, store: str
) -> None:
    cart, before = new_name(), pids(platform, store)
    answers = [added(collector, cart, number) for number in range(1, COMMANDS // 2)]
    os.kill(before[store], signal.SIGKILL)
    answers += [added(collector, cart, number) for number in range(COMMANDS // 2, COMMANDS)]
    until(lambda: require_restarted(platform, before), 90, f"the start of {store}")
    assert [each.json["version"] for each in answers] == [*range(1, COMMANDS)]
    assert {each.status for each in answers} >= ({200, 202} if store == "kafka" else {200})
    until(lambda: require_quantities(platform, cart, [*range(1, COMMANDS)]), 60, "each event once, in order")
