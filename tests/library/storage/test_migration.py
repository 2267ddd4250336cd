"""Migrations: each way to the schema of this release ends in the same schema, and each migration runs once."""

import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from runtime import postgresql
from tests.deadline import deadline, until
from tests.library.advisory_lock import require_waiting
from tests.library.stored_rows import require_kept, rows_of
from tests.servers import drop_database
from truelog.measures.registry import sql_functions
from truelog.storage import api_key, migration
from truelog.storage.database import Connection, connect
from truelog.support.errors import SchemaRefused
from truelog.support.settings import Settings

migrate = partial(migration.migrate, functions=sql_functions())

BEFORE = (Path(__file__).parent / "before_migrations.sql").read_bytes()
MIGRATIONS = [file.stem for file in sorted((Path(migration.__file__).parent / "sql/migrations").glob("*.sql"))]
SQL = Path(migration.__file__).parent / "sql"
# What a platform of the release with four migrations has stored about a view.
STORED = b"""
INSERT INTO truelog.event_type (event, settings) VALUES ('page_view', '{}');
INSERT INTO truelog.event_version (event, version, declaration) VALUES ('page_view', 1, '{"fields": []}');
INSERT INTO truelog.view (view, version, fingerprint, spark, reads, sides, repairs)
    VALUES ('sessions', 1, '2:a', '4', '{page_view}', '{inputs}', 3);
INSERT INTO truelog.position (view, version, topic, partition, topic_id, next_offset, reading, leader_epoch)
    VALUES ('sessions', 1, 'page_view', 0, 'an-id', 7, 1, 2);
INSERT INTO truelog.merge_tally (view, version, merges, rows, preparing, merging, records)
    VALUES ('sessions', 1, 5, 9, 1.5, 0.5, 7);
INSERT INTO truelog.exclusion (view, version, topic, partition, "offset", error, topic_id, reading, refuted)
    VALUES ('sessions', 1, 'page_view', 0, 3, 'not a number', 'an-id', 1, false);
INSERT INTO truelog.oversized_group (view, version, "group") VALUES ('sessions', 1, '["v1"]');
INSERT INTO truelog.tick (topic_id, "offset", time, ends) VALUES ('ticks-id', 4, now(), '{}');
INSERT INTO truelog.proof (view, version, day) VALUES ('sessions', 1, now());
INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, extra, different, repaired,
    verdict, reason, sample) VALUES ('sessions', 1, '{}', true, 4, 0, 0, 0, 0, 'EQUAL', '', '[]');
INSERT INTO truelog.certificate (id, view, version, reconciliation, positions, fingerprint, row_count, digest, object,
    made_at) SELECT 'c1', view, version, id, positions, '2:a', 4, 'd', 'c1.json', now() FROM truelog.reconciliation;
INSERT INTO truelog.operation (kind, subject, doer, about) VALUES ('repair', 'sessions', 'ann', '1 row');
INSERT INTO truelog.alert (kind, subject, cause, found_at) VALUES ('groups_oversized', 'sessions', 'one', now());
"""
OURS = "nspname IN ('truelog', 'state', 'stage', 'batch', 'recon', 'views', 'replay', 'iceberg')"
CATALOG = {
    "schemas": f"SELECT nspname, nspacl::text FROM pg_namespace WHERE {OURS}",
    "relations": "SELECT relname, relkind, relpersistence, relacl::text, obj_description(c.oid, 'pg_class') "
    f"FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE {OURS}",
    "columns": "SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attacl::text, "
    "pg_get_expr(adbin, adrelid), col_description(attrelid, attnum) FROM pg_attribute a "
    "JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace "
    "LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum) "
    f"WHERE {OURS} AND attnum > 0 AND NOT attisdropped",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(c.oid) FROM pg_constraint c "
    f"JOIN pg_namespace n ON n.oid = connamespace WHERE {OURS}",
    "indexes": f"SELECT indexdef FROM pg_indexes JOIN pg_namespace n ON nspname = schemaname WHERE {OURS}",
    "views": f"SELECT viewname, definition FROM pg_views JOIN pg_namespace n ON nspname = schemaname WHERE {OURS}",
    "functions": "SELECT pg_get_functiondef(p.oid), proacl::text FROM pg_proc p "
    f"JOIN pg_namespace n ON n.oid = pronamespace WHERE {OURS}",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}


@pytest.fixture
def empty(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A database with the schemas and the rights that `truelog up` has made, but without tables."""
    with database(postgresql, monkeypatch) as made:
        yield made


@pytest.fixture
def old(empty: Settings) -> Settings:
    """A database that the last commit without numbered migrations has made."""
    with connect(empty) as connection:
        connection.execute(BEFORE)
    return empty


@contextmanager
def database(server: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    made = server.model_copy(update={"database_name": f"migrated_{uuid.uuid4().hex[:8]}"})
    with monkeypatch.context() as patched:
        patched.setattr(postgresql, "migrate", lambda *_: None)
        patched.setattr(postgresql, "grant_to_processes", lambda _: None)
        patched.setattr(api_key, "store_first_keys", lambda _: None)
        postgresql.prepare(made)
    yield made
    drop_database(made, made.database_name)


def catalog(settings: Settings) -> dict[str, list[str]]:
    with connect(settings) as connection:
        return {what: sorted(map(str, connection.execute(query.encode()))) for what, query in CATALOG.items()}


def applied(settings: Settings) -> list[tuple[object, ...]]:
    with connect(settings) as connection:
        rows = connection.execute("SELECT name, number, applied_at FROM truelog.migration ORDER BY number").fetchall()
    assert [number for _, number, _ in rows] == list(range(1, len(rows) + 1))
    return rows


def names(settings: Settings) -> list[object]:
    return [name for name, *_ in applied(settings)]


def one(connection: Connection, query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    assert row
    return row[0]


def test_every_way_ends_in_the_same_schema(
    old: Settings, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(old)
    assert names(old) == MIGRATIONS
    with database(postgresql, monkeypatch) as new:
        migrate(new)
        assert names(new) == MIGRATIONS
        there = catalog(new)
    found = catalog(old)
    assert all(there[what] for what in there if what != "triggers")
    for what, rows in there.items():
        assert found[what] == rows, what
    first = applied(old)
    migrate(old)
    assert (applied(old), catalog(old)) == (first, found)


def test_the_first_migration_keeps_what_a_platform_has_stored(old: Settings) -> None:
    with connect(old) as connection:
        connection.execute(
            "INSERT INTO truelog.view (view, version, fingerprint, fingerprint_2, spark) "
            "VALUES ('present', 2, 'a', '2:b', ''), ('older', 1, 'c', NULL, '');"
            "INSERT INTO truelog.alert (kind, subject, cause, found_at) VALUES ('stalled', 'present', '', now());"
            "INSERT INTO truelog.launch (application, reason) VALUES ('stream', 'dead'), ('stream', 'changed')"
        )
    migrate(old)
    with connect(old) as connection:
        query = "SELECT view, fingerprint FROM truelog.view ORDER BY view"
        assert connection.execute(query).fetchall() == [("older", "c"), ("present", "2:b")]
        assert one(connection, "SELECT kind FROM truelog.alert") == "stalled"
        assert one(connection, "SELECT array_agg(reason ORDER BY id) FROM truelog.launch") == ["down", "changed"]


def test_the_columns_of_staging_get_names_that_no_view_can_have(old: Settings) -> None:
    with connect(old) as connection:
        connection.execute(
            "CREATE TABLE stage.one_v1 (attempt text, row_hash bigint, loaded_at timestamptz DEFAULT now(), n bigint);"
            "CREATE TABLE stage.one_v1_changes (attempt text, _weight int); INSERT INTO stage.one_v1 VALUES ('a', 1)"
        )
    migrate(old)
    with connect(old) as connection:
        query = (
            "SELECT array_agg(attname ORDER BY attnum) FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
        )
        columns = [connection.execute(query, (f"stage.{name}",)).fetchone() for name in ("one_v1", "one_v1_changes")]
        assert columns == [(["_attempt", "_row_hash", "_loaded_at", "n"],), (["attempt", "_weight"],)]
        assert one(connection, "SELECT _attempt FROM stage.one_v1") == "a"


def test_a_release_with_four_migrations_keeps_every_row(old: Settings) -> None:
    """The release of 25 November: whatever its tables contain is still there, column by column."""
    with connect(old) as connection:
        for number, name in enumerate(MIGRATIONS[:4], 1):
            connection.execute((SQL / "migrations" / f"{name}.sql").read_bytes())
            connection.execute("INSERT INTO truelog.migration (number, name) VALUES (%s, %s)", (number, name))
        connection.execute(STORED)
        before = rows_of(connection)
    assert len(before) >= 12
    migrate(old)
    assert names(old) == MIGRATIONS
    with connect(old) as connection:
        require_kept(before, rows_of(connection))
        assert one(connection, "SELECT count(*) FROM truelog.failed_group") == 0


def test_an_older_database_is_refused_and_says_what_to_run_first(old: Settings) -> None:
    with connect(old) as connection:
        connection.execute("ALTER TABLE truelog.lag_sample DROP COLUMN verdicts")
    before = catalog(old)
    with pytest.raises(SchemaRefused, match="Run `truelog up` of commit 8ba601a once"):
        migrate(old)
    assert catalog(old) == before


def test_a_database_of_a_newer_release_is_refused(empty: Settings) -> None:
    migrate(empty)
    with connect(empty) as connection:
        connection.execute("INSERT INTO truelog.migration (number, name) VALUES (9999, 'later')")
    with pytest.raises(SchemaRefused, match="has migration 9999 of a newer release"):
        migrate(empty)


def test_a_migration_runs_once_and_completely_or_not_at_all(
    empty: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(empty)
    before = catalog(empty)
    monkeypatch.setattr(migration, "_SQL", shutil.copytree(migration._SQL, tmp_path / "sql"))
    last = len(MIGRATIONS) + 1
    added = tmp_path / f"sql/migrations/{last:04}_more.sql"
    added.write_text("CREATE TABLE truelog.more (); DO $$ BEGIN RAISE EXCEPTION 'not now'; END $$")
    with pytest.raises(SchemaRefused, match="not now"):
        migrate(empty)
    assert (names(empty), catalog(empty)) == (MIGRATIONS, before)
    added.write_text("CREATE TABLE truelog.more ()")
    for _ in range(2):
        migrate(empty)
        assert names(empty) == [*MIGRATIONS, added.stem]


def test_a_second_start_waits_for_the_first(old: Settings) -> None:
    with connect(old, autocommit=True) as first, ThreadPoolExecutor(2) as pool:
        first.execute("SELECT pg_advisory_lock(hashtext('truelog.migrate'))")
        starts = [pool.submit(migrate, old) for _ in range(2)]
        until(partial(require_waiting, old), 30, "a start that waits")
        assert one(first, "SELECT to_regclass('truelog.migration')") is None
        first.execute("SELECT pg_advisory_unlock_all()")
        for start in starts:
            start.result(deadline(60))
    assert names(old) == MIGRATIONS
