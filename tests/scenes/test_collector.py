"""The collector with its services: every response and the resulting content of the log."""

import base64
import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import runtime
from runtime import keeper
from runtime.services import SERVICES
from tests.deadline import deadline, until
from tests.house.tree import PROJECT
from tests.scenes.collector_client import (
    JSON,
    NDJSON,
    Client,
    Response,
    another,
    page_view,
    read_response,
    read_topic,
    record,
    require_refused,
)
from tests.scenes.documented import agrees, examples, outputs
from tests.scenes.restarts import pids, require_restarted
from truelog.log import topics
from truelog.storage import api_key
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers


@pytest.fixture(scope="module")
def collector(platform: Settings) -> Settings:
    runtime.up(platform, ("ticks", "collector"), tethered=True)
    return platform


@pytest.fixture
def producer(collector: Settings) -> Client:
    return Client(collector, collector.producer_key.get_secret_value())


# --- events -----------------------------------------------------------------------------------------------


def test_an_event_is_in_the_log_where_the_response_says(producer: Client) -> None:
    sent = json.dumps(page_view(7, unknown={"kept": [1.50]})).encode()
    response = producer.post(sent)
    assert (response.status, response.body["bad"]) == (200, [])
    [coordinates] = response.body["good"]
    assert (coordinates["index"], coordinates["topic"]) == (0, "page_view")
    key, value = record(producer.settings, coordinates)
    assert key == b"v7"
    assert value is not None
    assert value.startswith(b'{"received_at":"')
    assert value.endswith(b'Z",' + sent[1:])


def test_every_example_of_the_documentation_works(producer: Client, tmp_path: Path) -> None:
    found = examples(PROJECT / "docs/events.md")
    address = producer.settings.address("collector")
    replaced = {"127.0.0.1:18080": f"{address.host}:{address.port}", ".truelog/": f"{producer.settings.home}/"}
    printed = outputs(found, replaced, tmp_path)
    assert [e.command for e, output in zip(found, printed, strict=True) if not agrees(e.shown, output)] == []
    assert sum(bool(each.shown) for each in found) > 8


def test_the_openapi_document_describes_each_event_type_to_who_has_a_key(producer: Client) -> None:
    assert producer.request("GET", "/openapi.json", None, {}).status == 401
    response = producer.request("GET", "/openapi.json", None, {"Authorization": f"Bearer {producer.key}"})
    schemas = response.body["components"]["schemas"]
    assert (response.status, {"page_view", "tweet"} <= schemas.keys(), "ticks" in schemas) == (200, True, False)
    event = Draft202012Validator(schemas["page_view"])
    assert event.is_valid(page_view())
    assert not any(map(event.is_valid, (page_view(status=99), page_view(type="tweet"), page_view(received_at="now"))))


def test_valid_and_invalid_events_are_listed_separately(producer: Client) -> None:
    response = producer.post([page_view(0), page_view(1, status=99), 5, page_view(3), {"type": "ticks"}])
    assert response.status == 207
    assert [coordinates["index"] for coordinates in response.body["good"]] == [0, 3]
    assert [(bad["index"], bad["field"], bad["topic"]) for bad in response.body["bad"]] == [
        (1, "status", "dead_letter"),
        (2, "record", "dead_letter"),
        (4, "type", "dead_letter"),
    ]
    values = [record(producer.settings, coordinates)[1] for coordinates in response.body["good"]]
    assert [json.loads(value or b"")["event_id"] for value in values] == ["e0", "e3"]


def test_lines_and_gzip(producer: Client) -> None:
    sent = b"\r\n".join([json.dumps(page_view(n)).encode() for n in range(3)] + [b"", b"no json"])
    plain = producer.post(sent, NDJSON)
    packed = producer.post(gzip.compress(sent), "application/x-ndjson; charset=utf-8", Content_Encoding="gzip")
    for response in (plain, packed):
        assert response.status == 207
        assert [coordinates["index"] for coordinates in response.body["good"]] == [0, 1, 2]
        assert [bad["index"] for bad in response.body["bad"]] == [3]


def test_an_empty_request_is_valid(producer: Client) -> None:
    for response in (producer.post([]), producer.post(b"\n\n", NDJSON)):
        assert (response.status, response.body) == (200, {"good": [], "bad": []})


@pytest.mark.parametrize(
    "raw", [b"", b" \x00\xff not json\r\n", b'{"type":"page_view","url":"\\ud800\xfe"}', b"{" * 3000]
)
def test_an_invalid_event_is_stored_byte_for_byte(producer: Client, raw: bytes) -> None:
    response = producer.post(raw)
    assert (response.status, response.body["good"]) == (422, [])
    [bad] = response.body["bad"]
    _, value = record(producer.settings, bad)
    letter = json.loads(value or b"")
    assert base64.b64decode(letter["raw"]) == raw
    assert (letter["field"], letter["reason"]) == (bad["field"], bad["reason"])
    assert letter["sender"] == "producer"


def test_events_with_one_key_go_to_one_partition(producer: Client) -> None:
    response = producer.post([page_view(n, visitor_id=f"v{n % 9}") for n in range(90)])
    places = response.body["good"]
    assert len({coordinates["partition"] for coordinates in places}) > 1
    assert len({(coordinates["index"] % 9, coordinates["partition"]) for coordinates in places}) == 9


# --- access -----------------------------------------------------------------------------------------------


def test_missing_and_wrong_keys_are_rejected(producer: Client, collector: Settings) -> None:
    right = producer.key
    before = topics.end_offsets(collector, ["page_view", "dead_letter"])
    for wrong in ("", "producer", "producer.", right[:-1], right + "0", right.upper(), "nobody" + right[8:], "ü"):
        response = Client(collector, wrong.encode().decode("latin-1")).post(page_view())
        assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
    assert producer.post(page_view(), Authorization=f"Basic {right}").status == 401
    assert producer.request("POST", "/events", b"{}", {"Content-Type": "application/json"}).status == 401
    assert topics.end_offsets(collector, ["page_view", "dead_letter"]) == before


def test_a_key_has_the_rights_of_its_role(collector: Settings) -> None:
    assert Client(collector, collector.reader_key.get_secret_value()).post(page_view()).status == 403
    assert Client(collector, collector.admin_key.get_secret_value()).post(page_view()).status == 200


def test_keys_are_added_and_revoked_without_a_restart(collector: Settings) -> None:
    key = api_key.generate_key("shop")
    shop = Client(collector, key)
    assert shop.post(page_view()).status == 401
    api_key.store_key(collector, api_key.Role.PRODUCER, key)
    until(lambda: _require(shop, 200), api_key.RELOAD_SECONDS + 10, "the new key")
    with connect(collector) as connection:
        api_key.revoke_key(connection, "shop", "a test")
    until(lambda: _require(shop, 401), api_key.RELOAD_SECONDS + 10, "the revoked key")
    api_key.store_key(collector, api_key.Role.PRODUCER, key)
    with connect(collector) as connection:
        [kept] = connection.execute("SELECT revoked_at IS NOT NULL, sha256 FROM truelog.api_key WHERE name = 'shop'")
    assert kept[0] is True
    assert key.encode() not in bytes(kept[1])


def _require(client: Client, status: int) -> None:
    response = client.post(page_view())
    if response.status != status:
        raise ServiceDown(str(response))


def test_a_client_without_a_key_learns_nothing(producer: Client) -> None:
    for path, status in {"/": 404, "/docs": 404, "/redoc": 404, "/openapi.json": 401}.items():
        assert producer.request("GET", path, None, {}).status == status
    health = producer.request("GET", "/health", None, {})
    assert (health.status, health.body) == (200, {"kafka": True})
    assert "server" not in health.headers


def test_every_path_answers_the_methods_of_http(producer: Client) -> None:
    head = producer.request("HEAD", "/health", None, {})
    assert (head.status, head.body) == (200, {})
    for path, allowed in {"/health": "GET, HEAD, OPTIONS", "/events": "OPTIONS, POST"}.items():
        for method, status in {"OPTIONS": 204, "DELETE": 405}.items():
            response = producer.request(method, path, None, {})
            assert (response.status, response.headers["allow"]) == (status, allowed)


def test_no_key_is_in_a_log(producer: Client, collector: Settings) -> None:
    assert producer.post(page_view()).status == 200
    secrets = [key.get_secret_value().partition(".")[2] for key in (collector.producer_key, collector.admin_key)]
    logs = {file.name: file.read_text(errors="replace") for file in (collector.home / "logs").iterdir()}
    shown = logs.pop("collector.log") + "".join(logs.values())
    assert not [secret for secret in secrets if secret in shown]


# --- limits -----------------------------------------------------------------------------------------------


def test_a_request_that_is_too_large_is_rejected_as_a_whole(producer: Client, collector: Settings) -> None:
    before = topics.end_offsets(collector, ["page_view", "dead_letter"])
    limit = collector.collector_body_bytes
    bomb = gzip.compress(b" " * (20 * limit))
    long, many = page_view(1, x="x" * collector.collector_event_bytes), collector.collector_body_events
    require_refused(producer.post(b" " * (limit + 1)), 413, f"a body may have at most {limit} bytes, decompressed")
    require_refused(producer.post(bomb, Content_Encoding="gzip"), 413, f"at most {limit} bytes, decompressed")
    require_refused(producer.post([page_view(0), long]), 413, f"{collector.collector_event_bytes} bytes")
    require_refused(producer.post([1] * (many + 1)), 413, f"more than {many} events; send fewer at a time")
    assert topics.end_offsets(collector, ["page_view", "dead_letter"]) == before


def test_the_longest_invalid_event_is_stored(producer: Client, collector: Settings) -> None:
    raw = b"x" * collector.collector_event_bytes
    response = producer.post(raw)
    assert response.status == 422
    assert base64.b64decode(json.loads(record(collector, response.body["bad"][0])[1] or b"")["raw"]) == raw


def test_other_content_types_and_encodings_are_rejected(producer: Client) -> None:
    for content_type in ("text/plain", "nonsense"):
        require_refused(producer.post(page_view(), content_type), 415, f"Content-Type: send {JSON}")
    assert producer.post(page_view(), 'application/json; charset="utf8"').status == 200
    for charset in ("iso-8859-1", "utf-16", "none-such"):  # their bytes can be UTF-8 that says something else
        require_refused(producer.post(page_view(), f"{JSON}; charset={charset}"), 415, "send the charset UTF-8")
    require_refused(producer.post(page_view(), Content_Encoding="br"), 415, "Content-Encoding: send gzip, or none")
    require_refused(producer.post(b"no gzip", Content_Encoding="gzip"), 400, "gzip")


def test_a_sender_without_room_must_retry(collector: Settings) -> None:
    small = {"collector_room_requests": 2, "collector_room_bytes": 2000, "collector_body_bytes": 2000}
    with another(collector, None, **small, collector_key_share=1) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        body = json.dumps([page_view()]).encode()
        with client.slow(body) as first, client.slow(b" " * 1600 + body) as second:
            until(lambda: _require(client, 429), 10, "a full collector")
            response = client.post(page_view())
            assert (response.status, response.headers["retry-after"]) == (429, "1")
            first.send(body[-1:])
            assert read_response(first).status == 200
            # There is room for another request, but not for its bytes.
            assert client.post([page_view()] * 3).status == 429
            second.send(body[-1:])
            assert read_response(second).status == 200
        assert client.post([page_view()] * 3).status == 200


def test_a_body_that_does_not_arrive_times_out(collector: Settings) -> None:
    with another(collector, collector_body_seconds=0.5) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        with client.slow(b"[1]") as connection:
            require_refused(read_response(connection), 408, "the body took too long to arrive")


# --- stops and outages ------------------------------------------------------------------------------------


def test_a_stopping_collector_answers_running_requests(collector: Settings) -> None:
    with another(collector) as (settings, process):
        client = Client(settings, settings.producer_key.get_secret_value())
        body = json.dumps([page_view(n) for n in range(20)]).encode()
        with client.slow(body) as connection:
            until(lambda: _require(client, 200), 10, "the collector")
            process.terminate()
            until(lambda: _require_refused(settings), 10, "the collector to refuse new requests")
            connection.send(body[-1:])
            response = read_response(connection)
        assert (response.status, len(response.body["good"])) == (200, 20)
        assert process.wait(deadline(20)) in (0, -signal.SIGTERM)


def _require_refused(settings: Settings) -> None:
    try:
        SERVICES["collector"].ready(settings)
    except ServiceDown:
        return
    raise ServiceDown("it still answers")


def test_a_killed_collector_and_killed_ticks_are_restarted(producer: Client, collector: Settings) -> None:
    before = pids(collector, "collector", "ticks")
    for each in before.values():
        os.kill(each, signal.SIGKILL)
    until(lambda: require_restarted(collector, before), 40, "collector and ticks")
    assert producer.post(page_view()).status == 200


def test_while_kafka_hangs_nothing_is_acknowledged(collector: Settings) -> None:
    """Kafka is suspended, so that connections stay open without a reply: the worst outage."""
    kafka = pids(collector, "kafka")["kafka"]
    with another(collector, collector_acknowledge_seconds=2) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        os.kill(kafka, signal.SIGSTOP)
        try:
            first = client.post([page_view(n) for n in range(10)])
            until(lambda: _require_refused(settings), 10, "the outage to be noticed")
            second = client.post(page_view())
        finally:
            os.kill(kafka, signal.SIGCONT)
        for response in (first, second):
            assert (response.status, response.headers["retry-after"]) == (503, "2")
            assert response.body.keys() == {"error"}
        until(lambda: _require(client, 200), 60, "Kafka's return")


@dataclass
class Sender:
    """Sends batches until Kafka has returned and acknowledged a batch. Obeys `Retry-After`, as senders should."""

    client: Client
    name: str
    responses: list[tuple[float, Response]] = field(default_factory=list)  # with the time of the request
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)

    def send(self, warm: threading.Event, back: threading.Event) -> None:
        """Send until Kafka is back and has acknowledged a batch that was sent after Kafka's return."""
        for number in range(100_000):
            ids, is_back, began = [f"{self.name}-{number}-{n}" for n in range(20)], back.is_set(), time.time()
            answered = self.client.post([page_view(n, event_id=each) for n, each in enumerate(ids)] + ["bad"])
            self.responses.append((began, answered))
            assert answered.status in (207, 503), answered
            for coordinates in answered.body.get("good", ()):
                at = coordinates["partition"], coordinates["offset"]
                assert at not in self.acknowledged, "two events have the same coordinates"
                self.acknowledged[at] = ids[coordinates["index"]]
            if number == 5:
                warm.set()
            if is_back and answered.status == 207:
                return
            if answered.status == 503:
                back.wait(float(answered.headers["retry-after"]))
        raise AssertionError("Kafka did not come back")


@contextmanager
def killed_and_down(settings: Settings, service: str) -> Iterator[None]:
    """Kill a service. The supervisor starts it again only after the block.

    The supervisor is asked to stop the suspended service first, because it starts a service again that ends unasked.
    """
    process = pids(settings, service)[service]
    os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(keeper.stop, settings, service)
        until(lambda: _require_stopping(settings, service), 30, f"the supervisor to stop {service}")
        os.kill(process, signal.SIGKILL)
        stopping.result()
    try:
        yield
    finally:
        runtime.up(settings, (service,), tethered=True)


def _require_stopping(settings: Settings, service: str) -> None:
    if (state := keeper.state(settings, service)["statename"]) != "STOPPING":
        raise ServiceDown(f"{service} is {state}")


def test_every_acknowledged_event_is_in_the_log_after_kafka_was_killed(collector: Settings) -> None:
    """Kafka stays down until the collector has refused each sender's first request after the kill."""
    warm, back = threading.Event(), threading.Event()
    with another(collector, collector_acknowledge_seconds=1) as (settings, _), ThreadPoolExecutor(2) as pool:
        client = Client(settings, settings.producer_key.get_secret_value())
        senders = [Sender(client, f"s{number}") for number in range(2)]
        sending = [pool.submit(sender.send, warm, back) for sender in senders]
        assert warm.wait(deadline(60))
        with killed_and_down(collector, "kafka"):
            killed = time.time()
            until(lambda: _require_answers(senders, killed), 60, "a response to each sender")
        back.set()
        for each in sending:
            each.result()

    log = read_topic(collector, "page_view")
    for sender in senders:
        first, *_ = afterwards = [answered for began, answered in sender.responses if began > killed]
        assert (first.status, first.headers["retry-after"]) == (503, "2")
        assert all(each.body.keys() == {"error"} for each in afterwards if each.status == 503)
        assert afterwards[-1].status == 207
        held = {coordinates: json.loads(log[coordinates] or b"")["event_id"] for coordinates in sender.acknowledged}
        assert held == sender.acknowledged
    [one, other] = (sender.acknowledged.keys() for sender in senders)
    assert not one & other, "two events have the same coordinates"


def _require_answers(senders: list[Sender], since: float) -> None:
    """Require that each sender has got a response to a request that it has begun since then."""
    for sender in senders:
        if not any(began > since for began, _ in sender.responses):
            raise ServiceDown(f"{sender.name} has no response yet")
