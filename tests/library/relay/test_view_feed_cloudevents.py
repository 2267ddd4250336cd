"""The records of an output topic are CloudEvents for the library `cloudevents`, in Kafka's binary content mode."""

import json
from datetime import timedelta

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Message

from tests.library.relay.published import Published, publish_all
from tests.library.relay.read_topic import records
from truelog.log.kafka_reader import headers_of
from truelog.support.settings import Settings


def event_of(record: Message) -> BaseCloudEvent:
    """The event in a record. The library checks the attributes. A tombstone has no data."""
    headers = {name: value or b"" for name, value in headers_of(record)}
    return from_kafka(KafkaMessage(headers, record.key(), record.value() or b""), JSONFormat(), CloudEvent)


def test_every_record_is_a_cloud_event(platform: Settings, view: Published) -> None:
    view.change({"p1": "1", "p2 \u00fc": "2"})
    view.change({}, "p1")
    publish_all(platform)
    stored = list(records(platform, view.topic))
    found = [event_of(each) for each in stored]
    changed, removed = "truelog.row.changed", "truelog.row.removed"
    assert [each.get_type() for each in found] == [changed, changed, removed]
    assert {each.get_source() for each in found} == {f"/views/{view.compiled.name}/v1"}
    assert len({each.get_id() for each in found}) == len(found)
    for event, record in zip(found, stored, strict=True):
        assert event.get_specversion() == "1.0"
        assert event.get_datacontenttype() == "application/json"
        assert event.get_data() == json.loads(record.value() or b"null")
        assert event.get_extension("partitionkey") == (record.key() or b"").decode()
        at = event.get_time()
        assert at is not None
        assert at.utcoffset() == timedelta(0)
