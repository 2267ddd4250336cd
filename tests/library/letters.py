"""A view of dead letters and an archive, which have both reached the end of the log."""

import json
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
from confluent_kafka import Producer
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import drop_archive
from tests.beds.lab import Lab
from tests.deadline import deadline
from truelog import Sum, View
from truelog.apps import reader_positions
from truelog.archive.commit import Append, commit
from truelog.archive.schema import RAW, TIME
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log import records, topics
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch
from truelog.tables.stage import StagedRows

TOPIC = "dead_letter"  # no scene's view reads it, so a test may delete its records from Kafka


def _per_reason(dead_letter: DataFrame) -> DataFrame:
    return dead_letter.select("reason", F.lit(1).alias("letters"))


PER_REASON = View(reads=(TOPIC,), transform=_per_reason, key=("reason",), measures={"letters": Sum()})


@dataclass(frozen=True)
class Letters:
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
            self.lab.connection, self.compiled, self.lab.plans, Batch(records.events(read, types), end.partitions())
        )

    def plant(self, reason: str, letters: int) -> None:
        query = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier("state", self.compiled.own.name))
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
        query = sql.SQL("DELETE FROM {} WHERE reason = %s").format(sql.Identifier("state", self.compiled.own.name))
        self.lab.connection.execute(query, (reason,))

    def rows(self) -> dict[str, int]:
        query = sql.SQL("SELECT reason, letters FROM {}").format(sql.Identifier("state", self.compiled.own.name))
        return {str(reason): int(str(letters)) for reason, letters in self.lab.connection.execute(query).fetchall()}


def letter(reason: str) -> bytes:
    event = {"event_id": "e", "occurred_at": "2026-03-01T00:00:00Z", "field": "f", "sender": "s", "raw": ""}
    return json.dumps(event | {"reason": reason}).encode()


def send(settings: Settings, *reasons: str) -> None:
    """Send letters, all to one partition."""
    producer = Producer(settings.kafka())
    for reason in reasons:
        producer.produce(TOPIC, letter(reason), "v")
    assert producer.flush(deadline(30)) == 0


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


def new_letters(lab: Lab, platform: Settings) -> Letters:
    topics.sync_topics(platform, load_events())
    lab = replace(lab, types=dict(event_registry.event_types(platform)))
    send(platform, "before")
    ends = topics.end_offsets(platform, [TOPIC])
    with open_catalog(platform) as catalog:
        drop_archive(catalog, TOPIC)  # that of an earlier test of the file
        ensure_table(catalog, lab.types[TOPIC], ends.ids[TOPIC], ends.offsets[TOPIC])
    compiled = lab.compiled_once(f"v{uuid.uuid4().hex[:8]}", PER_REASON)
    table.deploy_table(lab.connection, compiled)
    assert reader_positions.view_positions(lab.connection, [compiled.name])[compiled.name].positions.offsets == {
        TOPIC: {}
    }
    begin = Positions({TOPIC: dict.fromkeys(ends.offsets[TOPIC], 0)}, ends.ids)
    merge.apply(lab.connection, compiled, Merge(begin, ends, StagedRows((), 0, 0)))
    return Letters(lab, compiled, Rebuilder(BatchContext(lab.spark, platform, lab.types), lab.connection, compiled))
