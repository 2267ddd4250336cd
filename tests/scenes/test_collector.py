"""The collector with its services: every answer that it gives, and what the log holds when it has given it."""

import base64
import gzip
import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

import runtime
from runtime import collector as service
from tests.scenes.collector_client import NDJSON, Answer, Client, another, answer, page_view, record, whole
from truelog.log import topics
from truelog.storage import api_key
from truelog.storage.api_key import Role
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until


@pytest.fixture(scope="module")
def collector(platform: Settings) -> Settings:
    runtime.up(platform, ("postgresql", "kafka", "ticks", "collector"), tethered=True)
    return platform


@pytest.fixture
def producer(collector: Settings) -> Client:
    return Client(collector, collector.producer_key.get_secret_value())


def pid(settings: Settings, name: str) -> int:
    [found] = [state.pid for state in runtime.status(settings) if state.name == name]
    assert found is not None
    return found


# --- events in --------------------------------------------------------------------------------------------


def test_an_event_is_in_the_log_where_the_answer_says(producer: Client) -> None:
    sent = json.dumps(page_view(7, unknown={"kept": [1.50]})).encode()
    said = producer.post(sent)
    assert (said.status, said.said["bad"]) == (200, [])
    [place] = said.said["good"]
    assert (place["index"], place["topic"]) == (0, "page_view")
    key, value = record(producer.settings, place)
    assert key == b"v7"
    assert value is not None
    assert value.startswith(b'{"received_at":"')
    assert value.endswith(b'Z",' + sent[1:])


def test_good_and_bad_events_are_told_apart(producer: Client) -> None:
    said = producer.post([page_view(0), page_view(1, status=99), 5, page_view(3), {"type": "ticks"}])
    assert said.status == 207
    assert [place["index"] for place in said.said["good"]] == [0, 3]
    assert [(bad["index"], bad["field"], bad["topic"]) for bad in said.said["bad"]] == [
        (1, "status", "dead_letter"),
        (2, "record", "dead_letter"),
        (4, "type", "dead_letter"),
    ]
    values = [record(producer.settings, place)[1] for place in said.said["good"]]
    assert [json.loads(value or b"")["event_id"] for value in values] == ["e0", "e3"]


def test_lines_and_gzip(producer: Client) -> None:
    sent = b"\r\n".join([json.dumps(page_view(n)).encode() for n in range(3)] + [b"", b"no json"])
    plain = producer.post(sent, NDJSON)
    packed = producer.post(gzip.compress(sent), "application/x-ndjson; charset=utf-8", Content_Encoding="gzip")
    for said in (plain, packed):
        assert said.status == 207
        assert [place["index"] for place in said.said["good"]] == [0, 1, 2]
        assert [bad["index"] for bad in said.said["bad"]] == [3]


def test_nothing_is_no_fault(producer: Client) -> None:
    for said in (producer.post([]), producer.post(b"\n\n", NDJSON)):
        assert (said.status, said.said) == (200, {"good": [], "bad": []})


@pytest.mark.parametrize(
    "raw", [b"", b" \x00\xff not json\r\n", b'{"type":"page_view","url":"\\ud800\xfe"}', b"{" * 3000]
)
def test_a_bad_event_is_kept_byte_for_byte(producer: Client, raw: bytes) -> None:
    said = producer.post(raw)
    assert (said.status, said.said["good"]) == (422, [])
    [bad] = said.said["bad"]
    _, value = record(producer.settings, bad)
    letter = json.loads(value or b"")
    assert base64.b64decode(letter["raw"]) == raw
    assert (letter["field"], letter["reason"]) == (bad["field"], bad["reason"])
    assert letter["sender"] == "producer"


def test_one_key_lies_in_one_partition(producer: Client) -> None:
    said = producer.post([page_view(n, visitor_id=f"v{n % 9}") for n in range(90)])
    places = said.said["good"]
    assert len({place["partition"] for place in places}) > 1
    assert len({(place["index"] % 9, place["partition"]) for place in places}) == 9


# --- who may ----------------------------------------------------------------------------------------------


def test_no_key_and_wrong_keys_are_refused(producer: Client, collector: Settings) -> None:
    right = producer.key
    before = topics.end_offsets(collector, ["page_view", "dead_letter"])
    for wrong in ("", "producer", "producer.", right[:-1], right + "0", right.upper(), "nobody" + right[8:], "ü"):
        said = Client(collector, wrong.encode().decode("latin-1")).post(page_view())
        assert (said.status, said.headers["www-authenticate"]) == (401, "Bearer")
    assert producer.post(page_view(), Authorization=f"Basic {right}").status == 401
    assert producer.request("POST", "/events", b"{}", {"Content-Type": "application/json"}).status == 401
    assert topics.end_offsets(collector, ["page_view", "dead_letter"]) == before


def test_a_key_does_what_its_role_may(collector: Settings) -> None:
    assert Client(collector, collector.reader_key.get_secret_value()).post(page_view()).status == 403
    assert Client(collector, collector.admin_key.get_secret_value()).post(page_view()).status == 200


def test_keys_come_and_go_without_a_restart(collector: Settings) -> None:
    key = api_key.generate_key("shop")
    shop = Client(collector, key)
    assert shop.post(page_view()).status == 401
    api_key.store_key(collector, Role.PRODUCER, key)
    until(lambda: _require(shop, 200), api_key.RELOAD_SECONDS + 10, "the new key")
    with connect(collector) as connection:
        api_key.revoke_key(connection, "shop", "a test")
    until(lambda: _require(shop, 401), api_key.RELOAD_SECONDS + 10, "the revoked key")
    api_key.store_key(collector, Role.PRODUCER, key)
    with connect(collector) as connection:
        [kept] = connection.execute("SELECT revoked_at IS NOT NULL, sha256 FROM truelog.api_key WHERE name = 'shop'")
    assert kept[0] is True
    assert key.encode() not in bytes(kept[1])  # type: ignore[call-overload]


def _require(client: Client, status: int) -> None:
    said = client.post(page_view())
    if said.status != status:
        raise ServiceDown(str(said))


def test_strangers_learn_nothing(producer: Client) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json"):
        assert producer.request("GET", path, None, {}).status == 404
    health = producer.request("GET", "/health", None, {})
    assert (health.status, health.said) == (200, {"kafka": True})
    assert "server" not in health.headers


def test_no_key_is_in_a_log(producer: Client, collector: Settings) -> None:
    assert producer.post(page_view()).status == 200
    secrets = [key.get_secret_value().partition(".")[2] for key in (collector.producer_key, collector.admin_key)]
    shown = [file.read_text(errors="replace") for file in (collector.home / "logs").iterdir()]
    assert not [secret for secret in secrets for text in shown if secret in text]


# --- bounds -----------------------------------------------------------------------------------------------


def test_what_is_too_large_is_refused_whole(producer: Client, collector: Settings) -> None:
    before = topics.end_offsets(collector, ["page_view", "dead_letter"])
    limit = collector.collector_body_bytes
    bomb = gzip.compress(b" " * (20 * limit))
    assert producer.post(b" " * (limit + 1)).status == 413
    assert producer.post(bomb, Content_Encoding="gzip").status == 413
    assert producer.post([page_view(0), page_view(1, x="x" * collector.collector_event_bytes)]).status == 413
    assert producer.post([1] * (collector.collector_body_events + 1)).status == 413
    assert topics.end_offsets(collector, ["page_view", "dead_letter"]) == before


def test_the_longest_bad_event_is_kept(producer: Client, collector: Settings) -> None:
    raw = b"x" * collector.collector_event_bytes
    said = producer.post(raw)
    assert said.status == 422
    assert base64.b64decode(json.loads(record(collector, said.said["bad"][0])[1] or b"")["raw"]) == raw


def test_other_kinds_are_refused(producer: Client) -> None:
    assert producer.post(page_view(), "text/plain").status == 415
    assert producer.post(page_view(), "nonsense").status == 415
    assert producer.post(page_view(), Content_Encoding="br").status == 415
    assert producer.post(b"no gzip", Content_Encoding="gzip").status == 400


def test_who_finds_no_room_comes_again(collector: Settings) -> None:
    with another(collector, collector_room_requests=2, collector_room_bytes=2000) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        body = json.dumps([page_view()]).encode()
        with client.slow(body) as first, client.slow(b" " * 1600 + body) as second:
            until(lambda: _require(client, 429), 10, "a full house")
            said = client.post(page_view())
            assert (said.status, said.headers["retry-after"]) == (429, "1")
            first.send(body[-1:])
            assert answer(first).status == 200
            assert client.post([page_view()] * 3).status == 429  # there is room for a request, not for its bytes
            second.send(body[-1:])
            assert answer(second).status == 200
        assert client.post([page_view()] * 3).status == 200


def test_a_body_that_does_not_come_is_not_waited_for(collector: Settings) -> None:
    with another(collector, collector_body_seconds=0.5) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        with client.slow(b"[1]") as connection:
            assert answer(connection).status == 408


# --- ends and absences ------------------------------------------------------------------------------------


def test_what_is_under_way_is_answered_before_it_ends(collector: Settings) -> None:
    with another(collector) as (settings, process):
        client = Client(settings, settings.producer_key.get_secret_value())
        body = json.dumps([page_view(n) for n in range(20)]).encode()
        with client.slow(body) as connection:
            until(lambda: _require(client, 200), 10, "the collector")
            process.terminate()
            until(lambda: _require_no_more(settings), 10, "it takes in nobody new")
            connection.send(body[-1:])
            said = answer(connection)
        assert (said.status, len(said.said["good"])) == (200, 20)
        assert process.wait(20) in (0, -signal.SIGTERM)


def _require_no_more(settings: Settings) -> None:
    try:
        service.SERVICE.ready(settings)
    except ServiceDown:
        return
    raise ServiceDown("it still answers")


def test_a_killed_collector_and_killed_ticks_come_again(producer: Client, collector: Settings) -> None:
    before = {name: pid(collector, name) for name in ("collector", "ticks")}
    for each in before.values():
        os.kill(each, signal.SIGKILL)

    def back() -> None:
        states = [state for state in runtime.status(collector) if state.name in before]
        if [s.name for s in states if s.state != "READY" or s.pid == before[s.name]]:
            raise ServiceDown(str(states))

    until(back, 40, "collector and ticks")
    assert producer.post(page_view()).status == 200


def test_while_kafka_is_silent_nothing_is_acknowledged(collector: Settings) -> None:
    """Suspended, so that connections stand and nobody answers: the worst of absences."""
    kafka = pid(collector, "kafka")
    with another(collector, collector_acknowledge_seconds=2) as (settings, _):
        client = Client(settings, settings.producer_key.get_secret_value())
        os.kill(kafka, signal.SIGSTOP)
        try:
            first = client.post([page_view(n) for n in range(10)])
            until(lambda: _require_no_more(settings), 10, "the absence to be noticed")
            second = client.post(page_view())
        finally:
            os.kill(kafka, signal.SIGCONT)
        for said in (first, second):
            assert (said.status, said.headers["retry-after"]) == (503, "2")
            assert said.said.keys() == {"error"}
        until(lambda: _require(client, 200), 60, "Kafka's return")


@dataclass
class Sender:
    """Sends its batch again until it is acknowledged, and comes again when it is told to, as senders should."""

    client: Client
    name: str
    said: list[tuple[float, Answer]] = field(default_factory=list)  # when each request began
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)

    def send(self, warm: threading.Event, back: threading.Event) -> None:
        """Until Kafka is back and has taken in a batch that began after that."""
        for number in range(100_000):
            ids, is_back, began = [f"{self.name}-{number}-{n}" for n in range(20)], back.is_set(), time.time()
            answered = self.client.post([page_view(n, event_id=each) for n, each in enumerate(ids)] + ["bad"])
            self.said.append((began, answered))
            assert answered.status in (207, 503), answered
            for place in answered.said.get("good", ()):
                at = place["partition"], place["offset"]
                assert at not in self.acknowledged, "one place for two events"
                self.acknowledged[at] = ids[place["index"]]
            if number == 5:
                warm.set()
            if is_back and answered.status == 207:
                return
            if answered.status == 503:
                back.wait(float(answered.headers["retry-after"]))
        raise AssertionError("Kafka did not come back")


def test_every_acknowledged_event_is_in_the_log_after_kafka_was_killed(collector: Settings) -> None:
    """Kafka takes seconds to come again, an acknowledgement may take one: the first answer after the kill is a no."""
    warm, back = threading.Event(), threading.Event()
    with another(collector, collector_acknowledge_seconds=1) as (settings, _), ThreadPoolExecutor(2) as pool:
        client = Client(settings, settings.producer_key.get_secret_value())
        senders = [Sender(client, f"s{number}") for number in range(2)]
        sending = [pool.submit(sender.send, warm, back) for sender in senders]
        assert warm.wait(60)
        before = pid(collector, "kafka")
        os.kill(before, signal.SIGKILL)
        killed = time.time()
        until(lambda: _require_another_kafka(collector, before), 90, "Kafka's return")
        back.set()
        for each in sending:
            each.result()

    log = whole(collector, "page_view")
    for sender in senders:
        first, *_ = afterwards = [answered for began, answered in sender.said if began > killed]
        assert (first.status, first.headers["retry-after"]) == (503, "2")
        assert all(each.said.keys() == {"error"} for each in afterwards if each.status == 503)
        assert afterwards[-1].status == 207
        held = {place: json.loads(log[place] or b"")["event_id"] for place in sender.acknowledged}
        assert held == sender.acknowledged
    [one, other] = (sender.acknowledged.keys() for sender in senders)
    assert not one & other, "one place for two events"


def _require_another_kafka(settings: Settings, before: int) -> None:
    [state] = [state for state in runtime.status(settings) if state.name == "kafka"]
    if state.state != "READY" or state.pid == before:
        raise ServiceDown(str(state))
