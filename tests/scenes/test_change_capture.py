"""A captured table: the view equals the table, whatever happens to the table, to Connect and to the slot."""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

from demo import capture as demo
from runtime.service import log_file
from tests.beds.world import World
from tests.command import answer, truelog
from tests.deadline import deadline, until
from tests.meanwhile import meanwhile
from tests.scenes.batch import Batch
from tests.scenes.captured_kinds import NEVER, Kinds, captured_kinds, row_of
from tests.scenes.captured_shop import NAME, CapturedShop, captured_shop
from truelog.alerts.sources import resources
from truelog.capture import comparison, epochs, invalid_changes, last_comparison, snapshot, worker
from truelog.capture.comparison import SourceComparison
from truelog.capture.slot import Verdict
from truelog.capture.source_table import publication
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.schema.record_validation import TOMBSTONE
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown

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
    before = topics.end_offsets(shop.settings, [NAME]).at(NAME, 0)
    with shop.connect() as session, session.cursor().copy("COPY customers (id, name) FROM STDIN") as copy:
        for number in range(1_000, 21_000):
            copy.write_row((number, f"customer {number}"))

    def begun() -> None:
        if topics.end_offsets(shop.settings, [NAME]).at(NAME, 0) - before < 2_000:
            raise ServiceDown("the copy has not reached the topic")

    until(begun, 60, "the first rows of the copy")
    shop.kill_connect()
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


@pytest.mark.nightly
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
    shop.stream.wait(lambda: shop.compared().verdict == comparison.EQUAL, 120, "the second snapshot")
    shop.run("UPDATE customers SET name = 'Ann again' WHERE id = 1")
    shop.require_equal(rows=19_901)


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_value_that_no_event_has_leaves_the_row_as_it_was_and_the_comparison_finds_it(shop: CapturedShop) -> None:
    shop.run("UPDATE customers SET since = 'infinity' WHERE id = 1")
    found = shop.compared()
    assert (found.verdict, found.different, found.keys) == (comparison.DIFFERENT, 1, ("1",))
    shop.run("UPDATE customers SET since = NULL WHERE id = 1")
    shop.require_equal()


@pytest.mark.nightly
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
    shop.stream.wait(lambda: shop.compared().verdict == comparison.EQUAL, 120, "the snapshot of the empty table")
    shop.run("ALTER PUBLICATION truelog_customers SET (publish = 'insert, update, delete, truncate')")
    shop.require_equal(rows=0)


def test_the_compacted_topic_alone_is_the_table(shop: CapturedShop) -> None:
    """Every row of the last snapshot has changed since, so compaction has removed the snapshot's own records."""
    shop.run("INSERT INTO customers (id, name) SELECT n, 'before' FROM generate_series(1, 5) n")
    snapshot.take(shop.settings, shop.event_type)
    shop.stream.wait(lambda: shop.verdict() is Verdict.OK, 120, "the slot")
    shop.run("UPDATE customers SET name = 'after'", "DELETE FROM customers WHERE id = 5")
    shop.require_equal(rows=4)
    changes = shop.compacted()
    assert rows_of(changes) == {row[0]: row[1] for row in shop.current()}
    without = [each for each in changes if each["source_operation"] != "ended"]
    assert len(rows_of(without)) > 4  # ghosts of earlier snapshots, which only the end of the last one closes


def rows_of(changes: list[dict[str, Any]]) -> dict[int, str]:
    """The table by the rule of the documentation, from changes in any order."""
    closed = max((each["source_place"] for each in changes if each["source_closes"]), default="")
    rows = {each["id"]: each for each in sorted(changes, key=lambda each: each["source_place"]) if each["id"]}
    kept = (each for each in rows.values() if each["source_operation"] != "deleted" and each["source_place"] >= closed)
    return {each["id"]: each["name"] for each in kept}


@pytest.mark.nightly
def test_an_attempt_of_a_snapshot_that_is_killed_leaves_no_ghosts(shop: CapturedShop) -> None:
    """Rows that only the killed attempt read are deleted before the next attempt, and no record says so."""
    shop.run("INSERT INTO customers (id, name) SELECT n, 'row' FROM generate_series(100001, 160000) n")
    shop.require_equal()
    before = topics.end_offsets(shop.settings, [NAME]).at(NAME, 0)
    snapshot.take(shop.settings, shop.event_type)

    def begun() -> None:
        if topics.end_offsets(shop.settings, [NAME]).at(NAME, 0) - before < 3_000:
            raise ServiceDown("the snapshot has not begun")

    until(begun, 60, "the first rows of the snapshot")
    shop.kill_connect(meanwhile="DELETE FROM customers WHERE id > 100000 AND id < 120000")
    shop.stream.wait(lambda: shop.compared().verdict == comparison.EQUAL, 240, "the second attempt")


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
    shop.drop_slot(publication(kinds.event_type))
    shop.resume_connector(name)
    assert "FAILED" in shop.failed(name)
    shop.run("INSERT INTO customers (id, name) VALUES (80, 'Kim')")
    shop.require_equal()
    found = shop.verdicts(shop.event_type, kinds.event_type)
    assert {each: verdict for each, (verdict, _) in found.items()} == {NAME: Verdict.OK, name: Verdict.LOST}


def test_secrets_are_in_no_log_topic_process_or_answer(shop: CapturedShop) -> None:
    settings = shop.settings
    fields = (settings.kafka_connect_password, settings.source_password, settings.connect_password)
    secrets = [field.get_secret_value().encode() for field in fields]
    assert all(len(secret) > 20 for secret in secrets)
    answers = [worker.ask(settings, "GET", f"/connectors/{NAME}/{part}") for part in ("config", "status", "tasks")]
    families = psutil.Process(shop.pid()), *psutil.Process(shop.pid()).children(recursive=True)
    end = topics.end_offsets(settings, [NAME]).at(NAME, 0)
    places = {
        "answers": json.dumps(answers).encode(),
        "arguments": " ".join(word for each in families for word in each.cmdline()).encode(),
        "environment": json.dumps([each.environ() for each in families]).encode(),
        "log": log_file(settings, "connect").read_bytes(),
        "topic": b"".join(message.value() or b"" for message in messages(settings, NAME, 0, 0, end)),
    }
    assert all(places.values()), [name for name, found in places.items() if not found]
    assert [name for name, found in places.items() if any(secret in found for secret in secrets)] == []


def test_connect_answers_nobody_without_the_password(shop: CapturedShop) -> None:
    wrong = shop.settings.model_copy(update={"connect_password": SecretStr("wrong")})
    for path in ("/", "/connectors", f"/connectors/{NAME}/config", "/admin/loggers"):
        with pytest.raises(ServiceDown, match="401"):
            worker.ask(wrong, "GET", path)
