"""Repair: which differences are repaired automatically, and that rows merged during a repair are kept."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import Archived, change
from tests.beds.lab import Lab
from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.library.letters import Letters, archive, send
from truelog import Sum, View
from truelog.control.view_loader import LoadedViews
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reconcile import reconcile_history
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.reconcile import may_be_repaired, reconcile, reconcile_views, refused_result
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult
from truelog.reconcile.repair import repair
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import MeaningChanged, ServiceDown, Stale, TopicRecreated
from truelog.support.settings import KafkaUser, Settings
from truelog.tables import stage

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


NAMES = ("cause", "d", "key", "key_json", "o", "reconciliation", "streamed", "t")


def _named(click: DataFrame) -> DataFrame:
    return click.select(*(F.col("url").alias(each) for each in NAMES), F.col("search_id").cast("int").alias("rebuilt"))


@pytest.mark.ground(view=View(reads=("click",), transform=_named, key=NAMES, measures={"rebuilt": Sum()}))
def test_columns_may_have_the_names_that_a_comparison_used_itself(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("b", "2", 1)])
    ground.stream()
    change(ground, ground.compiled.own.name, "UPDATE {} SET rebuilt = 7 WHERE t = 'a'")
    wrong, right = (dict.fromkeys(NAMES, "a") | {"rebuilt": n} for n in (7, 1))
    connection, context = ground.lab.connection, ground.lab.context
    found = reconcile(context, ground.compiled)
    detail = reconcile_history.reconciliation_detail(connection, found.id or 0)
    assert detail
    with connection.transaction():
        [differing] = reconcile_history.differing_rows(connection, detail)
    assert (differing.streamed, differing.rebuilt, differing.cause) == (wrong, right, Cause.HAND)
    repaired = reconcile(context, ground.compiled, ReconcileRequest(repair=True))
    detail = reconcile_history.reconciliation_detail(connection, repaired.id or 0)
    assert detail
    assert (repaired.verdict, [(each.before, each.after) for each in detail.repairs]) == ("EQUAL", [(wrong, right)])


def test_a_merge_before_the_lock_is_kept(letters: Letters) -> None:
    """The two letters never reach the archive. The stream merges them during the repair, without waiting for it."""
    letters.plant("wrong and sent", 7)
    letters.plant("wrong", 7)
    found = compare(letters.rebuilder)
    assert found.extra == 2
    settings, begin = letters.lab.settings, letters.positions()
    send(settings, "wrong and sent")
    send(settings, "only sent")
    late = Merge(begin, letters.ends(), letters.staged(begin, letters.ends()))

    with connect(settings, autocommit=True) as streaming, ThreadPoolExecutor(1) as pool:
        with streaming.transaction():
            merge.lock(streaming, letters.compiled)
            repairing = pool.submit(repair, letters.rebuilder, found.positions)
            until(lambda: _require_waiting(settings), 60, "the repair to wait for the lock")
            merge.apply(streaming, letters.compiled, late)
        assert repairing.result(deadline(60)) == 2

    assert letters.rows() == {"wrong and sent": 1, "only sent": 1}
    assert letters.positions() == letters.ends()
    left = letters.lab.connection.execute(sql.SQL("SELECT count(*) FROM {}").format(stage.table(letters.compiled.own)))
    assert left.fetchone() == (0,)


def test_a_repair_stores_each_row_as_it_was_and_as_it_is(letters: Letters) -> None:
    letters.lose("lost")
    letters.plant("wrong", 7)
    found = compare(letters.rebuilder)
    assert (found.missing, found.extra) == (1, 1)
    assert repair(letters.rebuilder, found.positions) == 2
    query = "SELECT key->>0, before->'letters', after->'letters' FROM truelog.repair WHERE view = %s ORDER BY 1"
    kept = letters.lab.connection.execute(query, (letters.compiled.name,)).fetchall()
    assert kept == [("lost", None, 1), ("wrong", 7, None)]
    letters.plant("wrong again", 7)
    assert repair(letters.rebuilder, compare(letters.rebuilder).positions) == 1  # earlier repairs are not counted


def test_a_repair_does_not_wait_for_the_archive(letters: Letters) -> None:
    """The letter is merged after the comparison, and is never archived."""
    letters.plant("wrong", 7)
    found, begin = compare(letters.rebuilder), letters.positions()
    send(letters.lab.settings, "late")
    late = Merge(begin, letters.ends(), letters.staged(begin, letters.ends()))
    merge.apply(letters.lab.connection, letters.compiled, late)
    assert repair(letters.rebuilder, found.positions) == 1
    assert letters.rows() == {"late": 1}


def test_a_repair_changes_nothing_in_a_view_that_has_gone_back(letters: Letters) -> None:
    """For example, because PostgreSQL was restored. The comparison's rows would count records twice."""
    letters.plant("wrong", 7)
    found = compare(letters.rebuilder)
    letters.lab.connection.execute(
        "UPDATE truelog.position SET next_offset = 0 WHERE view = %s", (letters.compiled.name,)
    )
    with pytest.raises(Stale):
        repair(letters.rebuilder, found.positions)
    assert letters.rows() == {"wrong": 7}


def test_a_repair_changes_nothing_after_the_topic_was_created_again(letters: Letters) -> None:
    letters.plant("wrong", 7)
    found = compare(letters.rebuilder)
    letters.lab.connection.execute(
        "UPDATE truelog.position SET topic_id = 'new' WHERE view = %s", (letters.compiled.name,)
    )
    with pytest.raises(TopicRecreated):
        repair(letters.rebuilder, found.positions)
    assert letters.rows() == {"wrong": 7}


def test_a_repair_changes_nothing_after_the_topic_was_judged_again(letters: Letters) -> None:
    letters.plant("wrong", 7)
    found = compare(letters.rebuilder)
    letters.lab.connection.execute("UPDATE truelog.position SET reading = 1 WHERE view = %s", (letters.compiled.name,))
    with pytest.raises(MeaningChanged):
        repair(letters.rebuilder, found.positions)
    assert letters.rows() == {"wrong": 7}


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
    """Covers comparisons before and after a repair, and a refused comparison. A crash leaves no row without its run.

    The audit trail names who asked for the comparison and the repair.
    """
    letters.plant("wrong", 7)
    request = ReconcileRequest(repair=True, run="scheduled__now", doer="oncall")

    context = replace(letters.rebuilder.context, views=LoadedViews([letters.compiled]))
    [found] = reconcile_views(context, request)
    done = audit_trail.latest_operations(letters.lab.connection, 2)
    assert [(each.kind, each.subject, each.doer) for each in done] == [
        (kind, letters.compiled.name, "oncall") for kind in ("compare", "repair")
    ]
    assert done[0].about == f"EQUAL, reconciliation {found.id}"
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
    delete_records(topics.client(settings, KafkaUser.ADMIN), *places)


def _require_waiting(settings: Settings) -> None:
    """Use a new connection each time, because PostgreSQL freezes these statistics within a transaction."""
    query = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE '%FOR UPDATE'"
    )
    with connect(settings) as connection:
        if connection.execute(query).fetchone() is None:
            raise ServiceDown("the repair does not wait yet")
