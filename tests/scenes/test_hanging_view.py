"""A view whose merge waits for a lock: it is reported as stalled, and its application goes on with the other views."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from psycopg import sql

from tests.beds.world import World
from tests.scenes.applications import start
from truelog.storage.database import connect
from truelog.views.catalogue import VIEWS

HANGING, FREE = "locked_views", "free_views"
_REASON = "SELECT reason FROM truelog.standing WHERE view = %s AND state = 'STALLED'"


@pytest.mark.nightly
def test_one_locked_table_stops_one_view(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for view in (HANGING, FREE):
        shutil.copy(VIEWS / "page_views.py", tmp_path / f"{view}.py")
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    monkeypatch.setenv("TRUELOG_APPLICATIONS", json.dumps(dict.fromkeys((HANGING, FREE), "locked")))
    monkeypatch.setenv("TRUELOG_HANG_SECONDS", "3")
    monkeypatch.setenv("TRUELOG_BATCH_GRACE_SECONDS", "1")
    world.traffic.send(20)
    stream = start(world.settings, "stream.py", "--application", "locked")
    world.catch_up(stream, HANGING)

    table = world.ask(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'state' AND tablename LIKE %s", f"{HANGING}%"
    )[0][0]

    def batch_at() -> datetime:
        return world.ask("SELECT batch_at FROM truelog.lease WHERE application = 'locked'")[0][0]  # type: ignore[no-any-return]

    with connect(world.settings) as locking:
        locking.execute("SET idle_in_transaction_session_timeout = 0")
        locking.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(sql.Identifier("state", table)))
        pid = locking.info.backend_pid

        def is_reported() -> bool:
            world.traffic.send(1)  # an application looks at its views after each batch
            return any(f"PostgreSQL process {pid}" in text for (text,) in world.ask(_REASON, HANGING))

        stream.wait(is_reported, 60, "the hanging view to be stalled behind the lock")
        for _ in range(2):
            before = batch_at()
            world.traffic.send(20)
            stream.wait(lambda: world.caught_up(FREE), 60, "the free view to catch up")
            stream.wait(lambda before=before: batch_at() > before, 60, "the end of a batch")  # type: ignore[misc]
        assert not world.caught_up(HANGING)
    world.catch_up(stream, HANGING)
    stream.wait(lambda: not world.ask(_REASON, HANGING), 30, "its status")
    assert stream.end() == 0
    for view in (HANGING, FREE):
        world.require_total(view)
