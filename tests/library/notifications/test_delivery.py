"""The queue of a channel: what waits for one channel slows no other."""

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.builders.erasures import forget_erasures, lacks
from tests.builders.notifications import a_waiting_notification, set_rule, waiting_notifications
from tests.deadline import deadline, until
from tests.library.listener import Listener
from tests.library.notifications.found_rows import FoundRows, hit
from tests.library.notifications.rounds import deliver, look
from truelog.notifications import delivery, history
from truelog.services.notifier import service
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

MANY = 20_000


def test_what_waits_for_one_channel_slows_no_other(quiet: Connection) -> None:
    """PostgreSQL reads a few entries of its indexes, however many notifications wait for the channel `away`."""
    waiting_notifications(quiet, "away", MANY)
    a_waiting_notification(quiet, "ops", timedelta())
    assert delivery.waiting_channels(quiet) == {"away", "ops"}
    assert rows_read(quiet, delivery._WAITING) < 100
    for channel in ("ops", "other", "away"):
        assert rows_read(quiet, delivery._NEXT, channel) < 100


def test_nothing_is_told_while_a_restored_database_lacks_erasures(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    """Neither what waited in the backup, nor what changes."""
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    look(hits.connection)
    lacks(hits.connection, 1)
    hits.change(hit("post:0:2"))
    deliver(told, hits.connection)
    assert listener.taken == []
    forget_erasures(hits.connection)
    deliver(told, hits.connection)
    assert [each["row"]["document"] for each in listener.taken] == ["post:0:1", "post:0:2"]


def test_a_defect_is_a_failed_try(told: Settings, quiet: Connection) -> None:
    """The body of this notification has no text. It is tried again later, and holds up no other."""
    a_waiting_notification(quiet, "ops", timedelta())
    slow = told.model_copy(update={"notification_retry_seconds": 600.0})
    assert delivery.deliver_next(slow, quiet, "ops")
    assert not delivery.deliver_next(slow, quiet, "ops")
    [failed] = history.deliveries(quiet, None, 1)
    assert (failed["tries"], failed["failed"]) == (1, "a defect: KeyError; see the notifier's log")


def test_a_thread_ends_while_nothing_waits(
    told: Settings, hits: FoundRows, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep a connection for each name of a channel that was ever used."""
    monkeypatch.setattr(service, "_LINGER_SECONDS", 0.5)
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    stopped = threading.Event()
    running = threading.Thread(target=service.run, args=(told, stopped))
    running.start()
    try:
        for number in (1, 2):
            hits.change(hit(f"post:0:{number}"))
            until(partial(require_told_and_ended, listener, number), 30, "a notification and the end of its thread")
    finally:
        stopped.set()
        running.join(deadline(30))
    assert not running.is_alive()


def require_told_and_ended(listener: Listener, count: int) -> None:
    if len(listener.taken) < count or any(each.name == "to ops" for each in threading.enumerate()):
        raise ServiceDown(f"{len(listener.taken)} of {count} were taken")


def rows_read(connection: Connection, query: str, *given: object) -> int:
    """How many rows all nodes of the plan have read and returned."""
    explained = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + query.encode(), given).fetchall()
    return _rows(explained[0][0][0]["Plan"])


def _rows(plan: dict[str, Any]) -> int:
    removed = sum(count for name, count in plan.items() if name.startswith("Rows Removed"))
    mine = int((plan["Actual Rows"] + removed) * plan["Actual Loops"])
    return mine + sum(_rows(each) for each in plan.get("Plans", ()))
