"""What the source of alerts about notifications finds."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.builders.notifications import (
    a_waiting_notification,
    every_notification_is,
    no_notifications,
    set_rule,
    the_notifier_has_read,
    the_notifier_looked,
)
from tests.builders.outputs import an_output, forget_outputs
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Observation
from truelog.alerts.sources import notifications
from truelog.notifications import history
from truelog.storage.database import Connection
from truelog.support.settings import Settings

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def database(connection: Connection) -> Iterator[Connection]:
    no_notifications(connection)
    yield connection
    no_notifications(connection)
    forget_outputs(connection)


def causes(observation: Observation) -> dict[str, str]:
    assert {finding.kind for finding in observation.findings} <= KINDS.keys()
    return {finding.key: finding.cause for finding in observation.findings}


@pytest.mark.parametrize("looked", [None, 31 * SECOND])
def test_a_notifier_that_is_down_is_found_if_it_is_needed(
    postgresql: Settings, database: Connection, looked: timedelta | None
) -> None:
    if looked is not None:
        the_notifier_looked(database, looked)
    assert notifications.observe(postgresql) == Observation()
    set_rule(database, "outage", "hit", "outages")
    a_waiting_notification(database, "ops", 90 * SECOND)
    found = notifications.observe(postgresql)
    assert causes(found)["notifier_down/notifier"].startswith("the notifier has n")
    assert (len(found.findings), *found.unseen) == (1, "notifications_waiting/ops")
    the_notifier_looked(database, SECOND)
    assert causes(notifications.observe(postgresql)).keys() == {"notifications_waiting/ops"}


def test_what_waits_for_a_minute_is_found(postgresql: Settings, database: Connection) -> None:
    the_notifier_looked(database, SECOND)
    a_waiting_notification(database, "young", 5 * SECOND)
    an_output(database, "new", ago=5 * SECOND)
    the_notifier_has_read(database, "new", 0)
    an_output(database, "read", ago=90 * SECOND)
    the_notifier_has_read(database, "read", 1)
    assert notifications.observe(postgresql) == Observation()
    a_waiting_notification(database, "ops", 90 * SECOND, failed="it answered 503")
    an_output(database, "hits", ago=90 * SECOND)
    the_notifier_has_read(database, "hits", 0)
    found = causes(notifications.observe(postgresql))
    assert found.keys() == {"notifier_behind/hits", "notifications_waiting/ops"}
    assert found["notifier_behind/hits"].startswith("1 changed rows are not read; the oldest is 90 s old")
    assert found["notifications_waiting/ops"].endswith("it answered 503")


def test_what_never_arrives_is_found_for_an_hour(postgresql: Settings, database: Connection) -> None:
    a_waiting_notification(database, "old", 3 * HOUR, failed="it answered 400")
    every_notification_is(database, "refused", 61 * MINUTE)
    a_waiting_notification(database, "arrived", HOUR)
    every_notification_is(database, "delivered", MINUTE)
    a_waiting_notification(database, "ended", HOUR)
    every_notification_is(database, "over", MINUTE)
    assert notifications.observe(postgresql) == Observation()
    a_waiting_notification(database, "ops", 2 * MINUTE, failed="it answered 413")
    every_notification_is(database, "refused", MINUTE)
    a_waiting_notification(database, "mail", 72 * HOUR, failed="it answered 503")
    every_notification_is(database, "abandoned", MINUTE)
    found = causes(notifications.observe(postgresql))
    assert found["notifications_lost/ops"] == (
        "1 notifications of the last hour never arrived; the newest: it answered 413"
    )
    assert found.keys() == {"notifications_lost/ops", "notifications_lost/mail"}
    lost = history.deliveries(database, None, 10, lost=True)
    assert [each["channel"] for each in lost] == ["mail", "ops", "old"]
