"""A captured table: the view equals the table, whatever happens to the table, to Connect and to the slot."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import cycle

import pytest
from pydantic import SecretStr

from demo import capture as demo
from tests.beds.world import World
from tests.command import answer, truelog
from tests.deadline import deadline
from tests.meanwhile import meanwhile
from tests.scenes import written
from tests.scenes.batch import Batch
from tests.scenes.captured_kinds import NEVER, Kinds, captured_kinds, row_of
from tests.scenes.captured_shop import NAME, CapturedShop, captured_shop, changes_of
from tests.scenes.compacted_topic import compact, view_of_topic
from tests.servers import Environment
from truelog.alerts.sources import resources
from truelog.capture import comparison, epochs, invalid_changes, last_comparison, snapshot, worker
from truelog.capture.comparison import SourceComparison
from truelog.capture.slot import Verdict
from truelog.capture.source_table import publication
from truelog.schema.record_validation import TOMBSTONE
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown

pytestmark = pytest.mark.nightly

SINCE = datetime(2020, 2, 29, 12, tzinfo=UTC)
FIRST = [
    (1, "Ann", "ann@shop.example", "Oslo", "12.50", True, SINCE),
    (2, "Bob", None, "", "0.00", False, None),
    (3, "Eve", "eve@shop.example", "Turin", "-1", None, datetime(1, 1, 1, tzinfo=UTC)),
]


@pytest.fixture(scope="module")
def shop(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedShop]:
    with captured_shop(world, tmp_path_factory.mktemp("shop"), FIRST) as made:
        yield made


def test_the_first_snapshot_is_the_table(shop: CapturedShop) -> None:
    shop.require_equal(rows=3)
    assert shop.current() == FIRST


def test_the_command_line_shows_the_capture(shop: CapturedShop) -> None:
    shop.require_equal(rows=3)
    [found] = answer("capture", "status")["tables"]
    assert (found["event_type"], found["verdict"], found["failure"], found["invalid"]) == (NAME, "OK", None, [])
    assert found["slot"]["wal_status"] == "reserved"
    [equal] = answer("reconcile", NAME, "--source")["views"]
    assert (equal["view"], equal["verdict"], equal["rows"], equal["keys"]) == (NAME, "EQUAL", 3, [])
    assert answer("capture", "status")["tables"][0]["compared"]["verdict"] == "EQUAL"
    assert truelog("capture", "status").stdout.startswith(f"{NAME}  OK  behind: ")
    with connect(shop.settings, autocommit=True) as connection:
        last_comparison.record(connection, NAME, SourceComparison(NAME, comparison.DIFFERENT, 3, extra=1))
    assert answer("capture", "status", exit_code=1)["tables"][0]["verdict"] == "OK"
    assert truelog("reconcile", NAME, "--source").stdout.startswith(f"{NAME}  3 rows  0 missing")


def test_a_slot_that_retains_too_much_is_an_alert(shop: CapturedShop) -> None:
    assert resources.observe_capture(shop.settings).findings == ()
    tight = shop.settings.model_copy(update={"capture_retained_bytes": 1})
    [found] = resources.observe_capture(tight).findings
    assert (found.kind, found.subject) == ("capture_behind", NAME)


def test_every_kind_of_change_reaches_the_view(shop: CapturedShop) -> None:
    shop.run(
        "UPDATE customers SET name = 'Ann B.', credit = NULL WHERE id = 1",
        "UPDATE customers SET id = 20 WHERE id = 2",
        "DELETE FROM customers WHERE id = 3",
        "INSERT INTO customers (id, name) VALUES (4, 'Max')",
        "BEGIN; DELETE FROM customers WHERE id = 4; INSERT INTO customers (id, name) VALUES (4, 'Mia'); COMMIT",
    )
    shop.require_equal(rows=3)
    assert [row[:2] for row in shop.current()] == [(1, "Ann B."), (4, "Mia"), (20, "Bob")]
    shop.run("TRUNCATE customers", "INSERT INTO customers (id, name) VALUES (1, 'Ann')")
    shop.require_equal(rows=1)
    assert shop.invalid() == []


def test_the_changes_of_the_demo_reach_the_view(shop: CapturedShop) -> None:
    """The steps of `make demo-cdc` before the payment."""
    shop.run(*demo.CHANGES)
    assert (demo.equal(shop.settings).rows, shop.current()[0][3]) == (1, "Bergen")


def test_a_kill_of_connect_in_a_large_copy_loses_and_doubles_nothing(shop: CapturedShop) -> None:
    """COPY gives several rows the same place in the log, at which the connector may stop."""
    shop.copy_customers(range(1_000, 21_000))
    shop.require_equal(rows=20_001)


def test_a_busy_table_is_compared(shop: CapturedShop) -> None:
    """Some rows change during every comparison. Only a row that changes during each of them cannot be compared."""

    def change(numbers: range, ended: threading.Event) -> None:
        with shop.connect() as session:
            for number in cycle(numbers):
                session.execute("UPDATE customers SET city = %s WHERE id = %s", (str(time.monotonic()), number))
                if ended.wait(0.02):
                    return

    for numbers, verdict in ((range(1_000, 21_000), comparison.EQUAL), (range(1_000, 1_003), comparison.UNKNOWN)):
        with meanwhile(partial(change, numbers)):
            found = shop.compared()
        assert (found.verdict, found.rows) == (verdict, 20_001)
    assert found.keys == ("1000", "1001", "1002")
    shop.require_equal(rows=20_001)


def test_a_look_at_the_changes_takes_as_many_portions_as_it_has_time_for(
    shop: CapturedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invalid_changes, "_PORTION", 5_000)
    with connect(shop.settings, autocommit=True) as connection:
        epochs.begin(connection, NAME)
        invalid_changes.follow(shop.settings, connection, shop.event_type, 0)
        [one] = invalid_changes.summaries(connection, [NAME]).values()
        invalid_changes.follow(shop.settings, connection, shop.event_type, deadline(60))
        [all_] = invalid_changes.summaries(connection, [NAME]).values()
    assert (one.unjudged > 10_000, all_.unjudged) == (True, 0)


def test_transactions_of_a_hundred_thousand_rows_are_captured_whole(shop: CapturedShop) -> None:
    """An insertion during which Connect is killed, a change and a deletion."""
    shop.require_equal()
    before = shop.current()
    shop.copy_customers(range(200_000, 300_000))
    shop.wait_until_equal(240, "the view of the new rows")
    shop.require_equal(rows=len(before) + 100_000)
    shop.run("UPDATE customers SET city = 'Bergen' WHERE id >= 200000")
    shop.wait_until_equal(240, "the view of the changed rows")
    changed = "SELECT count(*) FROM views.customers_current WHERE id >= 200000 AND city = 'Bergen'"
    assert shop.world.ask(changed) == [(100_000,)]
    shop.run("DELETE FROM customers WHERE id >= 200000")
    shop.wait_until_equal(240, "the view without these rows")
    assert shop.current() == before


def test_a_transaction_that_is_open_during_a_restart_is_captured_whole(shop: CapturedShop) -> None:
    shop.run("INSERT INTO customers (id, name) SELECT n, 'new' FROM generate_series(30000, 30500) n")
    shop.require_equal()  # the slot exists: PostgreSQL makes none before the transactions that are open have ended
    with shop.connect() as session:
        session.execute("BEGIN")
        session.execute("UPDATE customers SET city = 'Bergen' WHERE id BETWEEN 30000 AND 30499")
        shop.run("UPDATE customers SET city = 'Rome' WHERE id = 30500")
        shop.require_equal()
        shop.kill_connect()
        session.execute("UPDATE customers SET city = 'Lund' WHERE id = 30001")
        session.execute("COMMIT")
    shop.require_equal()
    cities = "SELECT city, count(*) FROM views.customers_current WHERE id >= 30000 GROUP BY 1 ORDER BY 1"
    assert shop.world.ask(cities) == [("Bergen", 499), ("Lund", 1), ("Rome", 1)]
    shop.run("DELETE FROM customers WHERE id >= 30000")
    shop.require_equal()


def test_the_view_equals_its_rebuild_from_raw_bytes(
    shop: CapturedShop, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(shop.settings.views_folder))
    batch.require_equal_from_raw([NAME])


def test_a_new_snapshot_leaves_no_ghosts(shop: CapturedShop) -> None:
    """A row that disappears without a record in the log is found by the comparison, and closed by a new snapshot."""
    shop.run("ALTER PUBLICATION truelog_customers SET (publish = 'insert, update')")
    shop.run("DELETE FROM customers WHERE id BETWEEN 1000 AND 1099")
    [found] = answer("reconcile", NAME, "--source", exit_code=1)["views"]
    assert (found["verdict"], found["extra"], found["missing"], found["different"]) == ("DIFFERENT", 100, 0, 0)
    shop.run("ALTER PUBLICATION truelog_customers SET (publish = 'insert, update, delete, truncate')")
    assert answer("capture", "snapshot", NAME) == {"event_type": NAME, "epoch": 2}
    shop.wait_until_equal(120, "the second snapshot")
    shop.run("UPDATE customers SET name = 'Ann again' WHERE id = 1")
    shop.require_equal(rows=19_901)


def test_special_numbers_long_values_and_new_columns_arrive_exactly(shop: CapturedShop) -> None:
    shop.run(
        "INSERT INTO customers (id, credit) VALUES (50, 'NaN'), (51, 'Infinity'), (52, '-Infinity'), (53, 1e30)",
        "UPDATE customers SET name = (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n) "
        "WHERE id = 50",
        "UPDATE customers SET city = 'Turin' WHERE id = 50",  # does not log the long name again
        "ALTER TABLE customers ADD COLUMN extra int DEFAULT 7",
        "UPDATE customers SET extra = 8 WHERE id = 51",
        "ALTER TABLE customers ALTER COLUMN name TYPE varchar(90000)",
        "INSERT INTO customers (id, name) VALUES (60, 'after the changes of the table')",
    )
    shop.require_equal()


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        ("ALTER TABLE customers RENAME COLUMN city TO town", "ALTER TABLE customers RENAME COLUMN town TO city"),
        ("ALTER TABLE customers DROP COLUMN city", "ALTER TABLE customers ADD COLUMN city text"),
    ],
)
def test_without_a_declared_column_changes_are_invalid_and_a_snapshot_is_the_way_back(
    shop: CapturedShop, change: str, cure: str
) -> None:
    """No value becomes NULL in the view. A deletion needs no other column than the key."""
    shop.run("INSERT INTO customers (id, name, city) VALUES (90, 'Ann', 'Oslo'), (91, 'Bob', 'Rome')")
    shop.require_equal()
    before = shop.current()
    shop.run(change, "DELETE FROM customers WHERE id = 91", "UPDATE customers SET name = 'Anna' WHERE id = 90")
    verdict, reason = shop.verdicts(shop.event_type)[NAME]
    assert (verdict, "public.customers has no column city" in reason) == (Verdict.STOPPED, True)
    assert shop.compared().verdict == comparison.UNKNOWN
    shop.stream.wait(lambda: shop.invalid_rows() != [], 60, "the invalid change")
    [alert] = shop.invalid_rows()
    assert alert.cause.startswith("1 rows. city: public.customers has no such column")
    shop.stream.wait(lambda: shop.world.caught_up(NAME, [NAME]), 60, "the view")
    assert shop.current() == [row for row in before if row[0] != 91]
    shop.run(cure)
    shop.take_snapshot()
    assert shop.invalid_rows() == []
    assert shop.world.ask("SELECT name FROM views.customers_current WHERE id >= 90 AND id <= 91") == [("Anna",)]
    shop.run("DELETE FROM customers WHERE id = 90")


def test_a_value_that_no_event_has_leaves_the_row_as_it_was_and_the_comparison_finds_it(shop: CapturedShop) -> None:
    shop.run("UPDATE customers SET since = 'infinity' WHERE id = 1")
    found = shop.compared()
    assert (found.verdict, found.different, found.keys) == (comparison.DIFFERENT, 1, ("1",))
    shop.run("UPDATE customers SET since = NULL WHERE id = 1")
    shop.require_equal()


def test_a_dropped_slot_is_lost_loudly_and_a_snapshot_is_the_way_back(shop: CapturedShop) -> None:
    shop.run("INSERT INTO customers (id, name) VALUES (70, 'Zoe')")
    shop.require_equal()
    shop.stop_connector()
    shop.drop_slot()
    shop.run("DELETE FROM customers WHERE id = 70")
    assert answer("capture", "status", exit_code=1)["tables"][0]["verdict"] == "LOST"
    assert [each.kind for each in resources.observe_capture(shop.settings).findings] == ["capture_stopped"]
    shop.resume_connector()
    assert "FAILED" in shop.failed()  # it does not go on behind the lost changes
    assert shop.verdict() is Verdict.LOST
    shop.take_snapshot()


def test_after_lost_offsets_another_epoch_has_the_changes_that_were_skipped(shop: CapturedShop) -> None:
    """A disk was full, for example. Debezium begins with a snapshot, and skips what the slot has kept for it."""
    shop.run("INSERT INTO customers (id, name) VALUES (81, 'Ann'), (82, 'Bob')")
    shop.require_equal()
    shop.run("UPDATE customers SET name = 'Anna' WHERE id = 81")
    shop.require_equal()
    before = shop.epoch()
    shop.lose_offsets(
        meanwhile=("UPDATE customers SET name = 'Eve' WHERE id = 81", "DELETE FROM customers WHERE id = 82")
    )
    shop.wait_until_equal(240, "the snapshot")
    shop.wait_for_offsets()
    shop.kill_connect()
    shop.run("DELETE FROM customers WHERE id = 81")
    shop.require_equal()
    assert (shop.epoch(), shop.verdict()) == (before + 1, Verdict.OK)


def test_a_snapshot_of_an_empty_table_or_with_an_invalid_last_row_leaves_no_ghosts(shop: CapturedShop) -> None:
    shop.require_equal()
    shop.run(
        "ALTER PUBLICATION truelog_customers SET (publish = 'insert, update')",
        "DELETE FROM customers",
        "INSERT INTO customers (id, since) VALUES (7, 'infinity')",
    )
    snapshot.take(shop.settings, shop.event_type)
    shop.stream.wait(lambda: shop.current() == [], 120, "the snapshot whose last row is invalid")
    found = shop.compared()
    assert (found.verdict, found.missing, found.extra, found.keys) == (comparison.DIFFERENT, 1, 0, ("7",))
    [alert] = shop.invalid_rows()
    assert (alert.kind, alert.subject) == ("capture_invalid", NAME)
    assert alert.cause.startswith("1 rows. since:")
    shop.run("UPDATE customers SET since = NULL WHERE id = 7")
    shop.require_equal(rows=1)
    assert shop.invalid_rows() == []
    shop.run("DELETE FROM customers")
    snapshot.take(shop.settings, shop.event_type)
    shop.wait_until_equal(120, "the snapshot of the empty table")
    shop.run("ALTER PUBLICATION truelog_customers SET (publish = 'insert, update, delete, truncate')")
    shop.require_equal(rows=0)


def test_the_compacted_topic_alone_gives_the_view(shop: CapturedShop, batch: Batch) -> None:
    """Kafka removes the rows of the last snapshot, because each of them has changed since, and the deleted row.

    The topic still has rows that the snapshot did not contain. Only the end of the snapshot says that they are gone.
    """
    shop.run(
        "DELETE FROM customers",
        "INSERT INTO customers (id, name, email, city, credit, is_active, since) SELECT n, 'before', "
        "n || '@shop.example', 'Oslo', n - 0.50, n > 2, '2020-02-29 12:00+00' FROM generate_series(1, 9) n",
    )
    shop.require_equal(rows=9)
    shop.run(
        "ALTER PUBLICATION truelog_customers SET (publish = 'insert, update')",
        "DELETE FROM customers WHERE id > 5",
        "ALTER PUBLICATION truelog_customers SET (publish = 'insert, update, delete, truncate')",
    )
    shop.take_snapshot()
    shop.run(
        "UPDATE customers SET name = 'after'",
        "UPDATE customers SET email = NULL, credit = NULL, is_active = NULL, since = NULL WHERE id = 4",
        "DELETE FROM customers WHERE id = 5",
    )
    shop.require_equal(rows=4)
    compact(shop)
    changes = [each for each in changes_of(shop.settings, shop.event_type) if each["invalid"] is None]
    ended = max(each["source_place"] for each in changes if each["source_operation"] == "ended")
    assert {each["source_operation"] for each in changes if each["source_place"] > ended} == {"updated", "heartbeat"}
    view = view_of_topic(batch, shop.settings)
    assert shop.current(view) == shop.current()
    assert {6, 7, 8, 9} <= {number for (number,) in shop.world.ask("SELECT id FROM views.customers_of_topic")}


def test_an_attempt_of_a_snapshot_that_is_killed_leaves_no_ghosts(shop: CapturedShop) -> None:
    """Rows that only the killed attempt read are deleted before the next attempt, and no record says so."""
    shop.run("INSERT INTO customers (id, name) SELECT n, 'row' FROM generate_series(100001, 160000) n")
    shop.require_equal()
    before = shop.end()
    snapshot.take(shop.settings, shop.event_type)
    shop.wait_for_records(before)
    shop.kill_connect(meanwhile="DELETE FROM customers WHERE id > 100000 AND id < 120000")
    shop.wait_until_equal(240, "the second attempt")


@pytest.fixture(scope="module")
def kinds(shop: CapturedShop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinds]:
    """A second captured table."""
    with captured_kinds(shop, tmp_path_factory.mktemp("kinds")) as made:
        yield made


def test_a_value_of_each_type_arrives_exactly_or_not_at_all(kinds: Kinds) -> None:
    first = kinds.changes()
    [nested] = [each["invalid"] for each in first if each["invalid"]]
    assert nested.startswith("codes: an array with several dimensions")
    kinds.run("UPDATE kinds SET small = 7 WHERE id IN (2, 5)", "DELETE FROM kinds WHERE id = 30")
    table = kinds.table()
    kinds.run(*NEVER.values())
    changes = kinds.changes()
    rows = {each["id"]: row_of(each) for each in changes if each["id"] and each["source_operation"] != "deleted"}
    assert rows == table
    reasons = [str(each["invalid"]) for each in changes[len(first) :] if each["invalid"] not in (None, TOMBSTONE)]
    assert [each.partition(":")[0].partition(".")[0] for each in reasons] == [*NEVER]


def test_a_table_whose_capture_fails_stops_no_other(shop: CapturedShop, kinds: Kinds) -> None:
    name = kinds.event_type.name
    shop.stop_connector(name)
    shop.drop_slot(publication(shop.settings.names, kinds.event_type))
    shop.resume_connector(name)
    assert "FAILED" in shop.failed(name)
    shop.run("INSERT INTO customers (id, name) VALUES (80, 'Kim')")
    shop.require_equal()
    found = shop.verdicts(shop.event_type, kinds.event_type)
    assert {each: verdict for each, (verdict, _) in found.items()} == {NAME: Verdict.OK, name: Verdict.LOST}


def test_secrets_are_in_no_log_topic_process_or_answer(shop: CapturedShop, environment: Environment) -> None:
    settings = shop.settings
    fields = (settings.kafka_connect_password, settings.source_password, settings.connect_password)
    secrets = [field.get_secret_value().encode() for field in fields]
    assert all(len(secret) > 20 for secret in secrets)
    parts = ("config", "status", "tasks")
    answers = {part: worker.ask(settings, "GET", f"/connectors/{NAME}/{part}") for part in parts}
    found = {name: json.dumps(each).encode() for name, each in answers.items()}
    found |= written.processes(shop.pid()) | written.records(settings)
    found |= written.logs(settings.home, environment.server_home)
    assert found.keys() >= {*parts, NAME, "connect.log", "kafka.log", "postgresql.log", "arguments", "environment"}
    assert all(found[name] for name in (*parts, NAME, "connect.log", "arguments", "environment"))
    assert [name for name, each in found.items() if any(secret in each for secret in secrets)] == []


def test_connect_answers_nobody_without_the_password(shop: CapturedShop) -> None:
    wrong = shop.settings.model_copy(update={"connect_password": SecretStr("wrong")})
    for path in ("/", "/connectors", f"/connectors/{NAME}/config", "/admin/loggers"):
        with pytest.raises(ServiceDown, match="401"):
            worker.ask(wrong, "GET", path)
