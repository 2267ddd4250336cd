"""Every table has a retention, and old rows are deleted in portions, except the rows that something still needs."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import product

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from tests.builders.applications import a_launch, an_application, an_operation, forget_application
from tests.builders.comparisons import a_base, a_certificate, a_reconciliation, a_repair, a_validation
from tests.builders.notifications import a_row_that_waits, no_notifications, told_of
from tests.builders.past import a_question, forget_questions
from tests.builders.rows import NO_TIME
from tests.builders.views import a_share, forget
from tests.deadline import deadline, until
from tests.library.kernel.zombie import at, counter, stage_events
from truelog.archive.table import open_catalog
from truelog.batch import base, partials
from truelog.control import view_status
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.maintenance import retention
from truelog.maintenance.retention import RETENTION, Expiring, delete_old_rows
from truelog.maintenance.superseded import Version, drop_superseded
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage

LONG = timedelta(days=400)
OLD = "now() - interval '400 days'"


@pytest.fixture
def view(connection: Connection) -> Iterator[str]:
    """A name that no other test uses. All rows with the name are deleted at the end."""
    name = f"v{uuid.uuid4().hex[:8]}"
    yield name
    for each in ("certificate", "validation", "reconciliation", "repair"):
        condition = "reconciliation IN (SELECT id FROM truelog.reconciliation WHERE view = %s)"
        rows = sql.SQL(condition if each == "validation" else "view = %s")
        connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier("truelog", each), rows), (name,))


def left(connection: Connection, query: str, *parameters: object) -> list[object]:
    return [value for (value,) in connection.execute(query.encode(), parameters).fetchall()]


def test_every_table_has_a_retention(connection: Connection, postgresql: Settings) -> None:
    existing = left(connection, "SELECT tablename FROM pg_tables WHERE schemaname = 'truelog'")
    assert sorted(RETENTION) == sorted(map(str, existing))
    for name, rule in RETENTION.items():
        if isinstance(rule, Expiring):
            assert getattr(postgresql, rule.setting) > 0
            assert left(connection, f"SELECT count({rule.column}) FROM truelog.{name}")  # the column exists


def test_old_results_are_deleted_except_the_newest_and_what_a_certificate_names(
    connection: Connection, postgresql: Settings, view: str
) -> None:
    proved, old, different, newest = (
        a_reconciliation(connection, view, verdict, ago=LONG) for verdict in ("EQUAL", "EQUAL", "DIFFERENT", "EQUAL")
    )
    for each in (proved, old, newest):
        a_validation(connection, each, ago=LONG)
    a_certificate(connection, proved)
    a_repair(connection, view, ago=LONG)

    assert delete_old_rows(connection, postgresql) >= 4

    rows = "SELECT id FROM truelog.reconciliation WHERE view = %s ORDER BY id"
    assert left(connection, rows, view) == [proved, different, newest]
    rows = "SELECT reconciliation FROM truelog.validation WHERE reconciliation = ANY(%s)"
    assert left(connection, rows, [proved, old, newest]) == [newest]
    assert left(connection, "SELECT key FROM truelog.repair WHERE view = %s", view) == []


def test_a_question_about_the_past_waits_for_a_day(connection: Connection, postgresql: Settings, view: str) -> None:
    """An answer is kept for an hour."""
    a_question(connection, "new", view, timedelta(hours=23))
    a_question(connection, "old", view, timedelta(hours=25))
    a_question(connection, "told", view, timedelta(hours=2), answered=True)
    delete_old_rows(connection, postgresql)
    assert left(connection, "SELECT digest FROM truelog.past_question WHERE view = %s", view) == ["new"]
    forget_questions(connection, view)


def test_a_row_that_waits_for_its_notification_is_kept(connection: Connection, postgresql: Settings, view: str) -> None:
    a_row_that_waits(connection, view, "waits", ago=LONG)
    told_of(connection, view, "told", ago=LONG)
    delete_old_rows(connection, postgresql)
    assert left(connection, "SELECT key FROM truelog.notification_row WHERE view = %s", view) == ["waits"]
    no_notifications(connection)


def test_rows_are_deleted_in_portions(
    connection: Connection, postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_PORTION", 3)
    for ago in [LONG] * 10 + [NO_TIME] * 2:
        an_operation(connection, "planted", ago=ago)

    assert delete_old_rows(connection, postgresql) == 10

    assert left(connection, "SELECT count(*) FROM truelog.operation WHERE about = 'planted'") == [2]
    connection.execute("DELETE FROM truelog.operation WHERE about = 'planted'")


def test_a_deleted_launch_is_still_counted_and_fulfils_its_request(
    connection: Connection, postgresql: Settings, view: str
) -> None:
    an_application(connection, view, wish="again")
    for wish in (None, "again", None, None):
        a_launch(connection, view, ago=LONG, wish=wish)
    delete_old_rows(connection, postgresql)

    assert left(connection, "SELECT wish FROM truelog.launch WHERE application = %s ORDER BY id", view) == [
        "again",
        None,
    ]
    assert left(connection, "SELECT old_launches FROM truelog.application WHERE application = %s", view) == [2]
    assert left(connection, "SELECT wish FROM truelog.application_status WHERE application = %s", view) == [None]
    forget_application(connection, view)


def test_only_versions_that_were_superseded_long_ago_are_dropped(
    connection: Connection, postgresql: Settings, s3: Settings
) -> None:
    name, long_ago = f"v{uuid.uuid4().hex[:8]}", "UPDATE truelog.view SET made_at = now() - interval '40 days' "
    for version in (1, 2, 3):
        table.deploy_table(connection, counter(name, version))
    connection.execute((long_ago + "WHERE view = %s AND version <> 2").encode(), (name,))
    view_status.record_state(connection, "a", name, 3)
    with open_catalog(postgresql) as catalog:
        for namespace, version in product((partials.NAMESPACE, base.NAMESPACE), (1, 2)):
            catalog.create_namespace_if_not_exists(namespace)
            catalog.create_table(f"{namespace}.{name}_v{version}", pa.schema([("n", pa.int64())]))
    for version in (1, 2):
        a_base(connection, name, version)

    dropped = drop_superseded(postgresql)

    assert dropped == [Version(name, 1)]
    assert left(connection, "SELECT version FROM truelog.view WHERE view = %s ORDER BY 1", name) == [2, 3]
    tables = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename LIKE %s ORDER BY 1"
    assert left(connection, tables, f"{name}_v%") == [
        f"{s}.{name}_v{v}" for s in ("batch", "stage", "state") for v in (2, 3)
    ]
    with open_catalog(postgresql) as catalog:
        for namespace in (partials.NAMESPACE, base.NAMESPACE):
            assert [catalog.table_exists(f"{namespace}.{name}_v{v}") for v in (1, 2)] == [False, True]
            catalog.drop_table(f"{namespace}.{name}_v2")
    assert left(connection, "SELECT version FROM truelog.base WHERE view = %s", name) == [2]
    forget(connection, name)


def test_a_version_that_readers_see_is_not_dropped_although_the_application_reports_another(
    connection: Connection, postgresql: Settings, s3: Settings
) -> None:
    """Version 3 could not be deployed, so readers still see version 2."""
    name = f"v{uuid.uuid4().hex[:8]}"
    for version in (1, 2):
        table.deploy_table(connection, counter(name, version))
    connection.execute("UPDATE truelog.view SET made_at = now() - interval '40 days' WHERE view = %s", (name,))
    assert drop_superseded(postgresql) == []  # no application runs the view
    view_status.record_state(connection, "a", name, 3, "r")

    assert drop_superseded(postgresql) == [Version(name, 1)]

    forget(connection, name)


def test_a_version_that_a_share_of_the_readers_gets_is_not_dropped(
    connection: Connection, postgresql: Settings, s3: Settings
) -> None:
    shared, other = (f"v{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name, version in product((shared, other), (1, 2)):
        table.deploy_table(connection, counter(name, version))
        view_status.record_state(connection, f"of {name}", name, 3, "r")
    a_share(connection, shared, 1, 10)

    assert drop_superseded(postgresql.model_copy(update={"superseded_keep_seconds": 1e-6})) == [Version(other, 1)]

    forget(connection, shared, other)


def test_rows_that_a_session_is_staging_survive_a_sweep_however_old_they_are(
    connection: Connection, postgresql: Settings
) -> None:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    staged = sql.SQL(
        "INSERT INTO {} (_attempt, _row_hash, event_id, n, _loaded_at) VALUES ('a', 1, 'e', 1, {})"
    ).format(stage.table(compiled.own), sql.SQL(OLD))
    rows = f'SELECT count(*) FROM stage."{compiled.own.name}"'
    with connect(postgresql, autocommit=True) as rebuilding:
        stage.hold(rebuilding, compiled)
        connection.execute(staged)
        stage.sweep(connection, compiled)
        assert left(connection, rows) == [1]
    stage.sweep(connection, compiled)  # the session has ended, as after a kill
    assert left(connection, rows) == [0]

    with stage.held(connection, compiled), connect(postgresql, autocommit=True) as upkeep:
        connection.execute(staged)
        stage.sweep(upkeep, compiled)
        assert left(connection, rows) == [1]
    stage.sweep_all(connection)
    assert left(connection, rows) == [0]


def test_a_table_that_is_dropped_while_it_is_swept_is_passed_over(connection: Connection, postgresql: Settings) -> None:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    sweeper = "FROM pg_stat_activity WHERE pid = %s AND datname = current_database()"

    def require_waiting() -> None:
        if left(connection, f"SELECT wait_event_type {sweeper}", upkeep.info.backend_pid) != ["Lock"]:
            raise ServiceDown("the sweep has not reached the table")

    with connect(postgresql, autocommit=True) as upkeep, ThreadPoolExecutor(1) as pool:
        with stage.held(connection, compiled):
            sweeping = pool.submit(stage.sweep_all, upkeep)
            until(require_waiting, 10, "the sweep")
            connection.execute(sql.SQL("DROP TABLE {}").format(stage.table(compiled.own)))
        sweeping.result(deadline(20))


def test_two_thousand_small_batches_leave_few_dead_rows(connection: Connection, postgresql: Settings) -> None:
    """Each batch stages ten rows and updates the same ten rows. The space of dead rows is used again."""
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    with autovacuum_each_second(postgresql), connect(postgresql, autocommit=True) as writer:
        for batch in range(2_000):
            with stage.held(writer, compiled):
                staged = stage_events(writer, compiled, 0)
                merge.apply(writer, compiled, Merge(at(batch), at(batch + 1), staged))
        until(partial(require_few_dead_rows, connection, compiled.own.name), 60, "the vacuum")
    counts = left(connection, f'SELECT DISTINCT n FROM state."{compiled.own.name}"')
    assert counts == [2_000]
    for each, most in (("state", 2**18), ("stage", 2**22)):
        [size] = left(connection, f"SELECT pg_total_relation_size('{each}.{compiled.own.name}')")
        assert int(str(size)) < most, each
    [size] = left(connection, "SELECT pg_total_relation_size('truelog.position')")
    assert int(str(size)) < 2**20


def require_few_dead_rows(connection: Connection, table: str) -> None:
    names = "(schemaname, relname) IN (('state', %s), ('stage', %s), ('truelog', 'position'))"
    query = f"SELECT relname FROM pg_stat_user_tables WHERE {names} AND n_dead_tup > 2000"
    if many := left(connection, query, table, table):
        raise ServiceDown(f"dead rows in {many}")


@contextmanager
def autovacuum_each_second(settings: Settings) -> Iterator[None]:
    """In production, the vacuum runs once a minute."""
    superuser = settings.database() | {"user": "postgres", "password": settings.postgres_password.get_secret_value()}
    with psycopg.connect(**superuser, autocommit=True) as administrator:
        administrator.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        administrator.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            administrator.execute("ALTER SYSTEM RESET autovacuum_naptime")
            administrator.execute("SELECT pg_reload_conf()")
