"""CloudEvents that the library `cloudevents` sends to a collector, and the examples of the page."""

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from jsonschema import Draft202012Validator

from tests.house.tree import PROJECT
from tests.scenes.collector_client import Client, Response, another
from tests.scenes.documented import agrees, examples, outputs
from truelog.log.kafka_reader import headers_of, messages
from truelog.support.settings import Settings

PAGE = PROJECT / "docs/cloudevents.md"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ADDED = {"cart_id": "c1", "visitor_id": "ann", "verb": "added", "product": "lampe à café ☕", "quantity": 1}


@pytest.fixture(scope="module")
def producer(platform: Settings) -> Iterator[Client]:
    with another(platform) as (settings, _):
        yield Client(settings, settings.producer_key.get_secret_value())


def made(**changes: Any) -> CloudEvent:
    attributes = {"type": "com.example.cart_event", "source": "https://shop.example", "subject": "café ☕ 100%"}
    return CloudEvent({**attributes, "datacontenttype": "application/json", **changes}, ADDED)


def post(producer: Client, message: HTTPMessage) -> Response:
    authorized = {"Authorization": f"Bearer {producer.key}"}
    return producer.request("POST", "/events", message.body, message.headers | authorized)


def stored(settings: Settings, place: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes | None]]:
    """The value and the headers of the record at the place that a response names."""
    [record] = messages(settings, place["topic"], place["partition"], place["offset"], place["offset"] + 1)
    return json.loads(record.value() or b""), dict(headers_of(record))


def test_an_event_in_each_mode_becomes_the_same_record(producer: Client) -> None:
    event = made(id="8e01", time=datetime(2026, 11, 25, 9, 30, tzinfo=UTC), traceparent=TRACE)
    structured = to_structured_event(event)
    batch = HTTPMessage({"content-type": "application/cloudevents-batch+json"}, b"[" + structured.body + b"]")
    records = []
    for message in (to_binary_event(event), structured, batch):
        response = post(producer, message)
        assert (response.status, response.body["bad"]) == (200, [])
        value, headers = stored(producer.settings, response.body["good"][0])
        assert value.pop("received_at")
        assert headers == {"traceparent": TRACE.encode()}
        records.append(value)
    sent = {name: value for name, value in json.loads(structured.body).items() if name != "data"}
    envelope = {"type": "cart_event", "event_id": "https://shop.example 8e01", "occurred_at": "2026-11-25T09:30:00Z"}
    assert records == [envelope | {"cloudevent": sent} | ADDED] * 3


def test_a_batch_has_good_and_bad_events_with_traces_of_their_own(producer: Client) -> None:
    events = [made(), made(type="com.example.cart_event.v2", traceparent=TRACE), made(traceparent="no trace")]
    body = b"[" + b",".join(to_structured_event(each).body for each in events) + b"]"
    other = TRACE.replace("4bf9", "5bf9")
    batched = {"content-type": "application/cloudevents-batch+json; charset=utf-8", "traceparent": other}
    response = post(producer, HTTPMessage(batched, body))
    assert response.status == 207
    assert [each["index"] for each in response.body["good"]] == [0, 2]
    [bad] = response.body["bad"]
    letter, headers = stored(producer.settings, bad)
    assert (bad["field"], letter["sender"], headers["traceparent"]) == ("type", "producer", TRACE.encode())
    assert json.loads(base64.b64decode(letter["raw"]))["type"] == "v2"
    for each in response.body["good"]:
        assert stored(producer.settings, each)[1] == {"traceparent": other.encode()}


def test_the_openapi_document_describes_cloud_events(producer: Client) -> None:
    found = producer.request("GET", "/openapi.json", None, {"Authorization": f"Bearer {producer.key}"}).body
    content = found["paths"]["/events"]["post"]["requestBody"]["content"]
    assert content.keys() >= {"application/cloudevents+json", "application/cloudevents-batch+json"}
    schema = Draft202012Validator(found["components"]["schemas"]["cart_event_cloud_event"])
    right = json.loads(to_structured_event(made()).body)
    assert schema.is_valid(right)
    taken = ADDED | {"event_id": "5f1c"}
    wrong: list[dict[str, Any]] = [{"type": "com.example.click"}, {"data": taken}, {"data": {}}, {"time": 5}]
    assert not any(schema.is_valid(right | each) for each in wrong)


def test_every_example_of_the_page_works(producer: Client, tmp_path: Path) -> None:
    (tmp_path / "settings.env").write_text(f"TRUELOG_PRODUCER_KEY={producer.key}\n")
    address = producer.settings.address("collector")
    replaced = {"127.0.0.1:18080": f"{address.host}:{address.port}", ".truelog/": ""}
    found = examples(PAGE)
    printed = outputs(found, replaced, tmp_path)
    assert [e.command for e, output in zip(found, printed, strict=True) if not agrees(e.shown, output)] == []
    assert sum(bool(each.shown) for each in found) > 5


def test_the_program_of_the_page_works(
    producer: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = producer.settings.address("collector")
    text = PAGE.read_text().replace("127.0.0.1:18080", f"{address.host}:{address.port}")
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.setenv("SHOP_WRITES", producer.key)
    exec(program, {"__name__": "page"})
    assert capsys.readouterr().out == "200\n"
