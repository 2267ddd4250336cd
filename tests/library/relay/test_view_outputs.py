"""The outputs of views on real servers: what the outbox gets, and what readers of the topic arrive at."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import sql

from tests.builders.erasures import forget_erasures, lacks
from tests.builders.outputs import another_history, deploy_and_settle, older, the_relay_looked
from tests.command import answer
from tests.library.open_transaction import open_transaction
from tests.library.relay.published import EXACT, Published, declared, deployed
from tests.library.relay.read_topic import records
from tests.nightly_cases import nightly_except
from tests.scenes.applications import start
from truelog.kernel import merge
from truelog.lag import output_lag
from truelog.lag.verdict import LagVerdict
from truelog.log import topics
from truelog.log.kafka_reader import headers_of
from truelog.maintenance import outbox_limit, resync
from truelog.relay import view_feed, view_outputs
from truelog.relay.view_feed import ViewFeed
from truelog.services.relay import recent_look, service
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import BadDeclaration, BadInput, ServiceDown
from truelog.support.settings import Settings
from truelog.tables.output import outbox
from truelog.views.view import View

POINTS = ("relay.started", "relay.sent", "relay.committed")


def publish(settings: Settings) -> None:
    """Publish until nothing is left, as the service does."""
    with view_outputs.open_outputs(settings) as outputs:
        while outputs.publish():
            pass


def trouble(view: Published) -> str:
    [(found,)] = view.connection.execute(
        "SELECT trouble FROM truelog.output WHERE view = %s", (view.compiled.name,)
    ).fetchall()
    return str(found)


def test_a_reader_from_nothing_arrives_at_the_table(platform: Settings, view: Published) -> None:
    for _ in range(30):
        view.change_at_random()
    publish(platform)
    view.change({"p1": EXACT, "p2": "-0.5"})
    publish(platform)
    view.require_read()
    assert view.rows()['{"product":"p1"}'] == f'{{"product":"p1","amount":{EXACT}}}'


def test_the_headers_of_a_record(platform: Settings, view: Published) -> None:
    view.change({"p1": "1", "p2": "2"})
    view.change({}, "p1")
    publish(platform)
    first, _, removed = records(platform, view.topic)
    headers = {name: (value or b"").decode() for name, value in headers_of(first)}
    assert headers.pop("ce_time").endswith("+00:00")
    step, _, number = headers.pop("ce_id").partition(":")
    assert (len(step), number) == (36, "1")
    assert headers == {
        "truelog.view": view.compiled.name,
        "truelog.version": "1",
        "truelog.number": "1",
        "truelog.last": "2",
        "truelog.positions": "{}",
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_type": "truelog.row.changed",
        "ce_source": f"/views/{view.compiled.name}/v1",
    }
    assert dict(headers_of(removed))["ce_type"] == b"truelog.row.removed"
    assert removed.value() is None


@pytest.mark.parametrize("point", nightly_except(["relay.sent"], POINTS))
def test_nothing_is_lost_or_repeated_if_the_service_is_killed(platform: Settings, view: Published, point: str) -> None:
    fault = f"{point}:{1 if point == 'relay.started' else 3}:kill"
    killed = start(platform, str(Path(service.__file__)), fault=fault)
    while killed.process.poll() is None:
        view.change_at_random()
    killed.wait_kill()
    for _ in range(20):
        view.change_at_random()
    publish(platform)
    view.require_read()


def test_a_transaction_that_is_undone_draws_no_number(view: Published) -> None:
    with view.connection.transaction(force_rollback=True):
        view.change({"p1": "1"})
        assert view.number() == 1
    view.change({"p2": "2"})
    assert view.outbox() == [(1, '{"product":"p2"}', '{"product":"p2","amount":2.000000000000}')]


def test_the_times_of_transactions_follow_their_order(platform: Settings, view: Published) -> None:
    """A transaction may begin long before it changes the view, such as the build of a version."""
    with connect(platform) as connection:
        began = read_value(connection, "SELECT now()")
        view.change({"p1": "1"})
        replace(view, connection=connection).change({"p2": "2"})
    query = "SELECT array_agg(made_at ORDER BY last) FROM truelog.output_step WHERE view = %s"
    first, second = read_value(view.connection, query, (view.compiled.name,))
    assert began < first < second


def test_a_row_that_becomes_what_it_was_is_no_change(view: Published) -> None:
    view.change({"p1": "1", "p2": "2"})
    with view.connection.transaction():
        merge.lock(view.connection, view.compiled)
        view.change_unpublished({"p1": "7"}, "p2")
        view.change_unpublished({"p1": "1.0", "p2": "2", "p3": "3"}, "p3")
        outbox.record_changes(view.connection, view.compiled)
    assert view.number() == 2


def test_removed_keys_come_before_changed_ones(view: Published) -> None:
    view.change({"p5": "1", "p9": "1"})
    view.change({"p1": "1", "p9": "2"}, "p5")
    assert [(key, value is None) for _, key, value in view.outbox()[2:]] == [
        ('{"product":"p5"}', True),
        ('{"product":"p1"}', False),
        ('{"product":"p9"}', False),
    ]


def test_an_output_begins_with_the_whole_table_and_removes_what_the_topic_has_left(
    platform: Settings, view: Published
) -> None:
    """A view that stops to publish, and begins again later."""
    view.change({"p1": "1", "p2": "2"})
    publish(platform)
    deploy_and_settle(view.connection, declared(view.compiled.name, publish=False))
    assert view.outbox() == []
    view.change_unpublished({"p3": "3"}, "p1")
    deploy_and_settle(view.connection, view.compiled)
    publish(platform)
    table, numbers = view.read()
    assert table == view.rows()
    assert numbers == [1, 2, 3, 3, 4]  # the removal of p1 belongs to the first row of the new beginning
    deploy_and_settle(view.connection, view.compiled)  # changes nothing
    assert view.number() == 4


@contextmanager
def restored(view: Published) -> Iterator[None]:
    """The block's changes are lost, as after a restore from a backup."""
    tables = [view.state, *(sql.Identifier("truelog", each) for each in ("output", "output_step", "outbox"))]
    for each in tables:
        copy = sql.Identifier("recon", f"backup_{each._obj[-1]}"[:60])
        view.connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
        view.connection.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, each))
    yield
    with view.connection.transaction():
        for each in tables:
            copy = sql.Identifier("recon", f"backup_{each._obj[-1]}"[:60])
            view.connection.execute(sql.SQL("DELETE FROM {}").format(each))
            view.connection.execute(sql.SQL("INSERT INTO {} SELECT * FROM {}").format(each, copy))
        view.connection.execute(
            sql.SQL("DELETE FROM {}").format(sql.Identifier("stage", f"{view.compiled.own.name}_changes"))
        )


def test_a_restored_database_needs_a_resync(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.change({"p1": "1", "p2": "2"})
    publish(platform)
    with restored(view):
        view.change({"lost": "3"}, "p2")
        publish(platform)
    for _ in range(3):  # now the database contains other rows under the same numbers
        view.change_at_random()
    before = view.read()
    publish(platform)
    assert view.read() == before
    assert trouble(view).startswith("resync: ")
    [lag] = output_lag.outputs(view.connection)
    assert output_lag.assess(lag, platform)[0] is LagVerdict.REWIND
    monkeypatch.setattr(resync, "open_view", lambda *_: nullcontext((None, view.compiled)))
    named = {"view": view.compiled.name, "version": 1, "topic": view.topic}
    assert answer("output", "resync", view.compiled.name) == named
    publish(platform)
    table, numbers = view.read()
    assert table == view.rows()
    assert numbers == sorted(numbers)
    assert trouble(view) == ""


def test_a_relay_that_stays_down_does_not_fill_the_outbox(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit, the earliest transactions leave. A resync leads readers to the table again."""
    limited = platform.model_copy(update={"outbox_rows": 4})
    view.change({"p1": "1", "p2": "1"})
    publish(platform)
    for number in range(2, 7):
        view.change({"p1": str(number), "p2": str(number)})
    outbox_limit.keep(limited)
    assert len(view.outbox()) == 12  # a relay that works may be behind
    the_relay_looked(view.connection, timedelta(seconds=40))
    outbox_limit.keep(platform)
    assert len(view.outbox()) == 12
    outbox_limit.keep(limited)
    assert [number for number, _, _ in view.outbox()] == [9, 10, 11, 12]
    [lag] = output_lag.outputs(view.connection)
    assert output_lag.assess(lag, limited)[0] is LagVerdict.REWIND
    publish(platform)
    assert trouble(view).startswith("resync: ")
    assert [number for number, _, _ in view.outbox()] == [9, 10, 11, 12]
    monkeypatch.setattr(resync, "open_view", lambda *_: nullcontext((None, view.compiled)))
    answer("output", "resync", view.compiled.name)
    the_relay_looked(view.connection, timedelta(seconds=40))
    outbox_limit.keep(limited)  # only the rows of the new beginning wait
    assert trouble(view) == ""
    publish(platform)
    table, numbers = view.read()
    assert (table, numbers) == (view.rows(), [1, 2, 13, 14])


def test_the_outbox_of_a_view_that_is_held_back_is_bounded(platform: Settings, view: Published) -> None:
    """The relay works, and publishes nothing of it."""
    limited = platform.model_copy(update={"outbox_rows": 2})
    the_relay_looked(view.connection, timedelta(0))
    for number in range(4):
        view.change({"p1": str(number)})
    outbox_limit.keep(limited)
    assert len(view.outbox()) == 4
    lacks(view.connection, 1)
    outbox_limit.keep(limited)
    assert [number for number, _, _ in view.outbox()] == [3, 4]
    assert trouble(view).startswith("resync: ")
    forget_erasures(view.connection)


def test_a_beginning_over_the_limit_is_kept_whole(platform: Settings, view: Published) -> None:
    """Only what has really left the outbox needs a resync. Then it leaves, too, in portions."""
    limited = platform.model_copy(update={"outbox_rows": 2})
    view.change_unpublished({f"p{number}": "1" for number in range(4)})
    with view.connection.transaction():
        merge.lock(view.connection, view.compiled)
        outbox.begin(view.connection, view.compiled)
    the_relay_looked(view.connection, timedelta(seconds=40))
    outbox_limit.keep(limited)
    assert (len(view.outbox()), trouble(view)) == (4, "")
    view.change({"p1": "2", "p2": "2"})
    outbox_limit.keep(limited)
    assert [number for number, _, _ in view.outbox()] == [5, 6]
    assert trouble(view).startswith("resync: ")


def test_an_output_that_cannot_be_limited_does_not_hold_back_the_next(
    platform: Settings, view: Published, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows leave one transaction at a time, so a statement ends in time."""
    monkeypatch.setattr(outbox_limit, "_PATIENCE", "SET statement_timeout = '300ms'")
    monkeypatch.setattr(outbox_limit, "_STEPS", 1)
    limited = platform.model_copy(update={"outbox_rows": 1})
    locked, other = sorted((view, deployed(platform, connection)), key=lambda each: each.compiled.name)
    for each in (locked, other):
        for number in range(4):
            each.change({"p1": str(number)})
    the_relay_looked(connection, timedelta(seconds=40))
    with connect(platform) as holder:
        holder.execute("SELECT FROM truelog.outbox WHERE view = %s FOR UPDATE", (locked.compiled.name,))
        outbox_limit.keep(limited)
    assert [len(each.outbox()) for each in (locked, other)] == [4, 1]
    assert trouble(locked) == ""
    deploy_and_settle(connection, declared(other.compiled.name, publish=False))
    deploy_and_settle(connection, declared(locked.compiled.name, publish=False))


def test_only_a_published_output_begins_again(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "open_view", lambda *_: nullcontext((None, declared("other", publish=False))))
    with pytest.raises(BadInput, match="other does not publish"):
        resync.resync(platform, "other", "a test")


def test_whole_transactions_are_published_together(
    platform: Settings, view: Published, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.change({"p1": "1", "p2": "1"})
    view.change({"p3": "1", "p4": "1"})
    view.change({f"p{n}": "2" for n in range(7)})
    feed = ViewFeed(platform, connection, view.compiled.name, 1)
    monkeypatch.setattr(ViewFeed, "_published", lambda _: iter(()))
    monkeypatch.setattr(view_feed, "_PORTION", 3)
    assert [len(feed.next_rows(n)) for n in (1, 3, 5, 12)] == [2, 2, 7, 0]
    monkeypatch.setattr(view_feed, "_PORTION", 4)
    assert len(feed.next_rows(1)) == 4
    monkeypatch.setattr(view_feed, "_MOST", 5)
    assert [len(feed.next_rows(n)) for n in (5, 10)] == [5, 2]


def test_a_new_beginning_waits_until_all_keys_of_the_topic_can_be_read(
    platform: Settings, view: Published, connection: Connection
) -> None:
    """A key that it overlooks would stay in the topic for ever."""
    view.change({"p1": "1"})
    publish(platform)
    feed = ViewFeed(platform, connection, view.compiled.name, 1)
    with open_transaction(platform, view.topic), pytest.raises(ServiceDown, match="has not ended"):
        feed.next_rows(1)
    assert len(feed.next_rows(1)) == 1


@pytest.mark.parametrize("number", [2**15 - 1, 2**31 - 1, 2**40])
def test_numbers_grow_beyond_the_types_of_small_numbers(platform: Settings, view: Published, number: int) -> None:
    """The driver gives a parameter the smallest type, and the sum of two small numbers may not fit into it."""
    assert ViewFeed(platform, view.connection, view.compiled.name, 1).next_rows(number) == []


def test_published_rows_are_removed_later(platform: Settings, view: Published) -> None:
    for number in range(3):
        view.change({"p1": str(number), "p2": str(number)})
    feed = ViewFeed(platform, view.connection, view.compiled.name, 1)
    feed.trim(4)
    assert len(view.outbox()) == 6  # too young
    older(view.connection, timedelta(hours=2))
    feed.trim(4)
    assert [number for number, _, _ in view.outbox()] == [3, 4, 5, 6]
    assert feed.id_of(4) is not None
    feed.trim(6)
    assert [number for number, _, _ in view.outbox()] == [5, 6]


def test_a_quiet_output_gets_its_last_row_again(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka then begins another segment, and can compact the one before. Readers get a row that they have."""
    monkeypatch.setattr(view_outputs, "_TRIM_SECONDS", 0.0)
    view.change({"p1": "1", "p2": "2"})
    view.change({}, "p1")
    publish(platform)
    before = topics.end_offsets(platform, [view.topic])
    publish(platform)  # a day is not over
    assert topics.end_offsets(platform, [view.topic]) == before
    publish(platform.model_copy(update={"output_compaction_seconds": 0.001}))
    assert topics.end_offsets(platform, [view.topic]) != before
    table, numbers = view.read()  # the broker may have compacted the topic by now
    assert (table, numbers[-1], {*numbers} <= {1, 2, 3}) == (view.rows(), 3, True)
    view.change({"p3": "3"})
    publish(platform)
    assert view.read()[1][-1] == 4


def test_the_verdict_on_an_output_that_is_behind(platform: Settings, view: Published) -> None:
    def verdict() -> LagVerdict:
        [lag] = output_lag.outputs(view.connection)
        return output_lag.assess(lag, platform)[0]

    publish(platform)
    assert verdict() is LagVerdict.OK
    view.change({"p1": "1"})
    assert verdict() is LagVerdict.OK
    for seconds, expected in ((70, LagVerdict.WARN), (180, LagVerdict.STALL)):
        older(view.connection, timedelta(seconds=seconds))
        assert verdict() is expected
    the_relay_looked(view.connection, timedelta(seconds=40))
    assert verdict() is LagVerdict.STOP
    with pytest.raises(ServiceDown, match="last looked 40 s ago"):
        recent_look.require_recent_look(platform)
    publish(platform)
    assert verdict() is LagVerdict.OK
    recent_look.require_recent_look(platform)


def test_two_views_do_not_wait_for_each_other(platform: Settings, view: Published, connection: Connection) -> None:
    other = deployed(platform, connection)
    view.change({"p1": "1"})
    publish(platform)
    another_history(connection)
    view.change({"p2": "1"})
    other.change({"p1": "1"})
    publish(platform)
    assert trouble(view).startswith("resync: ")
    other.require_read()
    deploy_and_settle(connection, declared(other.compiled.name, publish=False))


def test_a_batch_only_view_has_no_changes_to_publish() -> None:
    with pytest.raises(BadDeclaration, match="publish"):
        View(reads=(), transform=lambda: None, key=(), measures={}, batch_only=True, publish=True)  # type: ignore[arg-type, return-value]
