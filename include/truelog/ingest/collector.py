"""The collector: receives events over HTTP and acknowledges them once Kafka has them.

    POST /events            Authorization: Bearer KEY
        Content-Type: application/json      one event, or an array of events
        Content-Type: application/x-ndjson  one event per line
        Content-Encoding: gzip              if the body is gzipped

Each event must contain its `type`. For each event, good or bad, the response contains its index and its log offset:

    {"good": [{"index": 0, "topic": "page_view", "partition": 3, "offset": 17}],
     "bad": [{"index": 1, "field": "url", "reason": "Field required",
              "topic": "dead_letter", "partition": 0, "offset": 4}]}

| status | result of the request |
| --- | --- |
| 200 | all events are good and in the log |
| 207 | some events are good; the others are dead letters. Sending the dead letters again unchanged is useless |
| 422 | no event is good; all are dead letters |
| 400, 408, 413, 415 | the body is unreadable, too slow, too large, or of an unsupported type. Nothing is stored |
| 401, 403 | the key is unknown; the key does not permit the request |
| 429, 503 | too many requests; Kafka is unavailable. Nothing is acknowledged. Retry after `Retry-After` seconds |

`GET /health` needs no key. It returns 200 while the collector can accept events, and 503 otherwise.

    python -m truelog.ingest.collector
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.message import Message

import psycopg
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from truelog.control import event_registry
from truelog.ingest import body_reader, event_parser
from truelog.ingest.event_classifier import ClassifiedRecord, EventClassifier, Receipt
from truelog.ingest.event_producer import EventProducer, PartitionOffset
from truelog.storage.api_key import RELOAD_SECONDS, KeyRing, Role
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.http_server import error_response, run_server
from truelog.support.settings import Settings

_TYPES_SECONDS = 2.0  # interval at which the event types are loaded again
_RETRY_SECONDS = 2  # for senders while Kafka is unavailable
_INLINE_BYTES = 64 * 1024  # longer bodies are processed in a thread, so that they do not block the event loop

log = logging.getLogger(__name__)

_SPLITTERS = {
    "application/json": event_parser.split_document,
    "application/x-ndjson": event_parser.split_lines,
}


class Collector:
    """The state that all requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings)
        self.producer = EventProducer(settings)
        self._capacity = body_reader.CapacityLimit(settings.collector_room_requests, settings.collector_room_bytes)
        self._classifier = EventClassifier(
            event_registry.event_types(settings),
            settings.collector_body_events,
            settings.collector_event_bytes,
        )

    @asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        self.keys.load()
        self.producer.check()
        reload = Background("keys", self.keys.reload, RELOAD_SECONDS)
        reload.start()
        types = Background("event types", self.reload_types, _TYPES_SECONDS)
        types.start()
        self.producer.start()
        yield
        types.stop()
        reload.stop()
        self.producer.stop()

    def reload_types(self) -> None:
        """Accept the event types that are registered now. If the database is down, keep the known types."""
        try:
            types = event_registry.event_types(self.settings)
        except (psycopg.Error, TruelogError) as error:
            log.warning("the event types were not loaded again: %s", error)
            return
        if types != self._classifier.types:
            self._classifier = replace(self._classifier, types=types)
            log.info("accepting %s", ", ".join(types))

    async def post(self, request: Request) -> JSONResponse:
        """1. Check the key and the content type. 2. Read the body. 3. Classify its events. 4. Send them. 5. Respond."""
        sender = self.keys.authorize(request.headers.get("authorization", ""), Role.PRODUCER)
        split = _SPLITTERS.get(_media_type(request))
        if split is None:
            raise RequestRefused(415, f"Content-Type: send {' or '.join(_SPLITTERS)}")
        self.producer.require_reachable()
        with self._capacity.admit() as lease:
            body = await self._body(request, lease)
            receipt = Receipt(_now(), sender.name)
            if len(body) <= _INLINE_BYTES:
                records = self._classifier.classify(split(body), receipt)
            else:
                records = await asyncio.to_thread(lambda: self._classifier.classify(split(body), receipt))
            return _response(records, await self.producer.append(records))

    async def _body(self, request: Request, lease: body_reader.CapacityClaim) -> bytes:
        limit = self.settings.collector_body_bytes
        if int(request.headers.get("content-length", 0)) > limit:
            raise body_reader.too_large(limit)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        try:
            async with asyncio.timeout(self.settings.collector_body_seconds):
                return await body_reader.read_body(request.stream(), encoding, limit, lease)
        except TimeoutError:
            raise RequestRefused(408, "the body took too long to arrive") from None
        except ClientDisconnect:
            raise RequestRefused(400, "the body is incomplete") from None


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application. It has no documentation pages, because such pages would need no key."""
    collector = Collector(settings)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=collector.running)
    app.add_api_route("/events", collector.post, methods=["POST"], response_model=None)

    @app.get("/health", response_model=None)
    async def health() -> JSONResponse:
        ready = collector.producer.is_reachable
        return JSONResponse({"kafka": ready}, 200 if ready else 503)

    @app.exception_handler(RequestRefused)
    async def refused(_: Request, error: RequestRefused) -> JSONResponse:
        return error_response(error.status, str(error), error.retry_after)

    @app.exception_handler(ServiceDown)
    async def down(_: Request, error: ServiceDown) -> JSONResponse:
        return error_response(503, f"{error}; nothing is acknowledged", _RETRY_SECONDS)

    return app


def _response(records: Sequence[ClassifiedRecord], offsets: Sequence[PartitionOffset]) -> JSONResponse:
    good, bad = [], []
    for index, (record, (partition, offset)) in enumerate(zip(records, offsets, strict=True)):
        location = {"topic": record.topic, "partition": partition, "offset": offset}
        if record.defect is None:
            good.append({"index": index, **location})
        else:
            bad.append({"index": index, "field": record.defect.field, "reason": record.defect.reason, **location})
    status = 200 if not bad else 207 if good else 422
    return JSONResponse({"good": good, "bad": bad}, status)


def _media_type(request: Request) -> str:
    header = Message()
    header["content-type"] = request.headers.get("content-type", "none/none")
    return header.get_content_type()


def _now() -> datetime:
    """The time in whole milliseconds, like the broker's time, so that the record's broker time is never earlier."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def main() -> None:
    """Run the service until SIGTERM. The service finishes the requests in progress before it exits."""
    settings = Settings()
    run_server(create_app(settings), settings.collector_host, settings.collector_port, grace=20)


if __name__ == "__main__":
    main()
