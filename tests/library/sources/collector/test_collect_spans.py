"""The spans of sampled events, from a collector in a process of its own through the relay to a subscriber.

Kafka, PostgreSQL, the API and the receiver of OTLP are real. A transaction of the test is the merge, without Spark.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from tests.deadline import deadline
from tests.library.listener import FAILS, HANGS, TAKES, Listener, listening
from tests.library.relay.published import Published, publishing
from tests.library.relay.read_topic import records
from tests.library.relay.received import received, sampled, wait_for, wait_for_trace
from tests.library.services.api.streaming import serving
from tests.scenes.collector_client import Client, Response, another, page_view
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.positions import Range
from truelog.relay import step_trace, view_outputs
from truelog.relay.spans import now, open_spans
from truelog.sources.collector.collect_spans import MOST_SPANS
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

SECRET = "hunter2"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture(scope="module")
def producer(platform: Settings, receiver: Listener) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with another(platform, spans_endpoint=receiver.url, spans_headers=f"x-key={SECRET}") as (settings, _):
            yield Client(settings, settings.producer_key.get_secret_value())


@pytest.fixture(scope="module")
def connection(platform: Settings) -> Iterator[Connection]:
    with connect(platform, autocommit=True) as made:
        yield made


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    with publishing(platform, connection) as made:
        yield made


def traceparent(*, is_sampled: bool = True) -> str:
    """That of a sender."""
    return f"00-{uuid.uuid4().hex}-00f067aa0ba902b7-0{int(is_sampled)}"


def header(producer: Client, place: dict[str, Any]) -> str:
    """The header `traceparent` of the record at a place that a response names."""
    topic, partition, offset = place["topic"], place["partition"], place["offset"]
    [record] = messages(producer.settings, topic, partition, offset, offset + 1)
    return (dict(headers_of(record))["traceparent"] or b"").decode()


def publish(producer: Client, view: Published, response: Response, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge the events of a response, and publish the changed row."""
    monkeypatch.setattr(step_trace, "_RECENT", timedelta(seconds=deadline(60)))
    monkeypatch.setattr(step_trace, "_SECONDS", deadline(20))
    merged = [Range(p["topic"], p["partition"], p["offset"], p["offset"] + 1) for p in response.body["good"]]
    view.change({"p1": "1"}, records=merged)
    relay_spans = open_spans(producer.settings.model_copy(update={"spans_headers": SecretStr("")}), "relay")
    with view_outputs.open_outputs(producer.settings, relay_spans) as outputs:
        while not any(row for row in _sent(view)):
            outputs.publish()
    relay_spans.close()


def _sent(view: Published) -> Sequence[int]:
    query = "SELECT sent FROM truelog.output WHERE view = %s"
    return [int(str(sent)) for (sent,) in view.connection.execute(query, (view.compiled.name,)).fetchall()]


def test_the_spans_of_a_sampled_event_are_one_tree(
    producer: Client, receiver: Listener, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, name, begin = traceparent(), view.compiled.name, now()
    response = producer.post(page_view(visitor_id="ann@example.com"), traceparent=sender)
    assert response.status == 200
    with serving(producer.settings, spans_headers=SecretStr("")) as api, api.following(name) as told:
        told.next()  # the rows, before the change
        publish(producer, view, response, monkeypatch)
        told.read_to(1)
        found = wait_for(receiver, f"merge {name}", f"publish {name}", f"push {name}")
    [collect] = [each for each in received(receiver) if each.trace == sender[3:35] and each.name == "collect page_view"]
    merge, published, push = (found[f"{stage} {name}"] for stage in ("merge", "publish", "push"))
    spans = (collect, merge, published, push)
    assert [each.service.removeprefix("truelog-") for each in spans] == ["collector", "relay", "relay", "api"]
    assert [each.kind for each in spans] == ["SERVER", "CONSUMER", "PRODUCER", "PRODUCER"]
    assert {each.trace for each in spans} == {sender[3:35]}
    assert [each.parent for each in spans] == [sender[36:52], collect.id, merge.id, merge.id]
    assert begin <= collect.begin <= merge.begin <= merge.end <= published.begin <= published.end <= now()
    assert merge.end == push.begin <= push.end <= now()
    assert push.attributes == {
        "truelog.view": name,
        "truelog.version": 1,
        "truelog.number": 1,
        "truelog.subscribers": 1,
    }
    [place] = response.body["good"]
    where = {"messaging.destination.name": "page_view", "messaging.kafka.offset": place["offset"]}
    assert collect.attributes.items() >= where.items()
    [row] = records(producer.settings, view.topic)
    assert published.attributes.items() >= {"truelog.view": name, "truelog.version": 1, "truelog.rows": 1}.items()
    assert published.attributes["messaging.destination.name"] == view.topic
    assert published.attributes["messaging.kafka.offset"] == row.offset()
    assert 0 < published.attributes["truelog.seconds_since_log"] < deadline(60)
    assert header(producer, place) == collect.traceparent
    assert dict(headers_of(row))["traceparent"] == published.traceparent.encode()
    assert "ann@" not in str(spans)
    assert SECRET in [each.get("x-key") for each in receiver.headers]


def test_an_event_that_is_not_sampled_has_no_span(
    producer: Client, receiver: Listener, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = traceparent(is_sampled=False)
    response = producer.post(page_view(), traceparent=sender)
    publish(producer, view, response, monkeypatch)
    assert header(producer, response.body["good"][0]) == sender
    [row] = records(producer.settings, view.topic)
    assert dict(headers_of(row))["traceparent"] == sender.encode()
    last = traceparent()
    producer.post(page_view(), traceparent=last)
    wait_for_trace(receiver, last)
    assert sampled(receiver, sender[3:35]) == []


def test_a_request_with_several_types_and_a_bad_event_has_one_span(producer: Client, receiver: Listener) -> None:
    sender = traceparent()
    response = producer.post([page_view(1), page_view(2, status=99), 5], traceparent=sender)
    assert response.status == 207
    wait_for_trace(receiver, sender)
    [span] = [each for each in received(receiver) if each.trace == sender[3:35]]
    counts = {"messaging.batch.message_count": 3, "truelog.bad_events": 2}
    assert (span.name, span.attributes.items() >= counts.items()) == ("collect", True)
    for each in (*response.body["good"], *response.body["bad"]):
        assert header(producer, each) == span.traceparent


def test_cloud_events_have_the_spans_of_their_own_traces(producer: Client, receiver: Listener) -> None:
    own, request = traceparent(), traceparent()
    cart = {"cart_id": "c1", "visitor_id": "ann", "verb": "added", "product": "tea", "quantity": 1}
    about = {"specversion": "1.0", "source": "https://shop.example", "type": "com.example.cart_event"}
    about |= {"time": "2026-11-25T09:30:00Z"}
    events = [
        {**about, "id": "1", "data": cart, "traceparent": own},
        {**about, "id": "2", "data": cart, "traceparent": traceparent(is_sampled=False)},
        {**about, "id": "3", "data": cart},
    ]
    response = producer.post(events, "application/cloudevents-batch+json", traceparent=request)
    assert response.status == 200
    headers = [header(producer, each) for each in response.body["good"]]
    for sender in (own, request):
        wait_for_trace(receiver, sender)
    spans = {each.trace: each.traceparent for each in received(receiver)}
    assert headers == [spans[own[3:35]], events[1]["traceparent"], spans[request[3:35]]]


def test_a_request_has_a_limited_number_of_spans(producer: Client, receiver: Listener) -> None:
    """Each takes time of the event loop, which all requests share."""
    cart = {"cart_id": "c1", "visitor_id": "ann", "verb": "added", "product": "tea", "quantity": 1}
    about = {"specversion": "1.0", "source": "https://shop.example", "type": "com.example.cart_event"}
    about |= {"time": "2026-11-25T09:30:00Z"}
    senders = [traceparent() for _ in range(MOST_SPANS + 2)]
    events = [{**about, "id": f"many {each}", "data": cart, "traceparent": each} for each in senders]
    response = producer.post(events, "application/cloudevents-batch+json")
    assert response.status == 200
    wait_for_trace(receiver, senders[MOST_SPANS - 1])
    spans = {each.trace: each.traceparent for each in received(receiver)}
    assert [each for each in senders if each[3:35] not in spans] == senders[MOST_SPANS:]
    for number in (0, MOST_SPANS - 1):
        assert header(producer, response.body["good"][number]) == spans[senders[number][3:35]]
    assert [header(producer, each) for each in response.body["good"][MOST_SPANS:]] == senders[MOST_SPANS:]


@pytest.mark.parametrize("mood", [HANGS, FAILS])
def test_a_receiver_in_trouble_fails_and_delays_no_request(producer: Client, receiver: Listener, mood: str) -> None:
    receiver.mood = mood
    try:
        began = time.monotonic()
        for number in range(20):
            assert producer.post(page_view(number), traceparent=traceparent()).status == 200
        assert time.monotonic() - began < deadline(8)
    finally:
        receiver.away()
        receiver.back()
    assert receiver.mood == TAKES


def test_a_stopping_collector_sends_what_is_left(
    platform: Settings, receiver: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    sender = traceparent()
    with another(platform, spans_endpoint=receiver.url) as (settings, _):
        producer = Client(settings, settings.producer_key.get_secret_value())
        assert producer.post(json.dumps(page_view()).encode(), traceparent=sender).status == 200
        assert sampled(receiver, sender[3:35]) == []
    assert sampled(receiver, sender[3:35]) == ["collect page_view"]
