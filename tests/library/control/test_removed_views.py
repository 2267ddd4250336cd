"""A view whose file is gone says so, and leaves a minute later. If the file comes back, so does the view."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pyspark.sql.types import LongType, TimestampType

from tests.builders.applications import forget_application
from tests.builders.views import forget
from tests.library.versions.two_versions import deploy_two
from truelog import Sum, View
from truelog.control import application, lease, removed_views, view_status, view_versions
from truelog.serving import status as serving_status
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

VIEW = View(
    reads=("page_view",),
    transform=lambda page_view: page_view,
    key=("minute",),
    measures={"views": Sum()},
    present={"all": "SELECT * FROM {view}"},
)


@pytest.fixture
def folder(postgresql: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "another.py").touch()
    return postgresql.model_copy(update={"views_folder": tmp_path})


@pytest.fixture
def view(folder: Settings, connection: Connection) -> Iterator[CompiledView]:
    kinds = {"minute": TimestampType(), "views": LongType()}
    compiled = CompiledView((Table(f"v{uuid.uuid4().hex[:8]}", VIEW, kinds, "a fingerprint"),))
    deploy.deploy_table(connection, compiled)
    file(folder, compiled).touch()
    yield compiled
    forget(connection, compiled.name)


def file(settings: Settings, view: CompiledView) -> Path:
    return settings.views_folder / f"{view.name}.py"


def relations(connection: Connection, view: CompiledView) -> list[str]:
    query = "SELECT relname::text FROM pg_class WHERE relnamespace = 'views'::regnamespace AND starts_with(relname, %s)"
    return sorted(name for (name,) in connection.execute(query, (view.name,)))


def reason(connection: Connection, view: CompiledView) -> str:
    return serving_status.serving_statuses(connection)[view.name].reason


def test_a_removed_view_says_so_and_leaves_a_minute_later(
    folder: Settings, connection: Connection, view: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [f"{view.name}{each}" for each in ("", "_all", "_v1", "_v1_all")]
    assert removed_views.settle(folder) == []
    assert (relations(connection, view), reason(connection, view)) == (both, "")

    file(folder, view).unlink()
    assert removed_views.settle(folder) == []
    assert relations(connection, view) == both
    assert reason(connection, view).startswith("removed: its file is gone since ")

    monkeypatch.setattr(removed_views, "GRACE_SECONDS", 0.0)
    assert removed_views.settle(folder) == [view.name]
    assert relations(connection, view) == []
    assert reason(connection, view).startswith("removed")
    assert removed_views.settle(folder) == []


def test_a_view_whose_file_comes_back_is_shown_again(
    folder: Settings, connection: Connection, view: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_views, "GRACE_SECONDS", 0.0)
    file(folder, view).unlink()
    removed_views.settle(folder)
    removed_views.settle(folder)
    file(folder, view).touch()
    deploy.deploy_table(connection, view)
    assert (len(relations(connection, view)), reason(connection, view)) == (4, "")
    assert removed_views.settle(folder) == []


def test_a_file_that_comes_back_with_another_version_shows_the_version_that_readers_saw(
    folder: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 is not built, so it would show no rows."""
    versions = deploy_two(folder, connection)
    versions.store(1, [("a", 1)])
    monkeypatch.setattr(removed_views, "GRACE_SECONDS", 0.0)
    removed_views.settle(folder)
    assert versions.name in removed_views.settle(folder)
    assert relations(connection, versions.first) == []

    for compiled in (versions.second, versions.first):  # as an application does: the declared version comes first
        deploy.deploy_table(connection, compiled)
        assert versions.seen() == [("a", 1)]
        assert view_versions.unbuilt(connection) >= {(versions.name, 2)}
    assert len(relations(connection, versions.first)) == 6
    versions.forget()


def test_a_file_that_comes_back_while_its_view_leaves_keeps_its_readers(
    folder: Settings, connection: Connection, view: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_views, "GRACE_SECONDS", 0.0)
    file(folder, view).unlink()
    removed_views.settle(folder)
    deploy.deploy_table(connection, view)  # an application has loaded the file since
    assert not removed_views._hide(folder, view.name)
    assert (len(relations(connection, view)), reason(connection, view)) == (4, "")


def test_a_file_that_is_gone_for_a_moment_changes_nothing_for_readers(
    folder: Settings, connection: Connection, view: CompiledView
) -> None:
    file(folder, view).unlink()
    removed_views.settle(folder)
    file(folder, view).touch()
    removed_views.settle(folder)
    assert (len(relations(connection, view)), reason(connection, view)) == (4, "")


def test_a_view_that_an_application_runs_or_a_missing_folder_removes_nothing(
    folder: Settings, connection: Connection, view: CompiledView
) -> None:
    file(folder, view).unlink()
    application.declare(connection, ["runs"])
    held = lease.take_lease(folder, "runs")
    view_status.begin_run(connection, "runs", {view.name: 1})
    removed_views.settle(folder)
    assert reason(connection, view) == ""
    held.release()
    forget_application(connection, "runs")

    empty = folder.views_folder / "not mounted"
    removed_views.settle(folder.model_copy(update={"views_folder": empty}))
    assert reason(connection, view) == ""


def test_a_reader_that_holds_the_view_is_waited_for(
    folder: Settings, connection: Connection, view: CompiledView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_views, "GRACE_SECONDS", 0.0)
    file(folder, view).unlink()
    removed_views.settle(folder)
    with psycopg.connect(**folder.database()) as reader:
        reader.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("views", view.name)))
        assert removed_views.settle(folder) == []
        assert len(relations(connection, view)) == 4
    assert removed_views.settle(folder) == [view.name]
