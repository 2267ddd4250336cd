"""The clients on real services: a write, the read that contains it, and what happens when a service is away."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pytest

import runtime
from runtime import keeper
from tests.builders.views import merged_to
from tests.library.listener import FAILS, TAKES, Listener, listening
from tests.library.services.api import shop_views
from tests.library.services.api.shop_views import PAGES
from truelog.client import exchange
from truelog.client.async_client import AsyncClient
from truelog.client.client import Client
from truelog.client.errors import Behind, EventsRefused, Moved, NotFound, NotPermitted, Refused, Unavailable
from truelog.client.exchange import Retries
from truelog.client.receipt import DeadLetter, Stored
from truelog.history import past_question
from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

PAGE_VIEW = {"type": "page_view", "visitor_id": "v1", "url": "https://shop.example/"}
MINUTE = datetime(2026, 1, 1, tzinfo=UTC)
_NOT_NEEDED = """
import sys
import truelog.client.client, truelog.client.async_client, truelog.client.errors
heavy = ("pyspark", "airflow", "confluent_kafka", "psycopg", "pyarrow", "pandas", "fastapi", "boto3")
print([name for name in heavy if name in sys.modules])
"""


@pytest.fixture(scope="module")
def database(platform: Settings) -> Iterator[Connection]:
    runtime.up(platform, ("collector", "api"), tethered=True)
    with connect(platform, autocommit=True) as connection:
        shop_views.deploy_views(connection)
        shop_views.count(connection, [(f"host{n}", MINUTE, n) for n in range(7)])
        yield connection


def arguments(settings: Settings, **changes: Any) -> dict[str, Any]:
    collector, api = (settings.address(name) for name in ("collector", "api"))
    keys = {"producer_key": settings.producer_key, "reader_key": settings.reader_key}
    return {
        "collector": f"http://{collector.host}:{collector.port}",
        "api": f"http://{api.host}:{api.port}/",
        **{name: key.get_secret_value() for name, key in keys.items()},
        **changes,
    }


@pytest.fixture
def client(platform: Settings, database: Connection) -> Iterator[Client]:
    with Client(**arguments(platform)) as made:
        yield made


def merge_to_end(settings: Settings, connection: Connection) -> Positions:
    """What a stream does: the view has merged the whole topic."""
    ends = topics.end_offsets(settings, ["page_view"])
    reached = Positions(ends.offsets, topics.topic_ids(settings, ["page_view"]))
    merged_to(connection, PAGES, reached)
    return reached


def test_a_write_is_read_with_its_token(client: Client, platform: Settings, database: Connection) -> None:
    merge_to_end(platform, database)
    receipt = client.send(PAGE_VIEW, {**PAGE_VIEW, "visitor_id": "v2"})
    assert [each.index for each in receipt.good] == [0, 1]
    with pytest.raises(Behind) as late:
        client.rows(PAGES, at_least=receipt.token, wait=0.1)
    assert sum(number for by in late.value.behind.values() for number in by.values()) == 2
    merging = threading.Timer(0.3, merge_to_end, (platform, database))
    merging.start()
    page = client.rows(PAGES, at_least=receipt.token, wait=10, limit=1)
    merging.join()
    assert Positions.from_token(receipt.token or "").ids == topics.topic_ids(platform, ["page_view"])
    read = Positions.from_json(json.dumps(page.positions))
    assert read.covers(Positions.from_token(receipt.token or ""))


def test_a_trace_is_a_header_of_each_record(client: Client, platform: Settings) -> None:
    """Also of a dead letter. The archive keeps all headers (`tests/library/archive/test_commit.py`)."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with pytest.raises(EventsRefused) as sent:
        client.send(PAGE_VIEW, {"type": "page_view"}, traceparent=trace)
    untraced = client.send(PAGE_VIEW, traceparent="no trace")
    stored: list[Stored | DeadLetter] = [*sent.value.receipt.good, *sent.value.receipt.bad, *untraced.good]
    found = [headers(platform, each) for each in stored]
    assert found == [[("traceparent", trace.encode())]] * 2 + [[]]


def headers(settings: Settings, stored: Stored | DeadLetter) -> list[tuple[str, bytes | None]]:
    [record] = messages(settings, stored.topic, stored.partition, stored.offset, stored.offset + 1)
    return headers_of(record)


def test_a_dead_letter_is_an_error_with_a_receipt(client: Client) -> None:
    with pytest.raises(EventsRefused, match="visitor_id") as refused:
        client.send(PAGE_VIEW, {"type": "page_view", "url": "https://shop.example/"})
    assert (len(refused.value.receipt.good), refused.value.receipt.bad[0].field) == (1, "visitor_id")
    with pytest.raises(EventsRefused) as alone:
        client.send({"type": "page_view"})
    with pytest.raises(Refused, match="no view counts it") as never:
        client.rows(PAGES, at_least=alone.value.receipt.token)
    assert never.value.status == 409


def test_a_walk_shows_all_rows(client: Client, platform: Settings, database: Connection) -> None:
    merge_to_end(platform, database)
    rows = list(client.walk(PAGES, limit=3, columns="host", where=["views>=1"]))
    assert rows == [{"host": f"host{n}"} for n in range(1, 7)]
    walk = client.walk(PAGES, limit=3)
    next(walk)
    client.send(PAGE_VIEW)
    merge_to_end(platform, database)
    with pytest.raises(Moved):
        list(walk)


def test_the_client_waits_for_the_past(client: Client, database: Connection) -> None:
    said = {"version": 1, "positions": {"page_view": {"0": 3}}, "as_of": "2026-01-01T00:00:00Z", "clock": None}

    def answer() -> None:
        [asked] = past_question.waiting(database)
        past_question.answer(database, asked, said | {"more": False}, ['{"host":"host1"}', '{"host":"host2"}'])

    asked_first = Client._attempt

    def ask_and_answer(self: Client, ask: Any) -> Any:
        outcome = asked_first(self, ask)
        if isinstance(outcome, httpx.Response) and outcome.status_code == 202:
            answer()
        return outcome

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "_attempt", ask_and_answer)
        page = client.rows(PAGES, as_of=MINUTE, columns="host", limit=1)
    assert (page.layer, page.as_of, page.rows) == ("batch", MINUTE, ({"host": "host1"},))
    assert [each["host"] for each in client.walk(PAGES, as_of=MINUTE, columns="host", limit=1)] == ["host1", "host2"]


def test_typed_errors_say_what_is_wrong(client: Client, platform: Settings) -> None:
    with pytest.raises(NotFound, match="no such view"):
        client.rows("nothing")
    with pytest.raises(Refused, match="no column 'x'"):
        client.rows(PAGES, columns="x")
    with Client(**arguments(platform, reader_key="reader.wrong")) as stranger, pytest.raises(NotPermitted):
        stranger.rows(PAGES)
    token = client.scoped_token(PAGES, {"host": "host3"})
    with Client(**arguments(platform, reader_key=token)) as browser:
        assert [row["views"] for row in browser.rows(PAGES).rows] == [3]
        with pytest.raises(NotPermitted):
            browser.rows(PAGES, "busy")


def test_the_asynchronous_client_does_the_same(platform: Settings, database: Connection) -> None:
    async def story() -> list[int]:
        async with AsyncClient(**arguments(platform)) as client:
            receipt = await client.send(PAGE_VIEW)
            await asyncio.to_thread(merge_to_end, platform, database)
            page = await client.rows(PAGES, at_least=receipt.token, limit=2)
            assert (page.more, page.age) == (True, None)
            token = await client.scoped_token(PAGES, {"host": "host3"})
            assert token.count(".") == 2
            with pytest.raises(NotFound):
                await client.rows("nothing")
            return [row["views"] async for row in client.walk(PAGES, limit=2)]

    assert asyncio.run(story()) == list(range(7))


def test_a_send_outlasts_a_restart_of_the_collector(client: Client, platform: Settings) -> None:
    keeper.stop(platform, "collector")
    again = threading.Timer(0.5, runtime.up, (platform, ("collector",)))
    again.start()
    receipt = client.send(PAGE_VIEW)
    again.join()
    assert len(receipt.good) == 1


@pytest.fixture
def receiver() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


def test_a_retry_has_the_same_event_ids(receiver: Listener) -> None:
    receiver.mood = FAILS
    with Client(collector=receiver.url, producer_key="p.x", seconds=20) as client:
        threading.Timer(0.5, setattr, (receiver, "mood", TAKES)).start()
        with pytest.raises(Refused):  # the receiver does not answer as a collector: it accepts without a receipt
            client.send(PAGE_VIEW, {**PAGE_VIEW, "event_id": "mine"})
    assert len(receiver.asked) > 1
    [[first, second]] = receiver.taken
    assert (len(first["event_id"]), second["event_id"]) == (36, "mine")
    assert first["occurred_at"].endswith("Z")


def test_a_client_gives_up_after_its_time_limit(receiver: Listener) -> None:
    receiver.mood = FAILS
    with Client(collector=receiver.url, seconds=0.5) as client, pytest.raises(Unavailable, match="answered 503"):
        client.send(PAGE_VIEW)
    receiver.away()
    with Client(collector=receiver.url, seconds=0.5) as client, pytest.raises(Unavailable, match="ConnectError"):
        client.send(PAGE_VIEW)
    receiver.back()


def test_rows_keep_every_digit() -> None:
    answer = dict.fromkeys(("clock", "as_of", "next")) | {"view": "v", "version": 1, "layer": "stream"}
    text = json.dumps({**answer, "positions": {}, "reason": "", "more": False, "rows": [], "age": 0.5})
    rows = '"rows": [{"amount": 12345678901234567890.123456789, "count": 9007199254740993}]'
    page = exchange.page(httpx.Response(200, content=text.replace('"rows": []', rows)))
    assert page.rows == ({"amount": Decimal("12345678901234567890.123456789"), "count": 9007199254740993},)
    assert (page.age, type(page.age)) == (0.5, float)
    assert exchange.Ask("POST", "", "", json={"price": Decimal("0.5")}).arguments["content"] == '{"price":0.5}'
    assert exchange.Ask("POST", "", "", json={"text": "größer"}).arguments["content"] == '{"text":"größer"}'


def test_a_hiccup_during_a_rebuild_does_not_end_the_wait() -> None:
    """The longer time limit of a rebuild holds from the first 202 on."""
    began, away = time.monotonic() - 60, httpx.ConnectError("away")
    with pytest.raises(Unavailable, match="gave up after 30 s"):
        Retries(30, began).pause_after(away)
    retries = Retries(30, began)
    assert retries.pause_after(httpx.Response(202, headers={"Retry-After": "3"})) == 3
    assert retries.pause_after(away)
    with pytest.raises(Unavailable, match="gave up after 600 s"):
        replace(retries, began=began - 600).pause_after(away)


def test_the_client_needs_neither_spark_nor_airflow() -> None:
    ran = subprocess.run([sys.executable, "-c", _NOT_NEEDED], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
