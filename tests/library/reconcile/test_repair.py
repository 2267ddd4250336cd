"""Repair: which differences are repaired automatically, and that rows merged during a repair are kept."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.beds.lab import Lab
from tests.library.letters import Letters, archive, send
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.reconcile import may_be_repaired, reconcile, refused_result
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

SHARES = {
    "all of three rows": (0.01, 3, 3, True),
    "ten of a hundred": (0.01, 100, 10, True),
    "eleven of a hundred": (0.01, 100, 11, False),
    "one in a hundred of many": (0.01, 5_000, 50, True),
    "more of many": (0.01, 5_000, 51, False),
    "a table with one row left, a wrong one": (0.01, 0, 1, True),
    "nothing": (1, 100, 0, False),
    "all rows, if the settings allow all": (1, 5_000, 5_000, True),
    "one of many, if the settings allow none": (0, 5_000, 1, False),
}


@pytest.mark.parametrize("case", SHARES)
def test_few_enough_rows_may_be_repaired(case: str, settings: Settings) -> None:
    share, rows, different, expected = SHARES[case]
    given = settings.model_copy(update={"repair_share": share})
    found = ReconcileResult("v", 1, Positions(), rows=rows, different=different, causes=caused(Cause.LOST))
    assert may_be_repaired(given, found) is expected
    assert not may_be_repaired(given, replace(found, causes=caused(Cause.HAND, Cause.PARTIAL)))
    assert not may_be_repaired(given, replace(found, causes=caused(Cause.FILE)))


def caused(*causes: Cause) -> tuple[dict[str, Any], ...]:
    return tuple(Explanation(each, 1, "").as_dict() for each in causes)


@pytest.fixture
def insert_only(lab: Lab) -> Iterator[None]:
    """Make PostgreSQL refuse every UPDATE of a reconciliation."""
    lab.connection.execute(
        "CREATE FUNCTION refuse_update() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'a reconciliation was updated'; END $$"
    )
    lab.connection.execute(
        "CREATE TRIGGER insert_only BEFORE UPDATE ON truelog.reconciliation EXECUTE FUNCTION refuse_update()"
    )
    yield
    lab.connection.execute("DROP FUNCTION refuse_update CASCADE")


@pytest.mark.usefixtures("insert_only")
def test_every_reconciliation_is_inserted_with_its_run(letters: Letters) -> None:
    """Covers comparisons before and after a repair, and a refused comparison. A crash leaves no row without its run."""
    letters.plant("wrong", 7)
    request = ReconcileRequest(repair=True, run="scheduled__now", doer="oncall")

    found = reconcile(letters.rebuilder.context, letters.compiled, request)
    [operation] = audit_trail.latest_operations(letters.lab.connection, 1)
    assert (operation.kind, operation.subject, operation.doer) == ("repair", letters.compiled.name, "oncall")
    refused_result(letters.lab.settings, letters.compiled, request, reason="its job ran out of memory")

    assert (found.verdict, found.repaired) == ("EQUAL", 1)
    rows = letters.lab.connection.execute(
        "SELECT verdict, run FROM truelog.reconciliation WHERE view = %s ORDER BY id", (letters.compiled.name,)
    ).fetchall()
    assert rows == [(verdict, "scheduled__now") for verdict in ("DIFFERENT", "EQUAL", "UNKNOWN")]


def test_records_that_kafka_deleted_are_read_from_the_archive(letters: Letters) -> None:
    """After a repair of several hours, the first letter is only in the archive and the second is only in Kafka."""
    settings, begin = letters.lab.settings, letters.positions()
    send(settings, "dropped")
    archived = letters.ends()
    archive(settings, begin, archived, "dropped")
    _drop(settings, archived)
    send(settings, "kept")
    end = letters.ends()
    merge.apply(letters.lab.connection, letters.compiled, Merge(begin, end, letters.rebuilder.stage_since(begin, end)))
    assert letters.rows() == {"dropped": 1, "kept": 1}


def _drop(settings: Settings, before: Positions) -> None:
    places = [TopicPartition(topic, partition, before.at(topic, partition)) for topic, partition in before.partitions()]
    broker = topics.client(
        settings, KafkaUser.ADMIN
    )  # in a variable, because a garbage-collected client never delivers its results
    for dropped in broker.delete_records(places).values():
        dropped.result()


def _require_waiting(settings: Settings) -> None:
    """Use a new connection each time, because PostgreSQL freezes these statistics within a transaction."""
    query = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE '%FOR UPDATE'"
    )
    with connect(settings) as connection:
        if connection.execute(query).fetchone() is None:
            raise ServiceDown("the repair does not wait yet")
