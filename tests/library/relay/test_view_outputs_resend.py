"""Rows of an output that are published again: a consumer that has lost some arrives at the table."""

import os
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.builders.notifications import forget_place, the_notifier_has_read
from tests.builders.outputs import another_history, older
from tests.command import answer
from tests.library.relay import resend_process
from tests.library.relay.published import Published, declared, publish_all
from tests.library.relay.read_topic import records, text
from tests.scenes.applications import start
from truelog.exports import resend
from truelog.exports.query import Condition, Operator
from truelog.exports.resend import Published as Topic
from truelog.exports.resend import Resent, Wanted
from truelog.log.kafka_reader import headers_of
from truelog.relay.view_feed import ViewFeed
from truelog.services.relay import service
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import PROJECT, Settings
from truelog.tables.output import outbox
from truelog.views import catalogue

Table = dict[str, str]


def topic_now(view: Published) -> Topic:
    return resend.read_topic(view.settings, view.connection, view.compiled.name, 1)


def again(view: Published, begin: int | datetime | None, *key: Condition, published: Topic | None = None) -> Resent:
    """Publish rows again, without the compilation of the view."""
    wanted, published = Wanted(view.compiled.name, begin, key), published or topic_now(view)
    return resend.repeat(view.settings, view.connection, view.compiled, wanted, published, doer="a test")


def applied(view: Published, begin: int, end: int, table: Table) -> Table:
    """The table of a consumer that applies the records with the numbers after `begin` up to `end`."""
    found = dict(table)
    for each in records(view.settings, view.topic):
        number = int(dict(headers_of(each))["truelog.number"] or b"")
        if begin < number <= end:
            key, value = text(each.key() or b""), each.value()
            found.pop(key, None)
            found |= {} if value is None else {key: text(value)}
    return found


@pytest.mark.parametrize("seed", range(3))
def test_a_consumer_that_has_lost_some_arrives_at_the_table(platform: Settings, view: Published, seed: int) -> None:
    """It has the table of a number, and reads nothing between that and what is published again."""
    chosen, view.chosen = Random(seed), Random(seed)
    for _ in range(10):
        view.change_at_random()
    publish_all(platform)
    for _ in range(seed % 2 * 3):
        view.change_at_random()  # in the outbox only
    lost_after = chosen.randrange(view.number())
    kept = applied(view, 0, lost_after, {})
    sent = again(view, lost_after)
    view.change_at_random()
    publish_all(platform)
    assert applied(view, sent.first - 1, view.number(), kept) == view.rows()
    view.require_read()
    resent = [(key, value) for number, key, value in view.outbox() if sent.first <= number <= sent.last]
    assert len({key for key, _ in resent}) == len(resent) == sent.rows + sent.removed
    assert [value is None for _, value in resent] == [True] * sent.removed + [False] * sent.rows


def test_rows_that_vanished_get_tombstones(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect sends the present rows only, and the consumer keeps a row that the view lacks."""
    view.change({"p1": "1", "p2": "2"})
    view.change({"p1": "3"}, "p2")
    publish_all(platform)
    kept = applied(view, 0, 2, {})
    sent = again(view, 2)
    publish_all(platform)
    assert (sent.rows, sent.removed, sent.first, sent.last) == (1, 1, 5, 6)
    assert applied(view, 4, 6, kept) == view.rows()

    def without_tombstones(connection: Connection, compiled: Any, keys: list[str]) -> int:
        return repeat(connection, compiled, [key for key in keys if key in view.rows()])

    repeat = outbox.repeat
    monkeypatch.setattr(outbox, "repeat", without_tombstones)
    last = view.number()
    again(view, 2)
    publish_all(platform)
    assert applied(view, last, view.number(), kept) != view.rows()


def test_rows_since_a_time_and_rows_of_a_key(platform: Settings, view: Published) -> None:
    view.change({"p1": "1", "p2": "2"})
    publish_all(platform)
    older(view.connection, timedelta(hours=2))
    between = datetime.now(UTC)
    view.change({"p2": "3", "p3": "1"})
    publish_all(platform)
    assert (again(view, between).rows, again(view, between, Condition("product", Operator.EQUAL, "p3")).rows) == (2, 1)
    publish_all(platform)
    assert again(view, None, Condition("product", Operator.EQUAL, "p1")).rows == 1
    assert again(view, view.number()).rows == 0
    assert again(view, between, Condition("product", Operator.MISSING)).rows == 0
    with pytest.raises(BadInput, match="amount is not in the key, which has product"):
        again(view, None, Condition("amount", Operator.EQUAL, "1"))
    publish_all(platform)
    view.require_read()


def test_rows_that_leave_the_outbox_after_the_topic_was_read_are_found(platform: Settings, view: Published) -> None:
    """The relay comes back while Spark starts. Without another look at the topic, `p2` would be missing."""
    view.change({"p1": "1"})
    publish_all(platform)
    early = topic_now(view)
    view.change({"p2": "1"})
    view.change({"p3": "1"})
    publish_all(platform)
    ViewFeed(platform, view.connection, view.compiled.name, 1).trim(3, at_once=True)
    assert again(view, 1, published=early).rows == 2
    publish_all(platform)
    view.require_read()


def test_a_loss_that_is_older_than_the_tombstones_is_refused(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.change({"p1": "1"})
    view.change({"p2": "1"})
    view.change({"p3": "1"})
    publish_all(platform)
    ViewFeed(platform, view.connection, view.compiled.name, 1).trim(3, at_once=True)
    assert again(view, 1).rows == 2  # the topic has all tombstones of a day
    monkeypatch.setattr(resend, "tombstone_seconds", lambda *_: 0.0)
    with pytest.raises(BadInput, match="begin from nothing"):
        again(view, 1)
    with pytest.raises(BadInput, match="begin from nothing"):
        again(view, datetime.now(UTC) - timedelta(days=2))
    with pytest.raises(BadInput, match="no consumer has read 99"):
        again(view, 99)
    with pytest.raises(BadInput, match="--from, --key or both"):
        again(view, None)
    publish_all(platform)
    view.require_read()


def test_an_output_that_the_relay_does_not_continue_is_refused(platform: Settings, view: Published) -> None:
    view.change({"p1": "1"})
    publish_all(platform)
    another_history(view.connection)
    view.change({"p2": "1"})
    publish_all(platform)
    with pytest.raises(BadInput, match="truelog output resync"):
        again(view, 0)


def test_the_notifier_gets_no_change(view: Published, platform: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    view.change({"p1": "1"})
    publish_all(platform)
    the_notifier_has_read(view.connection, view.compiled.name, 0)
    monkeypatch.setattr(resend, "_NOTIFIER_SECONDS", 0.1)
    with pytest.raises(ServiceDown, match="notifier has not read"):
        again(view, 0)
    assert view.number() == 1
    forget_place(view.connection, view.compiled.name)
    the_notifier_has_read(view.connection, view.compiled.name, 1)
    again(view, 0)
    found = view.connection.execute(
        "SELECT number FROM truelog.notification_place WHERE view = %s", (view.compiled.name,)
    ).fetchall()
    assert found == [(2,)]


@pytest.mark.parametrize("point", ["resend.recorded", "relay.sent"])
def test_what_is_published_again_arrives_once_if_a_process_is_killed(
    platform: Settings, view: Published, point: str
) -> None:
    view.change({"p1": "1", "p2": "2"})
    view.change({"p3": "1"}, "p1")
    publish_all(platform)
    before = view.number()
    if point == "resend.recorded":
        path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
        script = str(Path(resend_process.__file__))
        start(platform, script, view.compiled.name, "2", fault=f"{point}:1:kill", PYTHONPATH=path).wait_kill()
        assert view.number() == before
    sent = again(view, 2)
    if point != "resend.recorded":
        start(platform, str(Path(service.__file__)), fault=f"{point}:1:kill").wait_kill()
    publish_all(platform)
    assert (sent.first, view.number()) == (before + 1, before + 2)
    view.require_read()


def test_the_command_names_what_it_has_sent(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.change({"p1": "1"})
    publish_all(platform)
    name = view.compiled.name
    monkeypatch.setattr(resend, "open_view", lambda *_: nullcontext((None, view.compiled)))
    monkeypatch.setattr(catalogue, "load_view", lambda *_: view.compiled.view)
    named = {"view": name, "version": 1, "topic": view.topic, "rows": 1, "removed": 0, "first": 2, "last": 2}
    assert answer("output", "resend", name, "--from", "0") == named
    assert answer("output", "resend", name, "--from", "1h", "--key", "product=p1") == named | {"first": 3, "last": 3}
    [(kind, about)] = view.connection.execute(
        "SELECT kind, about FROM truelog.operation WHERE subject = %s ORDER BY id LIMIT 1", (name,)
    ).fetchall()
    assert (kind, about) == ("resend", "version 1: 1 rows and 0 tombstones since 0")
    monkeypatch.setattr(catalogue, "load_view", lambda *_: declared(name, publish=False).view)
    with pytest.raises(BadInput, match="does not publish"):
        resend.resend(platform, Wanted(name, 0), "a test")
