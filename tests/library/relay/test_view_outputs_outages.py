"""Outputs while the broker, the database and the relay are killed: each row arrives once, in order.

So it does at consumers that join while one of them is down.
"""

import os
import signal
from contextlib import ExitStack
from functools import partial

import psycopg
import pytest

import runtime
from tests.deadline import until
from tests.library.relay.joining import Joining, joining
from tests.library.relay.published import Published, changing, deployed
from tests.library.relay.read_topic import wait_for_transactions
from tests.scenes.restarts import pids, require_restarted
from truelog.storage.database import connect, read_value
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

KILLED = ("relay", "kafka", "postgresql")
CHANGES = 15  # published after each kill


def sent(view: Published) -> int:
    """The number of the last published row.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    try:
        with connect(view.settings, autocommit=True) as connection:
            query = "SELECT sent FROM truelog.output WHERE view = %s"
            return int(read_value(connection, query, (view.compiled.name,)))
    except psycopg.OperationalError as down:
        raise ServiceDown(str(down)) from down


def require_sent(view: Published, number: int) -> None:
    if (reached := sent(view)) < number:
        raise ServiceDown(f"row {reached} is published, but not row {number}")


def test_nothing_is_lost_or_repeated_whatever_is_killed(settings: Settings) -> None:
    runtime.up(settings, ("postgresql", "kafka", "relay"), tethered=True)
    with connect(settings, autocommit=True) as connection:
        view = deployed(settings, connection)
    with ExitStack() as consumers:
        joined = list[Joining]()
        with changing(settings, view):
            until(partial(require_sent, view, 1), 60, "the first rows")
            for name in KILLED:
                reached, before = sent(view), pids(settings, name)
                os.kill(before[name], signal.SIGKILL)
                joined.append(consumers.enter_context(joining(view)))
                until(partial(require_restarted, settings, before), 60, f"the start of {name}")
                until(partial(require_sent, view, reached + CHANGES), 90, f"rows after the kill of {name}")
        with connect(settings, autocommit=True) as view.connection:
            until(partial(require_sent, view, view.number()), 60, "the last rows")
            wait_for_transactions(settings, [view.topic])
    with connect(settings, autocommit=True) as view.connection:
        view.require_read()
        for consumer in joined:
            consumer.require_all()
