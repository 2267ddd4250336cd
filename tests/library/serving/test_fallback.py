"""Fallbacks from a real archive: what they contain, when views need them, and when they are not stored."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import sql

from tests.beds.archived import MORNING, Archived
from tests.builders.applications import a_lease, forget_application, last_batch
from tests.builders.rows import NO_TIME
from tests.builders.views import a_batch_refusal
from tests.deadline import deadline, until
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.batch.rebuild import Rebuilder
from truelog.control import application, view_status
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.maintenance.upkeep import drop_expired_partials
from truelog.reconcile.reconcile import reconcile
from truelog.serving import fallback, fallback_policy
from truelog.serving import status as serving_status
from truelog.serving.status import BATCH, STREAM
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables import stage


def two_clicks(ground: Archived) -> None:
    """A view whose stream has merged everything in the archive."""
    ground.click(0, [("old", "5", 0), ("a", "1", 5_000)])
    ground.stream()


pytestmark = pytest.mark.ground(filled=two_clicks)


def read(ground: Archived) -> tuple[str, dict[str, int]]:
    """The layer that readers get, and its rows."""
    name = ground.compiled.name
    query = sql.SQL("SELECT url, spent FROM {}").format(sql.Identifier("views", name))
    rows = {str(url): int(str(spent)) for url, spent in ground.lab.connection.execute(query).fetchall()}
    return serving_status.serving_statuses(ground.lab.connection)[name].layer, rows


def test_readers_get_the_archived_rows_until_the_stream_has_them(ground: Archived) -> None:
    """The fallback drops rows that its clock has expired and skips a record that the stream has yet to fail on."""
    assert fallback.build_fallback(ground.rebuilder) is None
    ground.click(1, [("a", "4", 5_000), ("poison", "x", 9_000)])
    ground.tick(8_000)
    assert fallback.build_fallback(ground.rebuilder) == ground.positions
    assert read(ground) == (BATCH, {"a": 5})

    ground.click(0, [("b", "2", 9_000)])
    assert fallback.build_fallback(ground.rebuilder) == ground.positions
    assert read(ground) == (BATCH, {"a": 5, "b": 2})
    ground.stream()
    assert read(ground) == (STREAM, {"a": 5, "b": 2})
    assert fallback.build_fallback(ground.rebuilder) is None


def test_a_stream_that_returns_during_the_build_keeps_its_readers(ground: Archived) -> None:
    """During the build, the stream merges the archived click and a click that is not in the archive."""
    ground.click(0, [("b", "2", 5_000)])
    lab, compiled = ground.lab, ground.compiled
    ahead = (
        "UPDATE truelog.position SET next_offset = next_offset + 2"
        " WHERE view = %s AND (topic, partition) = ('click', 0)"
    )
    with connect(lab.settings, autocommit=True) as streaming, ThreadPoolExecutor(1) as pool:
        with streaming.transaction():
            merge.lock(streaming, compiled)
            building = pool.submit(fallback.build_fallback, ground.rebuilder)
            until(lambda: _require_waiting(lab.settings), 60, "the build to wait for the lock")
            streaming.execute(ahead.encode(), (compiled.name,))
        assert building.result(deadline(60)) is None

    assert read(ground) == (STREAM, {"old": 5, "a": 1})
    for left in (sql.Identifier("batch", compiled.own.name), stage.table(compiled.own)):
        assert lab.connection.execute(sql.SQL("SELECT FROM {}").format(left)).fetchall() == []


def test_readers_get_the_fallback_while_streamed_rows_are_wrong(ground: Archived) -> None:
    lab, state = ground.lab, sql.Identifier("state", ground.compiled.own.name)
    lab.connection.execute(sql.SQL("UPDATE {} SET spent = 7 WHERE url = 'a'").format(state))
    assert fallback.build_fallback(ground.rebuilder) is None  # no comparison has found the error yet
    reconcile(lab.context, ground.compiled)
    assert read(ground) == (STREAM, {"old": 5, "a": 7})
    assert "differ from the rebuild" in serving_status.serving_statuses(lab.connection)[ground.compiled.name].reason

    assert fallback.build_fallback(ground.rebuilder) == ground.positions
    assert read(ground) == (BATCH, {"old": 5, "a": 1})
    assert fallback.build_fallback(ground.rebuilder) is None  # readers already get the fallback

    lab.connection.execute(sql.SQL("UPDATE {} SET spent = 1 WHERE url = 'a'").format(state))
    reconcile(lab.context, ground.compiled)
    assert read(ground) == (STREAM, {"old": 5, "a": 1})


def test_partials_that_were_trimmed_before_a_restore_are_not_used(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep has read more of the log than the restored archive contains, and dropped a row that counts there."""
    lab, own = ground.lab, ground.compiled.own
    ground.tick(100)
    begin, end = Positions({}, ground.ids), ground.positions
    states = ground.rebuilder.states_between(own, begin, end)
    partials.replace(lab.spark, lab.settings, own, PartialRange(MORNING, begin, end), states)
    with monkeypatch.context() as later:
        later.setattr(Rebuilder, "now", lambda *_: MORNING + timedelta(seconds=5_000))
        drop_expired_partials(lab.context, ground.compiled)
    left = partials.load_partials(lab.settings, own)
    kept = left.read(lab.spark, left.ranges)
    assert kept is not None
    assert [row["url"] for row in kept.collect()] == ["a"]

    ground.stream()
    lab.connection.execute(sql.SQL("UPDATE {} SET spent = 7 WHERE url = 'a'").format(sql.Identifier("state", own.name)))
    found = reconcile(lab.context, ground.compiled)
    assert (found.verdict, found.missing, found.extra, found.different) == ("DIFFERENT", 0, 0, 1)
    assert fallback.build_fallback(ground.rebuilder) == ground.positions
    assert read(ground) == (BATCH, {"old": 5, "a": 1})


def test_a_fallback_is_due_when_a_stream_makes_no_batches(ground: Archived, tmp_path: Path) -> None:
    connection, name, app = ground.lab.connection, ground.compiled.name, f"app {ground.compiled.name}"
    (tmp_path / f"{name}.py").write_text("")
    settings = ground.lab.settings.model_copy(update={"views_folder": tmp_path, "batch_answer_seconds": 60.0})
    view_status.record_state(connection, app, name, 1)
    application.declare(connection, [app])
    a_lease(connection, app, batch=NO_TIME)

    ground.click(0, [("b", "2", 5_000)])
    assert fallback_policy.views_due(settings) == []  # the stream's last batch is recent
    last_batch(connection, app, ago=timedelta(minutes=5))
    assert fallback_policy.views_due(settings) == [name]

    a_batch_refusal(connection, name, "its code changed", files=application.source_digest(settings))
    assert fallback_policy.views_due(settings) == []
    reason = serving_status.serving_statuses(connection)[name].reason
    assert reason == f"{app} is not running; it cannot be rebuilt: its code changed"
    (tmp_path / f"{name}.py").write_text("# repaired")
    assert fallback_policy.views_due(settings) == [name]

    assert fallback.build_fallback(ground.rebuilder) is not None
    ground.click(0, [("c", "3", 5_000)])
    assert fallback_policy.views_due(settings) == []  # the fallback is new
    connection.execute("UPDATE truelog.batch_answer SET made_at = made_at - interval '5 min' WHERE view = %s", (name,))
    assert fallback_policy.views_due(settings) == [name]
    assert fallback.build_fallback(ground.rebuilder) is not None
    connection.execute("UPDATE truelog.batch_answer SET made_at = made_at - interval '5 min' WHERE view = %s", (name,))
    assert fallback_policy.views_due(settings) == []  # the archive has nothing new

    last_batch(connection, app)
    ground.click(0, [("d", "4", 5_000)])
    assert fallback_policy.views_due(settings) == []
    assert connection.execute("SELECT FROM truelog.batch_refusal WHERE view = %s", (name,)).fetchall() == []
    view_status.record_state(connection, app, name, 1, "no disk")
    connection.execute("UPDATE truelog.standing SET since = since - interval '5 min' WHERE view = %s", (name,))
    assert fallback_policy.views_due(settings) == [name]
    forget_application(connection, app)


def _require_waiting(settings: Settings) -> None:
    """Use a new connection each time, because PostgreSQL freezes these statistics within a transaction."""
    query = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE '%FOR UPDATE'"
    )
    with connect(settings) as connection:
        if connection.execute(query).fetchone() is None:
            raise ServiceDown("the build does not wait yet")
