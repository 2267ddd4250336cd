"""A topic of its own whose declaration changes, with a view, on the real paths through Kafka and the archive."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Producer
from psycopg import sql
from pydantic import create_model
from pyspark.sql import DataFrame

from tests.beds.lab import Lab
from tests.deadline import deadline
from truelog import Sum, View
from truelog.archive.commit import Append, commit
from truelog.archive.table import archived_positions, ensure_table, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, write_ranges
from truelog.batch import log_with_archive, rejudge
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.control import event_registry
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reconcile import certificate_store
from truelog.reconcile.certificate import Certificate
from truelog.reconcile.certificate_verifier import CertificateVerifier
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest, ReconcileResult
from truelog.schema.event import Event, EventType, Topic
from truelog.schema.event_version import readings_of
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView

PARTITIONS = 2


@dataclass
class Remarks:
    """A topic of its own with one view, which counts valid events by a text field."""

    lab: Lab
    name: str
    key: str = "text"
    counted: str = "1"  # what the view adds up
    publish: bool = False
    events: dict[str, Any] = field(default_factory=dict)

    def declare(self, **fields: Any) -> EventType:
        """Register a declaration of the event type."""
        settings = self.lab.settings
        topic = Topic(key=None, subject=(), partitions=PARTITIONS, retention="1 day")
        event_type = EventType(self.name, create_model("Said", __base__=Event, **fields), topic)
        topics.sync_topics(settings, {self.name: event_type})
        return event_registry.register(settings, event_type).event_type

    @property
    def types(self) -> dict[str, EventType]:
        return {self.name: event_registry.event_types(self.lab.settings)[self.name]}

    @property
    def compiled(self) -> CompiledView:
        name, key, counted = self.name, self.key, self.counted

        def per_text(events: DataFrame) -> DataFrame:
            return events.selectExpr(key, f"{counted} AS events")

        view = View(reads=(name,), transform=per_text, key=(key,), measures={"events": Sum()}, publish=self.publish)
        return self.lab.compiled_with(f"by_{key}_{name}", view, self.types)

    def send(self, *events: Mapping[str, Any], partition: int = 0) -> None:
        made = [{"event_id": uuid.uuid4().hex, "occurred_at": datetime.now(UTC).isoformat(), **each} for each in events]
        self.send_raw(*(json.dumps(each).encode() for each in made), partition=partition)

    def send_raw(self, *values: bytes, partition: int = 0) -> None:
        producer = Producer({**self.lab.settings.kafka(), "acks": "all"})
        for value in values:
            producer.produce(self.name, value, partition=partition)
        assert producer.flush(deadline(10)) == 0

    def archive(self, types: Mapping[str, EventType] | None = None) -> None:
        """Archive the rest of the log with the archive's own task and commit."""
        settings, types = self.lab.settings, types or self.types
        end = topics.end_offsets(settings, [self.name])
        with open_catalog(settings) as catalog:
            zero = dict.fromkeys(end.offsets[self.name], 0)
            made = ensure_table(catalog, types[self.name], end.ids[self.name], zero)
            begin = archived_positions(settings, [self.name])
            ranges = begin.ranges_to(end)
            if not ranges:
                return
            with connect(settings) as connection:
                event_registry.require_known(settings, connection, types, end)
            tables = {self.name: blueprint(made.metadata)}
            writer = FileWriter(WriterSettings.of(settings), types, tables, {})
            files = write_ranges(self.lab.spark, settings.kafka(KafkaUser.READER), ranges, writer)
            counts = {r.partition: r.end - r.start for r in ranges}
            data = tuple(each.data_file for each in files)
            at = begin.offsets[self.name], dict(end.offsets[self.name])
            commit(catalog, Append(self.name, end.ids[self.name], *at, counts, data, reading=types[self.name].reading))

    def stream(self, types: Mapping[str, EventType] | None = None, until: Positions | None = None) -> None:
        """Merge the rest of the log, decoded by these types."""
        settings, types, compiled = self.lab.settings, types or self.types, self.compiled
        table.deploy_table(self.lab.connection, compiled)
        end = until or topics.end_offsets(settings, [self.name])
        begin = merge.positions(self.lab.connection, compiled)
        begin = begin if begin.offsets else Positions({self.name: dict.fromkeys(range(PARTITIONS), 0)}, end.ids)
        if begin.ranges_to(end):
            events = log_with_archive.read_events(self.lab.spark, settings, types, begin, end)
            batch = EventRange(events, begin, end, readings_of(types.values()))
            BatchApplier(settings).apply(self.lab.connection, compiled, batch, begin)

    def rows(self) -> dict[str | None, int]:
        query = sql.SQL("SELECT {}, events FROM {}").format(
            sql.Identifier(self.key), sql.Identifier("state", self.compiled.own.name)
        )
        found: Sequence[Any] = self.lab.connection.execute(query).fetchall()
        return {text: int(events) for text, events in found}

    @property
    def context(self) -> BatchContext:
        return BatchContext(self.lab.spark, self.lab.settings, self.types)

    def reconcile(self, *, from_raw: bool = False) -> ReconcileResult:
        return reconcile(self.context, self.compiled, ReconcileRequest(from_raw=from_raw))

    def certificate(self, found: ReconcileResult) -> Certificate:
        assert found.certificate is not None, found
        return certificate_store.find_certificate(self.lab.settings, found.certificate)

    def verify(self, certified: Certificate) -> tuple[str, str]:
        """The answer and its reason, by the versions in the bucket."""
        types = event_registry.types_in_bucket(self.lab.settings)
        found = CertificateVerifier(self.lab.spark, self.lab.settings, types, self.compiled).verify(certified)
        return found.answer, found.reason

    def require_equal(self) -> ReconcileResult:
        """The streamed view equals its rebuild from typed columns and from raw bytes, whose comparison is returned."""
        for from_raw in (False, True):
            found = self.reconcile(from_raw=from_raw)
            assert found.equal, (from_raw, found.verdict, found.reason, found.sample)
        return found

    def rejudge(self) -> None:
        event_registry.begin_reading(self.lab.settings, self.name)
        rejudge.rebuild_under_reading(Rebuilder(self.context, self.lab.connection, self.compiled))
