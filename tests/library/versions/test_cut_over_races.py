"""Readers are moved while a version is dropped, or deployed: the later transaction sees what the earlier one did."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.deadline import deadline, until
from tests.library.versions.two_versions import TwoVersions
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import readable
from truelog.versions.cut_over import cut_over
from truelog.versions.drop import drop

WAITING = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM truelog.view%FOR UPDATE%'
"""


def until_it_waits(connection: Connection) -> None:
    def waits() -> None:
        if connection.execute(WAITING).fetchone() is None:
            raise ServiceDown("no transaction waits")

    until(waits, 20, "a transaction to wait for the lock")


def test_a_version_that_readers_move_back_to_is_not_dropped(versions: TwoVersions, s3: Settings) -> None:
    versions.make_ready()
    cut_over(versions.settings, versions.name, doer="test")
    with ThreadPoolExecutor(1) as pool, connect(versions.settings) as other:
        readable.lock(other, versions.name)
        dropped = pool.submit(drop, versions.settings, versions.name, 1, doer="test")
        until_it_waits(versions.connection)
        readable.show(other, versions.name, 1)
        other.commit()
        with pytest.raises(BadInput, match=r"Readers of .* see version 1"):
            dropped.result(deadline(20))
    assert versions.seen() == [("a", 1)]


def test_a_deployment_beside_a_cut_over_shows_nothing(versions: TwoVersions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 would be shown in another way, because a release has changed its SQL."""
    monkeypatch.setattr(deploy, "_LOCK_TIMEOUT", "60s")
    versions.make_ready()
    table = versions.first.own
    changed = CompiledView((replace(table, view=replace(table.view, present={"idle": "SELECT url FROM {view}"})),))

    def deploy_first() -> bool:
        with connect(versions.settings, autocommit=True) as connection:
            return deploy.deploy_table(connection, changed)

    with ThreadPoolExecutor(1) as pool, connect(versions.settings) as other:
        # The deployment has found that readers see version 1 in another way, and locks the versions.
        other.execute("SELECT FROM truelog.view WHERE (view, version) = (%s, 2) FOR UPDATE", (versions.name,))
        deployed = pool.submit(deploy_first)
        until_it_waits(versions.connection)
        readable.show(other, versions.name, 2)
        other.commit()
        assert deployed.result(deadline(60))
    assert versions.seen() == [("a", 2)]
