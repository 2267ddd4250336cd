"""A town: people visit pages, change their profiles, follow each other and tweet. One of them wants to be forgotten.

Kafka, the archive and the views are real. The test says when a town archives and counts
what Kafka has.
"""

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.deadline import deadline
from truelog.archive.commit import Append, commit
from truelog.archive.table import archived_positions, ensure_table, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.batch.batch_context import BatchContext
from truelog.control import event_registry
from truelog.control.view_loader import load_views
from truelog.kernel import merge
from truelog.kernel.apply_batch import BatchApplier, EventRange
from truelog.log import range_reader, records, topics
from truelog.log.positions import Positions
from truelog.reconcile.reconcile import reconcile_views
from truelog.reconcile.reconcile_result import COMPARE_ONLY, ReconcileResult
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection
from truelog.support.settings import KafkaUser, Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.views import catalogue

VIEWS = ("home_timeline", "page_audience", "sessions")
PERSON, NEIGHBOUR, THIRD = "xanthippe-4711", "bertha-1", "carl-2"
NAME, ADDRESS, TWEET = "Xanthippe Quellfluss", "203.0.113.77", "zwiebelkuchen991"
TRACES = (PERSON, NAME, "Quellfluss", ADDRESS, TWEET)
FIELDS = ("author_id", "followee_id", "follower_id", "person_id", "visitor_id")
SUBJECTS = frozenset((field, PERSON) for field in FIELDS)
SEEN = "2026-03-01T10:00:0{}Z"


@dataclass
class Town:
    """What happens in the town, and the views of it."""

    context: BatchContext
    connection: Connection

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def types(self) -> EventTypes:
        return self.context.event_types

    def view(self, name: str) -> CompiledView:
        [found] = [each for each in self.context.views.compiled if each.name == name]
        return found

    def live(self) -> None:
        """Each person visits a page, and the person who wants to be forgotten does everything else too."""
        for number, person in enumerate((PERSON, NEIGHBOUR, PERSON)):
            ip = {"ip": ADDRESS} if person == PERSON else {}
            self.send("page_view", number, visitor_id=person, url="https://town.example/market", **ip)
        self.send("profile", 1, person_id=PERSON, verb="changed", name=NAME, company="Town Bakery")
        self.send("profile", 1, person_id=NEIGHBOUR, verb="changed", name="Bertha", company="Town Bakery")
        for follower, followee in ((NEIGHBOUR, PERSON), (PERSON, NEIGHBOUR), (THIRD, NEIGHBOUR)):
            self.send("follow", 2, follower_id=follower, followee_id=followee, verb="followed")
        self.send("tweet", 3, tweet_id="t1", author_id=PERSON, verb="posted", text=TWEET)
        self.send("tweet", 3, tweet_id="t2", author_id=NEIGHBOUR, verb="posted", text="good morning")
        posted = json.dumps({"type": "profile", "preson_id": PERSON, "name": NAME}).encode()
        self.dead_letter(posted)
        self.dead_letter(json.dumps({"type": "profile", "preson_id": NEIGHBOUR}).encode())

    def send(self, topic: str, second: int, **values: str) -> None:
        key = self.types[topic].topic.key
        event = {"event_id": uuid.uuid4().hex, "occurred_at": SEEN.format(second), **values}
        self._produce(topic, event, values[key] if key else None)

    def dead_letter(self, posted: bytes) -> None:
        event = {"event_id": uuid.uuid4().hex, "occurred_at": SEEN.format(0), "field": "preson_id", "sender": "s"}
        self._produce("dead_letter", event | {"reason": "unknown", "raw": base64.b64encode(posted).decode()}, None)

    def _produce(self, topic: str, event: Mapping[str, str], key: str | None) -> None:
        producer = Producer(self.settings.kafka(KafkaUser.ADMIN))
        producer.produce(topic, json.dumps(event).encode(), key)
        assert producer.flush(deadline(30)) == 0

    def archive(self) -> None:
        """Archive what Kafka has of every topic, as the archive application does."""
        ends = topics.end_offsets(self.settings, self.types)
        with open_catalog(self.settings) as catalog:
            for topic in self.types:
                _archive(self.settings, self.types, ends.only([topic]), catalog)

    def stream(self) -> None:
        """Let each view count what Kafka has."""
        for compiled in self.context.views.compiled:
            deploy.deploy_table(self.connection, compiled)
            end = topics.end_offsets(self.settings, compiled.view.topics)
            begin = merge.positions(self.connection, compiled)
            start = Positions(
                {t: dict.fromkeys(p, 0) | dict(begin.offsets.get(t, {})) for t, p in end.offsets.items()}, end.ids
            )
            types = {topic: self.types[topic] for topic in compiled.view.topics}
            read = records.read(self.context.spark, self.settings, types, start.ranges_to(end))
            batch = EventRange(records.events(read, types), start, end)
            BatchApplier(self.settings).apply(self.connection, compiled, batch, start)

    def reconcile(self) -> dict[str, ReconcileResult]:
        return {each.view: each for each in reconcile_views(self.context, COMPARE_ONLY)}


def _archive(settings: Settings, types: EventTypes, ends: Positions, catalog: Any) -> None:
    [topic] = ends.offsets
    zero = dict.fromkeys(ends.offsets[topic], 0)
    metadata = ensure_table(catalog, types[topic], ends.ids[topic], zero).metadata
    begin = zero | dict(archived_positions(settings, [topic]).offsets.get(topic, {}))
    ranges = Positions({topic: begin}, ends.ids).ranges_to(ends)
    if not ranges:
        return
    tables, files, counts = {topic: blueprint(metadata)}, [], dict.fromkeys(zero, 0)
    writer = FileWriter(WriterSettings.of(settings), types, tables, {})
    for each in ranges:
        batches = list(range_reader.read(settings.kafka(KafkaUser.READER), [each], range_reader.WHOLE))
        counts[each.partition] = sum(batch.num_rows for batch in batches)
        files += [load_archived_file(file["file"][0].as_py(), tables) for file in writer(iter(batches))]
    made = tuple(file.data_file for file in files)
    commit(catalog, Append(topic, ends.ids[topic], begin, dict(ends.offsets[topic]), counts, made))


def new_town(spark: SparkSession, settings: Settings, connection: Connection) -> Town:
    """A town in which nothing has happened yet."""
    types = event_registry.event_types(settings)
    loaded = load_views(spark, settings, types, catalogue.view_names(settings.views_folder))
    assert not loaded.refused
    return Town(BatchContext(spark, settings, types, loaded), connection)
