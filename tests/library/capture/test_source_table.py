"""A table that cannot be captured exactly is refused with the cure, by the real catalog of PostgreSQL."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from runtime import connect, source_database
from runtime.postgresql import admin
from tests.command import answer, truelog
from tests.servers import drop_database
from truelog.capture import comparison, connector, slot, snapshot, source_table
from truelog.schema.event import EventType
from truelog.schema.loading.events import EVENTS, load_events
from truelog.storage.database import Connection
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import Settings

CUSTOMERS = load_events()["customers"]


@pytest.fixture(scope="module")
def captured(postgresql: Settings) -> Iterator[Settings]:
    """The embedded source as `truelog up` prepares it."""
    settings = postgresql.model_copy(update={"source_database": f"{postgresql.database_name}_shop"})
    source_database.prepare(settings, [CUSTOMERS])
    yield settings
    drop_database(settings, settings.source_database)


@pytest.fixture
def owner(captured: Settings) -> Iterator[Connection]:
    """A transaction of the table's owner, which is rolled back."""
    with admin(captured, captured.source_database) as session, session.transaction(force_rollback=True):
        yield session


def problem(session: Connection, event_type: EventType = CUSTOMERS) -> str | None:
    return source_table.problem(session, Names(), event_type)


def test_the_prepared_table_can_be_captured_by_the_role(captured: Settings) -> None:
    source_database.prepare(captured, [CUSTOMERS])  # again
    with psycopg.connect(**captured.source()) as session:
        assert problem(session) is None
        assert session.execute("SELECT count(*) FROM customers").fetchone() == (0,)


FAULTS = {
    "the table is missing": ("DROP TABLE customers", "does not exist"),
    "another primary key": (
        "ALTER TABLE customers DROP CONSTRAINT customers_pkey, ADD PRIMARY KEY (name)",
        "needs the primary key id, which the event type declares; it has name",
    ),
    "no primary key": ("ALTER TABLE customers DROP CONSTRAINT customers_pkey", "it has none"),
    "two rows may have one key until the commit": (
        "ALTER TABLE customers DROP CONSTRAINT customers_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
        "Make the constraint customers_pkey again without DEFERRABLE",
    ),
    "rows of another table": (
        "CREATE TABLE vips () INHERITS (customers)",
        "Run ALTER TABLE vips NO INHERIT public.customers",
    ),
    "a column that PostgreSQL computes": (
        "ALTER TABLE customers DROP COLUMN city, ADD COLUMN city text GENERATED ALWAYS AS (name) STORED",
        "public.customers.city is a generated column",
    ),
    "changes without whole rows": ("ALTER TABLE customers REPLICA IDENTITY DEFAULT", "REPLICA IDENTITY FULL"),
    "a column was dropped": ("ALTER TABLE customers DROP COLUMN city", "has no column city"),
    "a column was renamed": ("ALTER TABLE customers RENAME city TO town", "has no column city"),
    "a type that no event has": ("ALTER TABLE customers ALTER city TYPE tsvector USING NULL", "leave it out"),
    "an interval": (
        "ALTER TABLE customers ALTER city TYPE interval USING NULL",
        "city has the type interval: leave it out",
    ),
    "a time of day": ("ALTER TABLE customers ALTER city TYPE time USING NULL", "city has the type time: leave it out"),
    "a number as text": ("ALTER TABLE customers ALTER city TYPE bigint USING 1", "declare it as int"),
    "no publication": ("DROP PUBLICATION truelog_customers", "CREATE PUBLICATION"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_would_not_arrive_exactly_is_refused(fault: str, owner: Connection) -> None:
    statement, words = FAULTS[fault]
    owner.execute(sql.SQL(statement))
    assert words in str(problem(owner))


def test_a_column_that_disappears_during_the_capture_stops_it_and_leaves_the_comparison_unknown(
    captured: Settings,
) -> None:
    [before] = slot.captures(captured, [CUSTOMERS])
    with admin(captured, captured.source_database) as session:
        session.execute("ALTER TABLE customers RENAME city TO town")
        try:
            [found] = slot.captures(captured, [CUSTOMERS])
            compared = comparison.compare(captured, "customers", CUSTOMERS)
        finally:
            session.execute("ALTER TABLE customers RENAME town TO city")
    verdict, reason = slot.verdict(found, captured.capture_retained_bytes)
    assert (before.refused, verdict, compared.verdict) == (None, slot.Verdict.STOPPED, comparison.UNKNOWN)
    for text in (reason, compared.reason):
        assert text.startswith("public.customers has no column city")
        assert "`truelog capture snapshot customers`" in text


def test_the_command_line_says_that_a_comparison_is_unknown_or_that_an_option_is_wrong(captured: Settings) -> None:
    chosen = {"TRUELOG_CAPTURE": "true", "TRUELOG_SOURCE_DATABASE": captured.source_database}
    with admin(captured, captured.source_database) as session:
        session.execute("ALTER TABLE customers RENAME city TO town")
        try:
            [found] = answer("reconcile", "customers", "--source", exit_code=3, **chosen)["views"]
        finally:
            session.execute("ALTER TABLE customers RENAME town TO city")
    assert (found["verdict"], "has no column city" in found["reason"]) == ("UNKNOWN", True)
    for words in (["reconcile", "--source"], ["reconcile", "customers", "--source", "--repair"]):
        assert "with the names of views" in truelog(*words, **chosen).stderr
    for words in (["capture", "snapshot", "orders"], ["reconcile", "orders", "--source"]):
        wrong = truelog(*words, **chosen)
        assert (wrong.returncode, "is not a captured table" in wrong.stderr) == (2, True)
    assert "TRUELOG_CAPTURE=true" in truelog("capture", "status").stderr


ORDERS = """
from truelog import Change, Topic
TOPIC = Topic(key="id", subject=(), partitions=1, retention="7 days", compacted=True, source="public.orders")
class Orders(Change):
    id: int | None = None
"""


def test_a_bad_table_is_left_out_with_its_reason_and_another_has_a_connector(
    captured: Settings, kafka: Settings, tmp_path: Path
) -> None:
    shutil.copy(EVENTS / "customers.py", tmp_path)
    (tmp_path / "orders.py").write_text(ORDERS)
    settings = captured.model_copy(update={"events_folder": tmp_path, "capture": True})
    connect.configure(settings)
    assert [each.stem for each in connector.connectors(settings).iterdir()] == ["customers"]
    types = source_table.captured_types(settings)
    refused = {each.event_type: each.refused for each in slot.captures(settings, types.values())}
    assert refused == {"customers": None, "orders": "public.orders does not exist in the captured database."}


PARTITIONED = (
    "DROP TABLE customers",
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text, email text, city text, credit numeric, "
    "is_active boolean, since timestamptz) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF customers FOR VALUES FROM (0) TO (100)",
    "ALTER PUBLICATION truelog_customers ADD TABLE customers",
)


def test_a_partitioned_table_needs_whole_rows_of_each_partition(captured: Settings, owner: Connection) -> None:
    for statement in PARTITIONED:
        owner.execute(statement.encode())
    assert '"public"."low" REPLICA IDENTITY FULL' in str(problem(owner))
    for prepared in source_table.preparation(owner, CUSTOMERS, captured.source_user):
        owner.execute(prepared)
    assert problem(owner) is None
    owner.execute("CREATE TABLE high PARTITION OF customers FOR VALUES FROM (100) TO (200)")
    cure = 'run ALTER TABLE "public"."high" REPLICA IDENTITY FULL.'
    assert problem(owner) == f"public.customers does not log whole rows: {cure}"


def test_a_real_is_one_number_however_java_and_postgresql_write_it(owner: Connection) -> None:
    written = {"1e-45": "1.4e-45", "1.1754944e-38": "1.17549435e-38", "0.1": "0.1"}
    form = sql.SQL(source_table.REAL)
    for table, view in written.items():
        values = form.format(sql.SQL("{}::real").format(table)), form.format(sql.SQL("{}::float8").format(view))
        assert owner.execute(sql.SQL("SELECT {} = {}").format(*values)).fetchone() == (True,)


def test_an_enum_and_a_new_column_are_no_problem(owner: Connection) -> None:
    owner.execute("CREATE TYPE mood AS ENUM ('good')")
    owner.execute("ALTER TABLE customers ADD COLUMN age int, ALTER city TYPE mood USING NULL")
    assert problem(owner) is None


def test_the_statements_for_the_owner_are_those_of_the_page() -> None:
    """docs/change-data-capture.md shows them."""
    assert source_table.publication(Names(), CUSTOMERS) == "truelog_customers"
    assert source_table.schema_and_table(CUSTOMERS) == ("public", "customers")


def test_tables_with_long_names_have_different_slots() -> None:
    names = ["t" * length for length in (1, 55, 56, 62, 63)] + ["t" * 62 + "u"]
    slots = [source_table.publication(Names(), replace(CUSTOMERS, name=name)) for name in names]
    assert slots[:2] == [f"truelog_{name}" for name in names[:2]]
    assert len({*slots}) == len(names)
    assert max(map(len, slots)) == 63


def test_a_snapshot_also_drops_the_slot_of_an_earlier_release_unless_it_is_another_tables() -> None:
    short, long = (replace(CUSTOMERS, name="t" * length) for length in (55, 56))
    other = replace(CUSTOMERS, name="u" * 56)
    assert snapshot.slots(Names(), short, [short, long]) == [f"truelog_{short.name}"]
    assert snapshot.slots(Names(), long, [short, long]) == [source_table.publication(Names(), long)]
    both = [source_table.publication(Names(), other), f"truelog_{'u' * 55}"]
    assert snapshot.slots(Names(), other, [short, long, other]) == both


def test_two_environments_capture_a_table_by_different_names(captured: Settings) -> None:
    red = captured.model_copy(update={"namespace": "red"})
    found = [connector.configuration(each, CUSTOMERS, 1) for each in (captured, red)]
    for option in ("name", "topic.prefix", "slot.name", "publication.name", "transforms.topic.replacement"):
        plain, named = (each[option] for each in found)
        assert named in {f"red.{plain}", f"red_{plain}"}
    query = found[1][f"snapshot.select.statement.overrides.{CUSTOMERS.topic.source}"]
    assert "'truelog_snapshot_red.customers'" in query
    long = source_table.publication(red.names, replace(CUSTOMERS, name="t" * 60))
    assert long.startswith("red_truelog_ttt")
    assert len(long) == 63


def test_a_slot_that_is_absent_is_no_problem_and_one_that_exists_is_dropped(captured: Settings) -> None:
    name = f"truelog_{'u' * 55}"
    with admin(captured, captured.source_database) as session:
        snapshot._drop_slot(session, name)
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        snapshot._drop_slot(session, name)
        assert not session.execute("SELECT FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchall()
