"""The collector's requests with one JSON document, such as commands."""

import asyncio
import threading
from typing import Any

import pytest
from starlette.requests import Request

from truelog.services.collector import service
from truelog.services.collector.service import Collector
from truelog.storage.api_key import ApiKey, Role
from truelog.support.settings import Settings


@pytest.mark.parametrize(("more", "thread"), [(0, threading.main_thread().name), (1, "events_0")])
def test_a_large_document_is_parsed_beside_the_event_loop(platform: Settings, more: int, thread: str) -> None:
    """Other requests would wait for it. Its bytes count until it is parsed."""
    body = b" " * (service._INLINE_BYTES + more)
    collector = Collector(platform)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    def parse(document: bytes) -> tuple[str, int, bool]:
        return threading.current_thread().name, collector._capacity.size, document == body

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "headers": headers, "state": {"key": ApiKey("producer", Role.PRODUCER, b"")}}
    assert asyncio.run(collector.read_json(Request(scope, receive), parse)) == (thread, len(body), True)
    assert collector._capacity.size == 0
    collector._thread.shutdown()
