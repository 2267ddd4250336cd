"""The collector under hostile senders: its event loop stays free, and no key takes the capacity of the others."""

import gzip
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.deadline import deadline, until
from tests.scenes.collector_client import NDJSON, Client, Response, another, page_view, read_response
from tests.speed import record_speed
from truelog.storage import api_key
from truelog.storage.api_key import Role
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

log = logging.getLogger("truelog.scene")

EVENTS = 10_000
NAMES = b",".join(b'"a%d":1' % number for number in range(40_000))
HOSTILE_BODIES = {
    "10,001 short lines": (b"x\n" * 10_001, NDJSON, 413),
    "10,000 short lines": (b"x\n" * 10_000, NDJSON, 422),
    "10,000 numbers": (json.dumps([1] * EVENTS).encode(), "application/json", 422),
    "4 MB of blank lines": (b"\n" * 4_000_000, NDJSON, 200),
    "a gzip bomb": (gzip.compress(b" " * 40_000_000), NDJSON, 413),
    "40,000 names": (b"{" + NAMES + b',"a1":2}', "application/json", 422),
    "deep nesting": (b"[" * 400_000, "application/json", 422),
    "10,000 events": (json.dumps([page_view(n) for n in range(EVENTS)]).encode(), "application/json", 200),
}


@pytest.fixture(scope="module")
def other_key(platform: Settings) -> str:
    key = api_key.generate_key("other")
    api_key.store_key(platform, Role.PRODUCER, key)
    return key


@pytest.fixture(scope="module")
def limited(platform: Settings, other_key: str) -> Iterator[Settings]:
    """A collector with room for few requests."""
    changes = {"collector_key_dead_letters": 0.5, "collector_header_seconds": 1.0}
    with another(platform, None, collector_room_requests=8, collector_body_events=20, **changes) as (settings, _):
        yield settings


def own(settings: Settings) -> Client:
    return Client(settings, settings.producer_key.get_secret_value())


def test_the_event_loop_stays_free_while_hostile_bodies_arrive(platform: Settings) -> None:
    with another(platform, "tests.scenes.measured_collector", collector_key_dead_letters=1e9) as (settings, _):
        client = own(settings)
        gaps = {}
        for name, (body, content_type, status) in HOSTILE_BODIES.items():
            client.request("GET", "/stalls", None, {})
            headers = {"Content_Encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}
            with ThreadPoolExecutor(4) as pool:
                responses = [pool.submit(client.post, body, content_type, **headers) for _ in range(4)]
                assert {each.result().status for each in responses} == {status}, name
            gaps[name] = client.request("GET", "/stalls", None, {}).body
    assert all(gap["cpu"] < 0.05 for gap in gaps.values()), gaps
    slowest = max(gap["clock"] for gap in gaps.values())
    record_speed("longest gap of the collector's loop under hostile bodies", 1_000 * slowest, "ms")


def test_the_event_loop_stays_free_under_eighty_large_bodies_at_once(platform: Settings) -> None:
    """Python's full garbage collections would inspect the events of all requests in progress."""
    body = b"\n".join(json.dumps(page_view(n)).encode() for n in range(5_000))
    with another(platform, "tests.scenes.measured_collector") as (settings, _):
        client = own(settings)
        client.request("GET", "/stalls", None, {})
        with ThreadPoolExecutor(80) as pool:
            statuses = Counter(each.status for each in pool.map(lambda _: client.post(body, NDJSON), range(80)))
        gap = client.request("GET", "/stalls", None, {}).body
    log.warning("%s, longest gaps: %s", dict(statuses), gap)
    assert statuses.keys() == {200, 429}
    assert gap["cpu"] < 0.05, gap
    record_speed("longest gap of the collector's loop under eighty large bodies", 1_000 * gap["clock"], "ms")


def test_slow_requests_of_one_key_do_not_refuse_another_key(limited: Settings, other_key: str) -> None:
    client, body = own(limited), json.dumps([page_view()]).encode()
    with ExitStack() as slow:
        connections = [slow.enter_context(client.slow(body)) for _ in range(8)]
        until_refused(client)
        other = Client(limited, other_key).post(page_view())
        assert other.status == 200
        refused = client.post(page_view())
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        for connection in connections:
            connection.send(body[-1:])
        assert sorted(read_response(each).status for each in connections) == [200] * 4 + [429] * 4
    assert client.post(page_view()).status == 200


def test_a_key_that_floods_dead_letters_must_wait_and_its_good_events_pass(limited: Settings, other_key: str) -> None:
    client = own(limited)
    began = time.monotonic()
    first, second = client.post([1] * 20), client.post([page_view(0), *[1] * 10])
    passed = time.monotonic() - began
    assert first.status == 422
    assert (second.status, list(second.body)) == (429, ["error"])
    assert 20 - passed <= int(second.headers["retry-after"]) <= 20
    assert client.post([page_view(n) for n in range(20)]).status == 200
    assert Client(limited, other_key).post([1] * 20).status == 422


def opened(settings: Settings) -> socket.socket:
    address = settings.address("collector")
    return socket.create_connection((address.host, address.port), timeout=deadline(20))


@pytest.mark.parametrize("sent", [b"", b"POST /eve", b"POST /events HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
def test_a_connection_whose_headers_do_not_arrive_is_closed(limited: Settings, sent: bytes) -> None:
    with opened(limited) as connection:
        connection.sendall(sent)
        assert connection.recv(1000) == b""


def test_the_headers_of_a_second_request_have_the_same_limit(limited: Settings) -> None:
    with opened(limited) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        received = connection.recv(1000)
        while not received.endswith(b"}"):
            received += connection.recv(1000)
        assert received.startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /hea")
        assert connection.recv(1000) == b""


def test_no_response_repeats_the_host_header(limited: Settings) -> None:
    response: Response = own(limited).request("POST", "/events/", b"{}", {"Host": "evil.example"})
    assert response.status == 404
    assert "evil.example" not in str(response)


def until_refused(client: Client) -> None:
    def require() -> None:
        if client.post(page_view()).status != 429:
            raise ServiceDown("the key still has room")

    until(require, 10, "a key that has used its share")
