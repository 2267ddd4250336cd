"""What Kafka lacks, and what it still has of erased records, is read from the archive instead."""

import json
from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.beds.archived import PER_URL, Archived
from tests.beds.lab import Lab
from tests.builders.erasures import an_erasure, forget_erasures
from tests.deadline import deadline, until
from tests.library.letters import TOPIC as LETTERS
from tests.library.letters import Letters, send
from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.batch import log_with_archive
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

TOPIC = "exchange_rate"
FAST = {"min.compaction.lag.ms": "0", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}


def offsets_in_kafka(settings: Settings) -> list[int]:
    consumer = Consumer({**settings.kafka(), "group.id": "t", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(message.offset())
    consumer.close()
    return [int(str(each)) for each in found]


@pytest.fixture
def cleaned(lab: Lab, platform: Settings) -> Iterator[tuple[Archived, list[dict[str, str]]]]:
    """A compacted topic with three archived prices of one key, from which Kafka has removed the first two prices."""
    declared = lab.types["click"]
    price = replace(declared, name=TOPIC, topic=replace(declared.topic, partitions=1, compacted=True))
    lab = replace(lab, types={**lab.types, TOPIC: price})
    topics.sync_topics(platform, {TOPIC: price})
    admin = AdminClient(platform.kafka())
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in FAST.items()]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()
    archive = Archived(lab, lab.compiled("per_price", PER_URL), {TOPIC: {0: 0}}, topics.topic_ids(platform, [TOPIC]))
    with open_catalog(platform) as catalog:
        ensure_table(catalog, price, archive.ids[TOPIC], archive.ends[TOPIC])
    common = {"search_id": "1", "visitor_id": "v", "occurred_at": "2026-03-01T00:00:00Z"}
    values = [common | {"event_id": f"e{n}", "url": f"u{n}"} for n in range(4)]
    producer = Producer({**platform.kafka(), "acks": "all"})
    for value in values[:3]:
        producer.produce(TOPIC, json.dumps(value).encode(), key=b"k")
        assert producer.flush(deadline(10)) == 0
        Event().wait(0.2)  # the next record begins a segment, because only closed segments are compacted
    archive._archive(TOPIC, [archive._batch(TOPIC, 0, values[:3])])
    producer.produce(TOPIC, json.dumps(values[3]).encode(), key=b"k")
    assert producer.flush(deadline(10)) == 0
    until(lambda: _require_cleaned(platform), 90, "the broker to compact the topic")
    yield archive, values
    with open_catalog(platform) as catalog:
        catalog.drop_table(identifier(TOPIC))
    admin.delete_topics([TOPIC])[TOPIC].result()


def _require_cleaned(settings: Settings) -> None:
    if len(found := offsets_in_kafka(settings)) > 2:
        raise ServiceDown(f"Kafka still has {found}")


def test_what_compaction_removed_is_read_from_the_archive(cleaned: tuple[Archived, list[dict[str, str]]]) -> None:
    archive, values = cleaned
    settings, spark = archive.lab.settings, archive.lab.spark
    assert topics.compacted_topics(settings, [TOPIC, "click"]) == {TOPIC}
    assert offsets_in_kafka(settings)[0] > 0
    begin, end = Positions({TOPIC: {0: 0}}, archive.ids), topics.end_offsets(settings, [TOPIC])
    assert end.at(TOPIC, 0) == 4  # the fourth price is not archived
    events = log_with_archive.read_events(spark, settings, archive.lab.types, begin, end)
    found = {row.offset: row.url for row in events[TOPIC].collect()}
    assert found == {n: value["url"] for n, value in enumerate(values)}
    begin, end = (Positions({TOPIC: {0: offset}}, archive.ids) for offset in (1, 2))
    part = log_with_archive.read_events(spark, settings, archive.lab.types, begin, end)
    assert [row.offset for row in part[TOPIC].collect()] == [1]


def test_erased_records_are_not_read_although_kafka_has_them(letters: Letters) -> None:
    begin, lab = letters.positions(), letters.lab
    letters.counts("ann", "bob", "ann")
    wanted = Erasure(
        UUID(int=1), frozenset({Subject.of(b"s", "reason", "ann")}), {LETTERS: ("reason",)}, letters.ends()
    )
    with open_catalog(lab.settings) as catalog:
        assert ArchiveEraser(catalog, lab.types[LETTERS], Erasures(b"s", (wanted,))).rewrite() == 2
    assert reasons(letters, begin) == ["ann", "ann", "bob"]  # the ledger does not say yet that the archive shows it
    an_erasure(lab.connection, wanted)
    try:
        assert reasons(letters, begin) == ["bob"]
        send(lab.settings, "ann")  # this one is at the end of the erasure, and is not archived yet
        assert reasons(letters, begin) == ["ann", "bob"]
    finally:
        forget_erasures(lab.connection)


def reasons(letters: Letters, begin: Positions) -> list[str]:
    """The reasons of the letters from `begin` on."""
    lab = letters.lab
    events = log_with_archive.read_events(lab.spark, lab.settings, lab.types, begin, letters.ends())
    return sorted(row.reason for row in events[LETTERS].collect())
