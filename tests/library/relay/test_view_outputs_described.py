"""What the AsyncAPI document says of an output, compared with the records that the relay publishes."""

import json

from jsonschema import Draft7Validator

from tests.library.relay.published import EXACT, Published, publish_all
from tests.library.relay.read_topic import records
from truelog.log.kafka_reader import headers_of
from truelog.reports.contracts.asyncapi import output_channel
from truelog.reports.contracts.described import columns_of
from truelog.support.settings import Settings


def test_the_asyncapi_document_is_true_of_the_records(platform: Settings, view: Published) -> None:
    view.change({"p1": EXACT})
    view.change({}, "p1")
    publish_all(platform)
    name = view.compiled.name
    channel = output_channel(name, view.compiled.view, "", columns_of(view.connection, f"{name}_v1"))
    assert channel["address"] == view.topic
    for record, kind in zip(records(platform, view.topic), ("changed", "removed"), strict=True):
        message = channel["messages"][kind]
        key, value = (json.loads(each or b"null") for each in (record.key(), record.value()))
        Draft7Validator(message["bindings"]["kafka"]["key"]).validate(key)
        Draft7Validator(message["payload"]).validate(value)
        headers = {each: (text or b"").decode() for each, text in headers_of(record)}
        Draft7Validator(message["headers"]).validate(headers)
        assert {*message["headers"]["required"]} == headers.keys()
