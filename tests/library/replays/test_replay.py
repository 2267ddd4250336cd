"""A replay counts what the view counts, or what other code counts, and nothing of production changes."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.beds.archived import MORNING, Archived
from tests.builders.replays import unbuild
from tests.command import answer, truelog
from tests.library.replays.click_copies import CLOCKED, DOUBLED, FAILING, KEPT
from truelog import View
from truelog.batch.batch_context import BatchContext
from truelog.control.view_loader import load_compiled
from truelog.log.positions import Positions
from truelog.replays import replay as replaying
from truelog.replays import store
from truelog.replays.comparison import compare_with_production
from truelog.replays.replay import Wanted, make_from, require_name
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import BadDeclaration, BadInput
from truelog.support.settings import Settings
from truelog.tables import deploy, stage
from truelog.tables.compiled_view import CompiledView

SECOND = 3 * 3600


def some_clicks(ground: Archived) -> None:
    ground.click(0, [("a", "1", SECOND), ("b", "2", SECOND + 1)])
    ground.tick(SECOND + 10)
    ground.click(1, [("a", "4", SECOND + 70)])
    ground.tick(SECOND + 100)
    ground.stream()


pytestmark = pytest.mark.ground(view=KEPT, filled=some_clicks)


def hashes(connection: Connection) -> dict[str, str]:
    """A hash of the rows of each table, except of what belongs to replays."""
    query = (
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY(%s) "
        "AND tablename <> 'view_replay' AND tablename NOT LIKE '%%copy%%'"
    )
    schemas = ["truelog", "state", "stage", "batch", "recon", "views", "iceberg"]
    found = {}
    for schema, table in connection.execute(query, (schemas,)).fetchall():
        name = sql.Identifier(str(schema), str(table))
        rows = connection.execute(sql.SQL("SELECT t::text FROM {} AS t ORDER BY 1").format(name)).fetchall()
        found[f"{schema}.{table}"] = hashlib.sha256(repr(rows).encode()).hexdigest()
    shown = (
        "SELECT schemaname || '.' || viewname, definition FROM pg_views "
        "WHERE schemaname = ANY(%s) AND viewname NOT LIKE '%%copy%%'"
    )
    return found | {str(name): str(text) for name, text in connection.execute(shown, (["views", "presented"],))}


def made(ground: Archived, name: str = "copy", view: View = KEPT, **wanted: Any) -> store.Replay:
    """A replay of the view, or of other code."""
    compiled = ground.lab.compiled(name, view)
    asked: dict[str, Any] = {"keep": timedelta(days=7), "budget": 100} | wanted
    wanting = Wanted(ground.compiled.name, name, **asked)
    return make_from(ground.lab.context, compiled, wanting, lambda *_: None, doer="test")


def spent(connection: Connection, name: str = "copy") -> dict[str, int]:
    query = sql.SQL("SELECT url, spent FROM {}").format(sql.Identifier("replay", f"{name}_totals"))
    return dict(connection.execute(query).fetchall())


def test_a_replay_equals_production_and_changes_nothing(ground: Archived) -> None:
    connection, settings = ground.lab.connection, ground.lab.settings
    before = hashes(connection)
    production = {f"state.{ground.compiled.own.name}", f"views.{ground.compiled.name}"}
    assert {"truelog.view", "truelog.position", *production} < before.keys()
    copy = made(ground, keep=timedelta(0))
    assert spent(connection) == {"a": 5, "b": 2}
    found = compare_with_production(settings, copy, 20)
    assert (found.equal, found.rows, found.apart) == (True, (3, 3), 0)

    other = made(ground, "copy_of_code", view=DOUBLED)
    differs = answer("replays", "show", other.name)["difference"]
    assert (differs["different"], differs["missing"], differs["extra"]) == (3, 0, 0)
    assert differs["columns"] == {"spent": 3}
    shown = truelog("replays", "show", other.name, COLUMNS="400").stdout
    assert "3 different" in shown
    assert "spent=4" in shown
    assert "spent=8" in shown
    assert hashes(connection) == before

    listed = answer("replays", "list")["replays"]
    assert [each["name"] for each in listed] == ["copy", "copy_of_code"]
    assert [each["state"] for each in listed] == ["built", "built"]
    assert "copy_of_code" in truelog("replays", "list", COLUMNS="400").stdout
    assert store.drop_over(settings) == ["copy"]
    assert answer("replays", "drop", "copy_of_code") == {"dropped": "copy_of_code"}
    assert connection.execute("SELECT FROM pg_class WHERE relname LIKE 'copy%'").fetchall() == []
    assert truelog("replays", "show", "copy").returncode == 2


def test_an_erasure_drops_the_replays_of_its_topics(ground: Archived) -> None:
    connection = ground.lab.connection
    made(ground)
    store.drop_readers(connection, ["search"])
    assert [each.name for each in store.replays(connection)] == ["copy"]
    store.drop_readers(connection, ["search", "click"])
    assert store.replays(connection) == []
    assert connection.execute("SELECT FROM pg_class WHERE relname LIKE 'copy%'").fetchall() == []


def test_a_replay_in_use_is_left_for_later(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LONGEST_WAIT", "100ms")
    connection, settings = ground.lab.connection, ground.lab.settings
    copy = made(ground, keep=timedelta(0))
    with connect(settings) as reader:
        reader.execute("SELECT FROM replay.copy_totals")
        assert not store.drop(connection, copy)
        assert store.drop_over(settings) == []
        assert store.drop_readers(connection, ["click"]) == ["copy"]
        refused = truelog("replays", "drop", "copy", COLUMNS="400")
        assert (refused.returncode, "A query uses the replay copy" in refused.stderr) == (3, True), refused.stderr
    assert spent(connection) == {"a": 5, "b": 2}
    assert store.drop_readers(connection, ["click"]) == []
    assert store.replays(connection) == []


def test_a_replay_of_a_time_counts_only_its_records(ground: Archived) -> None:
    """The clicks lie between the begin of the log and the first tick, and between the ticks."""
    connection, between = ground.lab.connection, MORNING + timedelta(seconds=SECOND + 50)
    try:
        made(ground, "copy_until", end=between)
        made(ground, "copy_since", begin=between)
        assert spent(connection, "copy_until") == {"a": 1, "b": 2}
        assert spent(connection, "copy_since") == {"a": 4}
        copy = made(ground, "copy_from", begin=Positions({"click": {0: 1, 1: 0}}))
        apart = compare_with_production(ground.lab.settings, copy, 0).apart
        assert apart == 1, "the record before the begin"
        assert spent(connection, "copy_from") == {"a": 4, "b": 2}
        # Positions of a certificate may contain those of the clock.
        clocked = made(ground, "copy_clocked", CLOCKED, begin=Positions({"click": {0: 1}, "ticks": {0: 1}}))
        assert (clocked.begins, clocked.records) == ({"click": {"0": 1}}, 2)
        store.drop(connection, clocked)
        with pytest.raises(BadInput, match="no partition 9 of click"):
            made(ground, "copy_of_no_partition", begin=Positions({"click": {9: 0}}))
        with pytest.raises(BadInput, match="in this range"):
            made(ground, "copy_of_nothing", begin=between, end=between)
        with pytest.raises(BadInput, match="does not read search"):
            made(ground, "copy_of_others", begin=Positions({"search": {0: 1}}))
        with pytest.raises(BadInput, match=r"would read 3 records .* budget is 2 records"):
            made(ground, "copy_of_too_many", budget=2)
        assert [each.name for each in store.replays(connection)] == ["copy_from", "copy_since", "copy_until"]
    finally:
        for each in store.replays(connection):
            store.drop(connection, each)


@pytest.fixture
def views(ground: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the ground's view. The command loads code from files, in the tests' Spark session."""

    @contextmanager
    def opened(settings: Settings, _: str, view: str) -> Iterator[tuple[BatchContext, CompiledView]]:
        context = ground.lab.context
        yield context, load_compiled(context.spark, context.event_types, view, settings.views_folder)

    monkeypatch.setattr(replaying, "open_view", opened)
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(tmp_path))
    (tmp_path / f"{ground.compiled.name}.py").write_text(
        "from tests.library.replays.click_copies import KEPT\nVIEW = KEPT\n"
    )
    return tmp_path


def test_the_command_replays_the_code_of_a_file_from_positions(ground: Archived, views: Path) -> None:
    code = views / "other" / "any_name.py"
    code.parent.mkdir()
    code.write_text("from tests.library.replays.click_copies import DOUBLED\nVIEW = DOUBLED\n")
    view, connection = ground.compiled.name, ground.lab.connection
    asked = ("replay", view, "--as", "copy", "--code", str(code), "--from", '{"click":{"0":1,"1":0}}')
    try:
        found = answer(*asked)
        assert (found["view"], found["relation"], found["difference"]["other"]) == (view, "replay.copy", "copy")
        assert spent(connection) == {"a": 8, "b": 4}
        assert (found["difference"]["missing"], found["difference"]["different"]) == (1, 2)
    finally:
        store.drop(connection, store.replay_of(connection, "copy"))
    code.write_text("from tests.library.replays.click_copies import KEYED\nVIEW = KEYED\n")
    kept = truelog(*asked, COLUMNS="400")
    assert (kept.returncode, "replay.copy is made, and kept. Version 1" in kept.stderr) == (2, True), kept.stderr
    assert answer("replays", "drop", "copy") == {"dropped": "copy"}
    for wrong in ("{", "[7]", '{"click":7}', '{"click":{"0":-1}}', '{"click":{"0":"x"}}'):
        assert truelog("replay", view, "--from", wrong).returncode == 2
    refused = truelog("replay", view, "--budget", "2", COLUMNS="400")
    assert (refused.returncode, "larger --budget" in refused.stderr) == (2, True)
    assert store.replays(connection) == []


def test_broken_code_is_named_by_its_file(ground: Archived, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = tmp_path / "mended.py"
    code.write_text("VIEW = undefined\n")

    def refuse(*_: object) -> None:
        raise BadDeclaration("NameError: name 'undefined' is not defined")

    monkeypatch.setattr(replaying, "open_view", refuse)
    wanted = Wanted(ground.compiled.name, "copy", timedelta(days=7), 100, code=code)
    with pytest.raises(BadDeclaration, match=r"mended.py: NameError"):
        replaying.make(ground.lab.settings, wanted, lambda *_: None, doer="test")


def test_a_replay_that_fails_leaves_nothing(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = ground.lab.connection

    def fail(_: str) -> None:
        raise BadInput("a fault")

    monkeypatch.setattr("truelog.support.faults.reach", fail)
    with pytest.raises(BadInput, match="a fault"):
        made(ground)

    def drop_it(point: str) -> None:  # as an erasure does
        if point == "replay.staged":
            store.drop_readers(connection, ["click"])

    monkeypatch.setattr("truelog.support.faults.reach", drop_it)
    with pytest.raises(BadInput, match="was dropped while it was built"):
        made(ground)
    assert store.replays(connection) == []
    assert connection.execute("SELECT FROM pg_class WHERE relname LIKE 'copy%'").fetchall() == []


def test_an_abandoned_replay_is_replaced_or_dropped(ground: Archived) -> None:
    """A maker that was killed has left its record, its staging tables and its exclusions."""
    connection, settings, query = ground.lab.connection, ground.lab.settings, "SELECT FROM stage.copy_v1"
    made(ground)
    connection.execute("CREATE TABLE stage.copy_v1 ()")
    left = store.replay_of(connection, "copy")
    unbuild(connection, "copy")
    with connect(settings, autocommit=True) as maker:
        stage.hold(maker, ground.lab.compiled_once("copy", KEPT))
        assert answer("replays", "list")["replays"][0]["state"] == "being built"
        assert "Wait until it is built" in truelog("replays", "show", "copy", COLUMNS="400").stderr
        with pytest.raises(BadInput, match="already"), connection.transaction():
            store.register(connection, left)
        assert store.drop_over(settings) == []
    assert answer("replays", "list")["replays"][0]["state"] == "abandoned"
    assert "Make it again" in truelog("replays", "show", "copy", COLUMNS="400").stderr
    made(ground)
    assert spent(connection) == {"a": 5, "b": 2}
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute(query)
    assert store.drop(connection, left)  # which is gone: another one has its name
    assert spent(connection) == {"a": 5, "b": 2}
    unbuild(connection, "copy")
    assert store.drop_over(settings) == ["copy"]


@pytest.mark.nightly
def test_a_view_may_take_the_name_of_a_replay(ground: Archived) -> None:
    """A replay that is built has left nothing where a view of its name would put its own."""
    connection = ground.lab.connection
    copy = made(ground, view=FAILING)
    assert (copy.left_out, spent(connection)) == (1, {"a": 5})
    assert "b is refused" in str(copy.left_out_error)
    assert "left out, because the code fails on them: 1 (" in truelog("replays", "show", "copy", COLUMNS="400").stdout
    query = "SELECT FROM pg_tables WHERE schemaname <> 'replay' AND tablename LIKE 'copy%'"
    assert connection.execute(query).fetchall() == []
    assert read_value(connection, "SELECT count(*) FROM truelog.exclusion WHERE view = 'copy'") == 0
    with connection.transaction(force_rollback=True):
        deploy.deploy_table(connection, ground.lab.compiled("copy", KEPT))
        store.drop(connection, copy)
        assert connection.execute("SELECT FROM stage.copy_v1").fetchall() == []
    store.drop(connection, copy)


def test_names_that_are_taken_or_unfit_are_refused(ground: Archived, tmp_path: Path) -> None:
    settings = ground.lab.settings
    for name, why in (
        ("Copy", "lower-case"),
        ("page_views", "name of a view"),
        (ground.compiled.name, "name of a view"),
    ):
        with pytest.raises(BadInput, match=why):
            require_name(settings, name)
    made(ground)
    try:
        with pytest.raises(BadInput, match="already"):
            made(ground)
        assert spent(ground.lab.connection) == {"a": 5, "b": 2}
    finally:
        store.drop(ground.lab.connection, store.replay_of(ground.lab.connection, "copy"))
