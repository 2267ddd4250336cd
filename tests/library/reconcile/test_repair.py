"""Repair: which differences are repaired automatically, and that rows merged during a repair are kept."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.deadline import deadline, until
from tests.laws.lab import Lab
from tests.library.archived import drop_archive
from truelog import Sum, View
from truelog.apps import reader_positions
from truelog.archive.archive_commit import Append, commit
from truelog.archive.archive_schema import RAW, TIME
from truelog.archive.archive_table import ensure_table, identifier, open_catalog
from truelog.archive.archive_writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry
from truelog.kernel import merge
from truelog.kernel.merge import Excluded, Merge
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.reconcile.offset_search import Cause, Explanation
from truelog.reconcile.reconcile import compare, may_be_repaired, reconcile, refused_result
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult, exit_code
from truelog.reconcile.repair import repair
from truelog.schema.event import load_events
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import MeaningChanged, ServiceDown, Stale, TopicRecreated
from truelog.support.settings import KafkaUser, Settings
from truelog.tables import deploy as table
from truelog.tables import kinds, stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch
from truelog.tables.stage import StagedRows

TOPIC = "dead_letter"  # no scene's view reads it, so a test may delete its records from Kafka

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


def _per_reason(dead_letter: DataFrame) -> DataFrame:
    return dead_letter.select("reason", F.lit(1).alias("letters"))


PER_REASON = View(reads=(TOPIC,), transform=_per_reason, key=("reason",), measures={"letters": Sum()})


@dataclass(frozen=True)
class Ground:
    """A view and an archive that have both reached the end of the log. The archive does not advance."""

    lab: Lab
    compiled: CompiledView
    rebuilder: Rebuilder

    def positions(self) -> Positions:
        return merge.positions(self.lab.connection, self.compiled)

    def ends(self) -> Positions:
        return topics.end_offsets(self.lab.settings, [TOPIC])

    def staged(self, begin: Positions, end: Positions) -> StagedRows:
        types = {TOPIC: self.lab.types[TOPIC]}
        read = records.read(self.lab.spark, self.lab.settings, types, begin.ranges_to(end))
        return kinds.stage_batch(
            self.lab.connection, self.compiled, self.lab.settings, Batch(records.events(read, types), end.partitions())
        )

    def plant(self, reason: str, letters: int) -> None:
        query = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier("state", self.compiled.table))
        self.lab.connection.execute(query, (reason, letters))

    def counts(self, *reasons: str) -> None:
        """Send letters, archive them with one commit, and merge them as one batch."""
        begin = self.positions()
        send(self.lab.settings, *reasons)
        end = self.ends()
        archive(self.lab.settings, begin, end, *reasons)
        merge.apply(self.lab.connection, self.compiled, Merge(begin, end, self.staged(begin, end)))

    def lose(self, reason: str) -> None:
        """Count a letter, and delete its row."""
        self.counts(reason)
        query = sql.SQL("DELETE FROM {} WHERE reason = %s").format(sql.Identifier("state", self.compiled.table))
        self.lab.connection.execute(query, (reason,))

    def rows(self) -> dict[str, int]:
        query = sql.SQL("SELECT reason, letters FROM {}").format(sql.Identifier("state", self.compiled.table))
        return {str(reason): int(str(letters)) for reason, letters in self.lab.connection.execute(query).fetchall()}


@pytest.fixture
def ground(lab: Lab, platform: Settings) -> Iterator[Ground]:
    topics.sync_topics(platform, load_events())
    lab = replace(lab, types=dict(event_registry.event_types(platform)))
    send(platform, "before")
    ends = topics.end_offsets(platform, [TOPIC])
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)  # a scene may have archived this topic
        ensure_table(catalog, lab.types[TOPIC], ends.ids[TOPIC], ends.offsets[TOPIC])
    compiled = lab.compiled_once(f"v{uuid.uuid4().hex[:8]}", PER_REASON)
    table.deploy_table(lab.connection, compiled)
    assert reader_positions.view_positions(lab.connection, [compiled.name])[compiled.name].positions.offsets == {
        TOPIC: {}
    }
    begin = Positions({TOPIC: dict.fromkeys(ends.offsets[TOPIC], 0)}, ends.ids)
    merge.apply(lab.connection, compiled, Merge(begin, ends, StagedRows((), 0, 0)))
    yield Ground(lab, compiled, Rebuilder(BatchContext(lab.spark, platform, lab.types), lab.connection, compiled))
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)


def letter(reason: str) -> bytes:
    event = {"event_id": "e", "occurred_at": "2026-03-01T00:00:00Z", "field": "f", "sender": "s", "raw": ""}
    return json.dumps(event | {"reason": reason}).encode()


def send(settings: Settings, *reasons: str) -> None:
    """Send letters, all to one partition."""
    producer = Producer(settings.kafka())
    for reason in reasons:
        producer.produce(TOPIC, letter(reason), "v")
    assert producer.flush(deadline(30)) == 0


def test_a_merge_before_the_lock_is_kept(ground: Ground) -> None:
    """The two letters never reach the archive. The stream merges them during the repair, without waiting for it."""
    ground.plant("wrong and sent", 7)
    ground.plant("wrong", 7)
    found = compare(ground.rebuilder)
    assert found.extra == 2
    settings, begin = ground.lab.settings, ground.positions()
    send(settings, "wrong and sent")
    send(settings, "only sent")
    late = Merge(begin, ground.ends(), ground.staged(begin, ground.ends()))

    with connect(settings, autocommit=True) as streaming, ThreadPoolExecutor(1) as pool:
        with streaming.transaction():
            merge.lock(streaming, ground.compiled)
            repairing = pool.submit(repair, ground.rebuilder, found.positions)
            until(lambda: _require_waiting(settings), 60, "the repair to wait for the lock")
            merge.apply(streaming, ground.compiled, late)
        assert repairing.result(deadline(60)) == 2

    assert ground.rows() == {"wrong and sent": 1, "only sent": 1}
    assert ground.positions() == ground.ends()
    left = ground.lab.connection.execute(sql.SQL("SELECT count(*) FROM {}").format(stage.table(ground.compiled)))
    assert left.fetchone() == (0,)


def test_a_repair_stores_each_row_as_it_was_and_as_it_is(ground: Ground) -> None:
    ground.lose("lost")
    ground.plant("wrong", 7)
    found = compare(ground.rebuilder)
    assert (found.missing, found.extra) == (1, 1)
    assert repair(ground.rebuilder, found.positions) == 2
    query = "SELECT key->>0, before->'letters', after->'letters' FROM truelog.repair WHERE view = %s ORDER BY 1"
    kept = ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall()
    assert kept == [("lost", None, 1), ("wrong", 7, None)]
    ground.plant("wrong again", 7)
    assert repair(ground.rebuilder, compare(ground.rebuilder).positions) == 1  # earlier repairs are not counted


def test_a_repair_does_not_wait_for_the_archive(ground: Ground) -> None:
    """The letter is merged after the comparison, and is never archived."""
    ground.plant("wrong", 7)
    found, begin = compare(ground.rebuilder), ground.positions()
    send(ground.lab.settings, "late")
    late = Merge(begin, ground.ends(), ground.staged(begin, ground.ends()))
    merge.apply(ground.lab.connection, ground.compiled, late)
    assert repair(ground.rebuilder, found.positions) == 1
    assert ground.rows() == {"late": 1}


def test_a_repair_changes_nothing_in_a_view_that_has_gone_back(ground: Ground) -> None:
    """For example, because PostgreSQL was restored. The comparison's rows would count records twice."""
    ground.plant("wrong", 7)
    found = compare(ground.rebuilder)
    ground.lab.connection.execute(
        "UPDATE truelog.position SET next_offset = 0 WHERE view = %s", (ground.compiled.name,)
    )
    with pytest.raises(Stale):
        repair(ground.rebuilder, found.positions)
    assert ground.rows() == {"wrong": 7}


def test_a_repair_changes_nothing_after_the_topic_was_created_again(ground: Ground) -> None:
    ground.plant("wrong", 7)
    found = compare(ground.rebuilder)
    ground.lab.connection.execute(
        "UPDATE truelog.position SET topic_id = 'new' WHERE view = %s", (ground.compiled.name,)
    )
    with pytest.raises(TopicRecreated):
        repair(ground.rebuilder, found.positions)
    assert ground.rows() == {"wrong": 7}


def test_a_repair_changes_nothing_after_the_topic_was_judged_again(ground: Ground) -> None:
    ground.plant("wrong", 7)
    found = compare(ground.rebuilder)
    ground.lab.connection.execute("UPDATE truelog.position SET reading = 1 WHERE view = %s", (ground.compiled.name,))
    with pytest.raises(MeaningChanged):
        repair(ground.rebuilder, found.positions)
    assert ground.rows() == {"wrong": 7}


def test_a_record_skipped_without_reason_is_a_difference(ground: Ground) -> None:
    """The stream and the rebuild both skip the record, so no row differs."""
    topic, partition = next(place for place in ground.ends().partitions() if ground.ends().at(*place))
    request, context = ReconcileRequest(from_raw=True), ground.rebuilder.context
    merge.exclude(ground.lab.connection, ground.compiled, [Excluded(topic, partition, 0, "no reason")])

    found = reconcile(context, ground.compiled, request)
    assert (found.verdict, found.missing + found.extra + found.different) == ("DIFFERENT", 0)
    assert f"does not fail on 1 of the skipped records: {topic} {partition}:0. Delete" in found.reason
    assert exit_code([found]) == 1
    kept = ground.lab.connection.execute("SELECT verdict FROM truelog.reconciliation WHERE id = %s", (found.id,))
    assert kept.fetchone() == ("DIFFERENT",)

    ground.lab.connection.execute("DELETE FROM truelog.exclusion WHERE view = %s", (ground.compiled.name,))
    assert reconcile(context, ground.compiled, request).equal


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
def test_every_reconciliation_is_inserted_with_its_run(ground: Ground) -> None:
    """Covers comparisons before and after a repair, and a refused comparison. A crash leaves no row without its run."""
    ground.plant("wrong", 7)
    request = ReconcileRequest(repair=True, run="scheduled__now", doer="oncall")

    found = reconcile(ground.rebuilder.context, ground.compiled, request)
    [operation] = audit_trail.latest_operations(ground.lab.connection, 1)
    assert (operation.kind, operation.subject, operation.doer) == ("repair", ground.compiled.name, "oncall")
    refused_result(ground.lab.settings, ground.compiled, request, reason="its job ran out of memory")

    assert (found.verdict, found.repaired) == ("EQUAL", 1)
    rows = ground.lab.connection.execute(
        "SELECT verdict, run FROM truelog.reconciliation WHERE view = %s ORDER BY id", (ground.compiled.name,)
    ).fetchall()
    assert rows == [(verdict, "scheduled__now") for verdict in ("DIFFERENT", "EQUAL", "UNKNOWN")]


def test_records_that_kafka_deleted_are_read_from_the_archive(ground: Ground) -> None:
    """After a repair of several hours, the first letter is only in the archive and the second is only in Kafka."""
    settings, begin = ground.lab.settings, ground.positions()
    send(settings, "dropped")
    archived = ground.ends()
    archive(settings, begin, archived, "dropped")
    _drop(settings, archived)
    send(settings, "kept")
    end = ground.ends()
    merge.apply(ground.lab.connection, ground.compiled, Merge(begin, end, ground.rebuilder.stage_since(begin, end)))
    assert ground.rows() == {"dropped": 1, "kept": 1}


def archive(settings: Settings, begin: Positions, end: Positions, *reasons: str) -> None:
    """Archive the letters between these positions."""
    [place] = begin.ranges_to(end)
    n = len(reasons)
    columns = {
        "topic": [TOPIC] * n,
        "partition": pa.array([place.partition] * n, pa.int32()),
        "offset": pa.array(range(place.start, place.end), pa.int64()),
        "broker_time": pa.array([datetime.now(UTC)] * n, TIME),
        "key": [b"v"] * n,
        "value": [letter(reason) for reason in reasons],
        "headers": pa.array([[]] * n, RAW.field("headers").type),
    }
    with open_catalog(settings) as catalog:
        tables = {TOPIC: blueprint(catalog.load_table(identifier(TOPIC)).metadata)}
        [row] = FileWriter(WriterSettings.of(settings), load_events(), tables, {})(
            iter([pa.RecordBatch.from_pydict(columns)])
        )
        file = load_archived_file(row["file"][0].as_py(), tables).data_file
        ends = end.offsets[TOPIC]
        commit(catalog, Append(TOPIC, end.ids[TOPIC], begin.offsets[TOPIC], ends, {place.partition: n}, (file,)))


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
