"""The collector: events in over HTTP, acknowledged when Kafka has them.

    POST /events            Authorization: Bearer KEY
        Content-Type: application/json      one event, or an array of them
        Content-Type: application/x-ndjson  an event a line
        Content-Encoding: gzip              if it is

Each event names its `type`. The answer tells of each by its index where the log keeps it, good or bad:

    {"good": [{"index": 0, "topic": "page_view", "partition": 3, "offset": 17}],
     "bad": [{"index": 1, "field": "url", "reason": "Field required",
              "topic": "dead_letter", "partition": 0, "offset": 4}]}

| status | what became of the request |
| --- | --- |
| 200 | every event is good and in the log |
| 207 | some are good; the bad ones are dead letters. Sending them again unchanged is of no use |
| 422 | none is good; all are dead letters |
| 400, 408, 413, 415 | it could not be read, was too slow, too large, or of another kind: nothing was kept |
| 401, 403 | no such key; a key that may not do this |
| 429, 503 | too much is under way; Kafka is away. Nothing is acknowledged: send it again after `Retry-After` |

`GET /health` needs no key and tells none: 200 while events can be taken in, else 503.

    python -m truelog.ingest.collector
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.message import Message

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from truelog.ingest import body_reader, body_splitter
from truelog.ingest.event_classifier import ClassifiedRecord, EventClassifier, Receipt
from truelog.ingest.event_producer import EventProducer, PartitionOffset
from truelog.schema.event import load_events
from truelog.storage.api_key import RELOAD_SECONDS, KeyRing, Role
from truelog.support.background import Background
from truelog.support.errors import RequestRefused, ServiceDown
from truelog.support.http_server import error_response, run_server
from truelog.support.settings import Settings

_AWAY_SECONDS = 2  # to come again after Kafka was away
_AT_ONCE = 64 * 1024  # longer bodies are examined beside the event loop, which others wait for

_PIECES = {
    "application/json": body_splitter.split_document,
    "application/x-ndjson": body_splitter.split_lines,
}


class Collector:
    """What all requests share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings)
        self.log = EventProducer(settings)
        self._room = body_reader.CapacityLimit(settings.collector_room_requests, settings.collector_room_bytes)
        self._intake = EventClassifier(
            load_events(),
            settings.collector_body_events,
            settings.collector_event_bytes,
        )

    @asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        self.keys.load()
        self.log.ask()
        again = Background("keys", self.keys.reload, RELOAD_SECONDS)
        again.start()
        self.log.start()
        yield
        again.stop()
        self.log.stop()

    async def take(self, request: Request) -> JSONResponse:
        """1. Who is it, and what does it bring? 2. The body. 3. Its events. 4. Kafka has them. 5. The answer."""
        sender = self.keys.authorize(request.headers.get("authorization", ""), Role.PRODUCER)
        pieces = _PIECES.get(_media_type(request))
        if pieces is None:
            raise RequestRefused(415, f"Content-Type: send {' or '.join(_PIECES)}")
        self.log.require_reachable()
        with self._room.visit() as visit:
            body = await self._body(request, visit)
            receipt = Receipt(_now(), sender.name)
            if len(body) <= _AT_ONCE:
                records = self._intake.records(pieces(body), receipt)
            else:
                records = await asyncio.to_thread(lambda: self._intake.records(pieces(body), receipt))
            return _answer(records, await self.log.append(records))

    async def _body(self, request: Request, visit: body_reader.CapacityLease) -> bytes:
        limit = self.settings.collector_body_bytes
        if int(request.headers.get("content-length", 0)) > limit:
            raise body_reader.too_large(limit)
        encoding = request.headers.get("content-encoding", "").strip().lower()
        try:
            async with asyncio.timeout(self.settings.collector_body_seconds):
                return await body_reader.read_body(request.stream(), encoding, limit, visit)
        except TimeoutError:
            raise RequestRefused(408, "the body took too long to arrive") from None
        except ClientDisconnect:
            raise RequestRefused(400, "the body ended before its end") from None


def application(settings: Settings) -> FastAPI:
    """The collector as uvicorn serves it; it has no pages that describe it to strangers."""
    collector = Collector(settings)
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=collector.running)
    app.add_api_route("/events", collector.take, methods=["POST"], response_model=None)

    @app.get("/health", response_model=None)
    async def health() -> JSONResponse:
        ready = collector.log.is_reachable
        return JSONResponse({"kafka": ready}, 200 if ready else 503)

    @app.exception_handler(RequestRefused)
    async def refused(_: Request, error: RequestRefused) -> JSONResponse:
        return error_response(error.status, str(error), error.retry_after)

    @app.exception_handler(ServiceDown)
    async def down(_: Request, error: ServiceDown) -> JSONResponse:
        return error_response(503, f"{error}; nothing is acknowledged", _AWAY_SECONDS)

    return app


def _answer(records: Sequence[ClassifiedRecord], places: Sequence[PartitionOffset]) -> JSONResponse:
    good, bad = [], []
    for index, (record, (partition, offset)) in enumerate(zip(records, places, strict=True)):
        place = {"topic": record.topic, "partition": partition, "offset": offset}
        if record.flaw is None:
            good.append({"index": index, **place})
        else:
            bad.append({"index": index, "field": record.flaw.field, "reason": record.flaw.reason, **place})
    status = 200 if not bad else 207 if good else 422
    return JSONResponse({"good": good, "bad": bad}, status)


def _media_type(request: Request) -> str:
    header = Message()
    header["content-type"] = request.headers.get("content-type", "none/none")
    return header.get_content_type()


def _now() -> datetime:
    """In whole milliseconds, as the broker counts, whose time for the record is then not before this one."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def main() -> None:
    """The service; ends on SIGTERM when the requests under way are answered."""
    settings = Settings()
    run_server(application(settings), settings.collector_host, settings.collector_port, grace=20)


if __name__ == "__main__":
    main()
