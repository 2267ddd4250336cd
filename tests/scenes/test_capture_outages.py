"""A captured, partitioned table: kills of the source and of the broker, lost slots, and what happens to partitions."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

import psycopg
import pytest

from runtime.postgresql import admin
from tests.beds.world import World
from tests.deadline import until
from tests.meanwhile import meanwhile
from tests.scenes.captured_shop import NAME, SLOT, CapturedShop, captured_shop, changes_of
from tests.scenes.restarts import pids, require_restarted
from truelog.alerts.sources import resources
from truelog.capture import comparison
from truelog.capture.slot import Verdict
from truelog.schema.record_validation import TOMBSTONE
from truelog.support.errors import ServiceDown

pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]

FIRST = [(number, f"customer {number}", None, "Oslo", "0", True, None) for number in range(1, 201)]
PARTITIONED = (
    "DROP PUBLICATION truelog_customers",
    "DROP TABLE customers",
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text, email text, city text, credit numeric, "
    "is_active boolean, since timestamptz) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF customers FOR VALUES FROM (MINVALUE) TO (100)",
    "CREATE TABLE high PARTITION OF customers FOR VALUES FROM (100) TO (1000)",
)
CONFIRMED = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"


@pytest.fixture(scope="module")
def shop(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CapturedShop]:
    with captured_shop(world, tmp_path_factory.mktemp("shop"), FIRST, *PARTITIONED) as made:
        yield made


@contextmanager
def changing(shop: CapturedShop) -> Iterator[list[int]]:
    """Insert, move, update and delete rows all the time, also after a loss of the database. Yields what was done."""
    done, random = list[int](), Random(1)

    def change(stopped: threading.Event) -> None:
        while not stopped.wait(0.05):
            with suppress(psycopg.OperationalError), shop.connect() as session:
                while not stopped.wait(0.001):
                    key, other = random.randrange(1, 999), random.randrange(1, 999)
                    session.execute(
                        "INSERT INTO customers (id, name) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET city = %s",
                        (key, f"customer {key}", f"city {len(done)}"),
                    )
                    with suppress(psycopg.errors.UniqueViolation):
                        session.execute("UPDATE customers SET id = %s WHERE id = %s", (other, key))
                    session.execute("DELETE FROM customers WHERE id = %s", (random.randrange(1, 999),))
                    done.append(key)

    with meanwhile(change):
        yield done


def require_more(done: list[int], count: int) -> None:
    if len(done) < count:
        raise ServiceDown(f"{len(done)} of {count} changes are done")


@pytest.mark.parametrize("service", ["postgresql", "kafka"])
def test_a_kill_while_changes_flow_loses_and_doubles_nothing(shop: CapturedShop, service: str) -> None:
    """PostgreSQL has the captured database, and the view."""
    with changing(shop) as done:
        until(partial(require_more, done, 200), 60, "changes before the kill")
        before = pids(shop.settings, service)
        os.kill(before[service], signal.SIGKILL)
        until(partial(require_restarted, shop.settings, before), 90, f"the start of {service}")
        until(partial(require_more, done, len(done) + 200), 60, "changes after the kill")
    shop.wait_until_equal(240, "the view to be equal")
    assert shop.verdict() is Verdict.OK


def test_the_slot_of_an_idle_table_moves_beside_a_busy_one(shop: CapturedShop) -> None:
    shop.run("CREATE TABLE busy AS SELECT n, md5(n::text) FROM generate_series(1, 100000) n")
    with shop.connect() as session:
        [[end]] = session.execute("SELECT pg_current_wal_lsn()").fetchall()

        def moved() -> None:
            [[has_moved]] = session.execute(CONFIRMED, (end, SLOT)).fetchall()
            if not has_moved:
                raise ServiceDown("the slot is before the other table's changes")

        until(moved, 60, "the slot")
    shop.require_equal()


def test_a_slot_that_is_made_again_by_hand_is_stopped_loudly(shop: CapturedShop) -> None:
    shop.stop_connector()
    shop.drop_slot()
    shop.run("DELETE FROM customers WHERE id < 50")
    with psycopg.connect(**shop.settings.source(), autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    shop.run("UPDATE customers SET city = 'Rome'")
    shop.resume_connector()
    assert "FAILED" in shop.failed()
    verdict, reason = shop.verdicts(shop.event_type)[NAME]
    assert (verdict, f"truelog capture snapshot {NAME}" in reason) == (Verdict.STOPPED, True)
    assert [each.kind for each in resources.observe_capture(shop.settings).findings] == ["capture_stopped"]
    shop.take_snapshot()


def test_a_slot_that_exceeds_the_databases_limit_is_lost_loudly(shop: CapturedShop) -> None:
    shop.stop_connector()
    with admin(shop.settings, shop.settings.source_database) as session:
        session.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'")
        session.execute("SELECT pg_reload_conf()")
        session.execute("UPDATE customers SET city = 'Lund'")
        try:
            for _ in range(6):  # segments of 16 MB
                session.execute("SELECT pg_logical_emit_message(true, 'test', ''), pg_switch_wal()")
            session.execute("CHECKPOINT")
        finally:
            session.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            session.execute("SELECT pg_reload_conf()")
    assert shop.verdict() is Verdict.LOST
    assert [each.kind for each in resources.observe_capture(shop.settings).findings] == ["capture_stopped"]
    shop.take_snapshot()


def test_partitions_that_come_and_go_are_refused_or_found(shop: CapturedShop) -> None:
    """The log has no record of rows that come or go with a partition."""
    shop.require_equal()
    shop.run(
        "CREATE TABLE later (LIKE customers INCLUDING ALL)",
        "INSERT INTO later (id, name) SELECT n, 'attached' FROM generate_series(1000, 1009) n",
        "ALTER TABLE customers ATTACH PARTITION later FOR VALUES FROM (1000) TO (2000)",
    )
    verdict, reason = shop.verdicts(shop.event_type)[NAME]
    cure = 'ALTER TABLE "public"."later" REPLICA IDENTITY FULL'
    assert (verdict, cure in reason) == (Verdict.STOPPED, True)
    shop.run(cure)
    found = shop.compared()
    assert (found.verdict, found.missing, found.extra) == (comparison.DIFFERENT, 10, 0)
    shop.take_snapshot()
    shop.run("UPDATE customers SET id = 0 WHERE id = 1001", "DELETE FROM customers WHERE id = 1002")
    shop.require_equal()
    shop.run("ALTER TABLE customers DETACH PARTITION later")
    found = shop.compared()
    assert (found.verdict, found.missing, found.extra) == (comparison.DIFFERENT, 0, 8)
    shop.take_snapshot()


def test_every_change_of_the_topic_is_valid(shop: CapturedShop) -> None:
    changes = changes_of(shop.settings, shop.event_type)
    assert len(changes) > len(FIRST)
    assert {each["invalid"] for each in changes} == {None, TOMBSTONE}
    assert shop.invalid_rows() == []
