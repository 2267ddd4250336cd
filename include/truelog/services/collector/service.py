"""The collector: receives events over HTTP and acknowledges them once Kafka has them.

    POST /events            Authorization: Bearer KEY
        Content-Type: application/json      one event, or an array of events
        Content-Type: application/x-ndjson  one event per line
        Content-Type: application/cloudevents+json, application/cloudevents-batch+json
        ce-id, ce-source, …                 a CloudEvent whose data is the body (docs/cloudevents.md)
        Content-Encoding: gzip              if the body is gzipped

Each event must contain its `type`. For each event, good or bad, the response contains its index and its log offset:

    {"good": [{"index": 0, "topic": "page_view", "partition": 3, "offset": 17}],
     "bad": [{"index": 1, "field": "url", "reason": "Field required",
              "topic": "dead_letter", "partition": 0, "offset": 4}],
     "token": "W3sicGFnZV92aWV3…"}

With the token, the sender can ask the API for an answer that contains its good events (docs/applications.md). The
header `traceparent` of the request becomes a header of each record, or that of a span if there is a receiver of spans.

| status | result of the request |
| --- | --- |
| 200 | all events are good and in the log |
| 207 | some events are good; the others are dead letters. Sending the dead letters again unchanged is useless |
| 422 | no event is good; all are dead letters |
| 400, 408, 413, 415 | the body is unreadable, too slow, too large, or of an unsupported type. Nothing is stored |
| 401, 403 | the key is unknown; the key does not permit the request |
| 429 | too many requests or bad events; a refused address. Nothing is acknowledged. Retry after `Retry-After` seconds |
| 503 | Kafka is unavailable. Nothing is acknowledged. Retry after `Retry-After` seconds |

`POST /browser?key=KEY` takes an array of events from a page. The key is that of a browser (docs/tracker.md).
`GET /truelog.4.js` is the tracker, which sends them. It needs no key.
`POST /commands/NAME` decides a command (`command_routes`).
`GET /openapi.json` returns this as an OpenAPI document, with a schema for each event type (`docs/events.md`).
`GET /health` needs no key. It returns 200 while the collector can accept events, and 503 otherwise.

    python -m truelog.services.collector.service
"""

import asyncio
import codecs
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.message import Message
from functools import partial
from typing import TypeVar

import psycopg
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from truelog.control.event_registry import KnownTypes
from truelog.limits.address_events import AddressEventLimit
from truelog.limits.dead_letters import DeadLetterLimit
from truelog.limits.rate_limiter import CHECK_SECONDS, DecisionReader, RateLimiter
from truelog.relay import spans, trace
from truelog.services import web
from truelog.services.collector import openapi, tracker
from truelog.services.collector.command_routes import CommandRoutes
from truelog.services.collector.declaration import (
    BROWSER,
    COMMANDS,
    EVENTS,
    HTTP,
    OPENAPI,
    RECEIPTS,
    SERVICE,
    TRACKER,
)
from truelog.services.declaration import HEALTH
from truelog.services.http_server import run_server
from truelog.sources.collector import body as body_reader
from truelog.sources.collector import cloud_event
from truelog.sources.collector import parser as event_parser
from truelog.sources.collector.classifier import ClassifiedRecord, EventClassifier, Receipt
from truelog.sources.collector.collect_spans import collecting
from truelog.sources.collector.parser import RawEvent
from truelog.sources.collector.position_token import RELOAD_SECONDS as IDS_SECONDS
from truelog.sources.collector.position_token import TokenMaker
from truelog.sources.collector.producer import EventProducer, PartitionOffset
from truelog.sources.collector.recent_events import RecentEvents
from truelog.storage.api_key import ApiKey, Page
from truelog.support.background import Background, running
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.settings import Settings

_TYPES_SECONDS = 2.0  # interval at which the event types are loaded again
_RETRY_SECONDS = 2  # for senders while Kafka is unavailable
# A body up to these limits takes less time to process than to hand over to the thread. The event loop processes no
# other body, because an event of two bytes may cost as much as an event of a kilobyte.
_INLINE_BYTES = 8 * 1024
_INLINE_LINES = 4
# While many events were in progress, Python's full garbage collections stopped all threads for up to 90 ms. The last
# threshold, 10 by default, makes them rare, and the collector starts them itself when few events are in progress.
_GARBAGE = (700, 10, 1_000)
_GARBAGE_SECONDS = 5.0
_FEW_BYTES = 1024 * 1024  # bodies of this size have up to 10,000 events

log = logging.getLogger(__name__)

_Splitter = Callable[[bytes, int], Iterator[RawEvent]]  # of a body, with the largest number of events
_JSON = "application/json"
_SPLITTERS: Mapping[str, _Splitter] = {
    _JSON: event_parser.split_document,
    "application/x-ndjson": event_parser.split_lines,
    cloud_event.STRUCTURED: cloud_event.split,
    cloud_event.BATCHED: cloud_event.split,
}
_Result = TypeVar("_Result")


class Collector:
    """The state that all requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # First: if the database is down, the start is tried again, and each try would leave a client of Kafka behind.
        self._types = KnownTypes(settings)
        self._classifier = EventClassifier(self._types.load(), settings.collector_event_bytes)
        self.producer = EventProducer(settings)
        self._limiter = RateLimiter(DecisionReader(settings)) if settings.collector_rate_limit else None
        self._capacity = _capacity(settings)
        self._addresses = AddressEventLimit(settings.collector_browser_events)
        self._recent = RecentEvents()
        self._dead_letters = DeadLetterLimit(settings.collector_key_dead_letters, settings.collector_body_events)
        self._tokens = TokenMaker(settings)
        self._spans = spans.open_spans(settings, SERVICE.name)
        # One thread, because Python runs one thread at a time: more threads would only delay the event loop.
        self._thread = ThreadPoolExecutor(1, "events")

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Send events to Kafka, and keep what the requests need up to date."""
        self.producer.check()
        self.reload_ids()
        self.producer.start()
        gc.set_threshold(*_GARBAGE)
        with running(list(self._background())):
            yield
        self._thread.shutdown()
        self.producer.stop()
        self._spans.close()

    def _background(self) -> Iterator[Background]:
        yield Background("event types", self.reload_types, _TYPES_SECONDS)
        yield Background("topic ids", self.reload_ids, IDS_SECONDS)
        yield Background("garbage", self.collect_garbage, _GARBAGE_SECONDS)
        if self._limiter is not None:
            yield Background("rate limits", self._limiter.check, CHECK_SECONDS)

    def collect_garbage(self) -> None:
        """Collect all garbage, unless many events are in progress: a full collection inspects them all."""
        if self._capacity.size < _FEW_BYTES:
            gc.collect()

    def reload_types(self) -> None:
        """Accept the event types that are registered now. If the database is down, keep the known types."""
        try:
            types = self._types.load()
        except (psycopg.Error, TruelogError) as error:
            log.warning("the event types were not loaded again: %s", error)
            return
        if types != self._classifier.types:
            self._classifier = replace(self._classifier, types=types)
            log.info("accepting %s", ", ".join(types))

    def reload_ids(self) -> None:
        """Read the ids of the topics of the known event types, for the tokens."""
        self._tokens.reload(self._classifier.types.values())

    async def health(self, _: Request) -> JSONResponse:
        ready = self.producer.is_reachable
        return JSONResponse({"kafka": ready}, 200 if ready else 503)

    async def describe(self, _: Request) -> JSONResponse:
        return JSONResponse(openapi.document(self._classifier.types.values()))

    async def post(self, request: Request) -> JSONResponse:
        try:
            return await self._stored(request)
        except ServiceDown as down:
            raise RequestRefused(503, f"{down}; nothing is acknowledged", retry_after=_RETRY_SECONDS) from down

    async def _stored(self, request: Request) -> JSONResponse:
        """1. Check the headers and the address. 2. Read the body. 3. Classify its events. 4. Send them. 5. Respond."""
        sender: ApiKey = request.state.key
        began = spans.now()
        if self._limiter is not None:
            self._limiter.require_allowed(request.client and request.client.host)
        # A page sends JSON as text, because JSON would need a preflight.
        split = _SPLITTERS[_JSON] if sender.page else _splitter(request)
        _require_utf8(request)
        self.producer.require_reachable()
        with self._capacity.admit(sender.name) as claim:
            body = await self._body(request, claim)
            run = _run_here if _is_small(body, split) else self._run_in_thread
            receipt = Receipt(_now(), sender.name)
            records = await run(partial(self._classify, body, split, receipt, sender.page))
            if sender.page:
                self._addresses.take(request.client and request.client.host, len(records))
            self._dead_letters.take(sender.name, sum(record.defect is not None for record in records))
            headers = trace.record_headers(request.headers.get(trace.NAME, ""))
            with collecting(self._spans, records, headers, began) as traced:
                offsets = traced.offsets = await self._append(traced.records, sender, traced.headers)
            await self._tokens.learn(records, self._classifier.types.values())
            return await run(partial(_response, records, offsets, self._tokens.token(records, offsets)))

    async def _append(
        self, records: Sequence[ClassifiedRecord], sender: ApiKey, headers: Mapping[str, bytes]
    ) -> list[PartitionOffset]:
        if sender.page:
            return await self._recent.append(sender.name, records, partial(self.producer.append, headers=headers))
        return await self.producer.append(records, headers)

    async def post_from_page(self, request: Request) -> JSONResponse:
        """Store the events of a page, unless the visitor's browser asks not to be tracked."""
        if "1" in (request.headers.get("sec-gpc"), request.headers.get("dnt")):
            return JSONResponse({"good": [], "bad": [], "declined": "the browser asks not to be tracked"})
        return await self.post(request)

    async def read_json(self, request: Request, parse: Callable[[bytes], _Result]) -> _Result:
        """What `parse` makes of the body of a request with one JSON document, within all limits."""
        if self._limiter is not None:
            self._limiter.require_allowed(request.client and request.client.host)
        if _media_type(request) != _JSON:
            raise RequestRefused(415, f"Content-Type: send {_JSON}")
        _require_utf8(request)
        with self._capacity.admit(request.state.key.name) as claim:
            body = await self._body(request, claim)
            run = _run_here if len(body) <= _INLINE_BYTES else self._run_in_thread
            return await run(partial(parse, body))

    def _classify(self, body: bytes, split: _Splitter, receipt: Receipt, page: Page | None) -> list[ClassifiedRecord]:
        events = list(split(body, self.settings.collector_body_events))
        if page:
            _require_permitted(events, page)
        return self._classifier.classify(events, receipt)

    async def _run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _body(self, request: Request, claim: body_reader.CapacityClaim) -> bytes:
        limit = self.settings.collector_body_bytes
        if int(request.headers.get("content-length", 0)) > limit:
            raise body_reader.too_large(limit)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        try:
            async with asyncio.timeout(self.settings.collector_body_seconds):
                return await body_reader.read_body(request.stream(), encoding, limit, claim)
        except TimeoutError:
            raise RequestRefused(408, "the body took too long to arrive") from None
        except ClientDisconnect:
            raise RequestRefused(400, "the body is incomplete") from None


def create_app(settings: Settings) -> Starlette:
    """The ASGI application, once PostgreSQL has answered with the event types and the keys."""
    settings.require_own_events("the service collector")
    collector = Collector(settings)
    commands = CommandRoutes(settings, collector.read_json)

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        async with collector.work(), commands.work():
            yield

    handlers = {
        EVENTS: collector.post,
        BROWSER: collector.post_from_page,
        TRACKER: tracker.serve,
        COMMANDS: commands.post,
        RECEIPTS: commands.receipt,
        OPENAPI: collector.describe,
        HEALTH: collector.health,
    }
    return web.create_app(settings, HTTP, handlers, work)


def _capacity(settings: Settings) -> body_reader.CapacityLimit:
    """The limits in all and for each key. A key may always send one body of the largest size."""
    requests, size, share = (
        settings.collector_room_requests,
        settings.collector_room_bytes,
        settings.collector_key_share,
    )
    key_size = max(int(size * share), settings.collector_body_bytes)
    return body_reader.CapacityLimit(requests, size, max(int(requests * share), 1), key_size)


def _is_small(body: bytes, split: _Splitter) -> bool:
    """True if the body is short and has few events, so that the event loop can process it at once."""
    if len(body) > _INLINE_BYTES:
        return False
    return body.count(b"\n") < _INLINE_LINES if split is event_parser.split_lines else body.lstrip()[:1] != b"["


def _splitter(request: Request) -> _Splitter:
    """What finds the events in the body. Headers contain the attributes of a CloudEvent unless its body does."""
    media_type = _media_type(request)
    if cloud_event.is_binary(request.headers) and media_type not in (cloud_event.STRUCTURED, cloud_event.BATCHED):
        return partial(cloud_event.split_binary, request.headers.items())
    if media_type not in _SPLITTERS:
        raise RequestRefused(415, f"Content-Type: send {' or '.join(_SPLITTERS)}")
    return _SPLITTERS[media_type]


def _require_permitted(events: Sequence[RawEvent], page: Page) -> None:
    """Raise 403 unless the key permits the type of each event."""
    for index, event in enumerate(events):
        if not isinstance(event.value, dict) or event.value.get("type") not in page.event_types:
            types = ", ".join(page.event_types)
            raise RequestRefused(403, f"event {index}: the key may only send {types}; nothing was stored")


async def _run_here(work: Callable[[], _Result]) -> _Result:
    return work()


def _response(
    records: Sequence[ClassifiedRecord], offsets: Sequence[PartitionOffset], token: str | None
) -> JSONResponse:
    good, bad = [], []
    for index, (record, (partition, offset)) in enumerate(zip(records, offsets, strict=True)):
        location = {"topic": record.topic, "partition": partition, "offset": offset}
        if record.defect is None:
            good.append({"index": index, **location})
        else:
            bad.append({"index": index, "field": record.defect.field, "reason": record.defect.reason, **location})
    status = 200 if not bad else 207 if good else 422
    return JSONResponse({"good": good, "bad": bad} | ({"token": token} if token else {}), status)


def _media_type(request: Request) -> str:
    return _content_type(request).get_content_type()


def _require_utf8(request: Request) -> None:
    """Require the encoding of JSON. Bytes of another one could be valid UTF-8, and would be other characters."""
    named = _content_type(request).get_content_charset("utf-8")
    try:
        is_utf8 = codecs.lookup(named).name in ("utf-8", "ascii")
    except LookupError:
        is_utf8 = False
    if not is_utf8:
        raise RequestRefused(415, "Content-Type: send the charset UTF-8, in which JSON is written, or name none")


def _content_type(request: Request) -> Message:
    header = Message()
    header["content-type"] = request.headers.get("content-type", "none/none")
    return header


def _now() -> datetime:
    """The time in whole milliseconds, like the broker's time, so that the record's broker time is never earlier."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def main() -> None:
    """Run the service until SIGTERM. The service finishes the requests in progress before it exits."""
    settings = SERVICE.settings()
    run_server(
        partial(create_app, settings),
        settings.address(SERVICE.name),
        grace=20,
        header_seconds=settings.collector_header_seconds,
        proxies=settings.collector_trusted_proxies,
    )


if __name__ == "__main__":
    main()
