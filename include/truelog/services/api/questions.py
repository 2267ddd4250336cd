"""The questions of the API: each route's answer."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from truelog.history.past_question import PastPage
from truelog.log.positions import Positions
from truelog.relay.spans import open_spans
from truelog.services.api import searches
from truelog.services.api.access import Asker
from truelog.services.api.changes.filter import filter_of
from truelog.services.api.changes.parameters import ChangeParameters, Changes
from truelog.services.api.changes.stream import HEADERS, MEDIA_TYPE, ChangeStream
from truelog.services.api.changes.subscriptions import Subscriptions
from truelog.services.api.declaration import SERVICE
from truelog.services.api.past import RETRY_SECONDS, Past, answer_of, question_of, waits
from truelog.services.api.problem import Kind, Problem
from truelog.services.api.rate_limits import At, RateLimits
from truelog.services.api.rows import answer
from truelog.services.api.rows.catalogue import KnownView
from truelog.services.api.rows.connections import Connections
from truelog.services.api.rows.cursor import Cursor, basis_of, digest
from truelog.services.api.rows.parameters import RowParameters, Rows, question
from truelog.services.api.rows.reads import Found, Reads, Replaced, Statement, require_not_held
from truelog.services.api.rows.statement import RowQuestion, place
from truelog.services.api.scoped_token import Scope, TokenSigner
from truelog.services.api.searches import SearchParameters, Words
from truelog.services.api.shares import Shares
from truelog.serving.reader_slot import reader_slot
from truelog.support import timestamps
from truelog.support.errors import RequestRefused
from truelog.support.settings import Settings

_BODY_BYTES = 4_096
_BODY_SECONDS = 10.0  # in which a body must arrive
_Name = Annotated[str, Path(max_length=200, examples=["page_views"])]
_Relation = Annotated[str, Path(max_length=200, examples=["busiest"])]
_Address = Annotated[str, Path(max_length=100, examples=["192.0.2.1"])]


class TokenRequest(BaseModel):
    """What a scoped token permits: the rows of a view, or of one of its relations, in which columns have values."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"view": "home_timeline", "key": {"reader_id": "p7"}, "seconds": 300}},
    )
    view: Annotated[str, Field(min_length=1, max_length=200)]
    relation: Annotated[str, Field(max_length=200)] = ""
    key: Annotated[dict[str, Annotated[str, Field(max_length=2_000)]], Field(min_length=1, max_length=10)]
    seconds: Annotated[int, Field(ge=1)] = 300


class Questions:
    """Answers the routes. Their senders share the connections."""

    def __init__(self, settings: Settings, signer: TokenSigner) -> None:
        self._settings = settings
        self._signer = signer
        self._connections = Connections(settings)
        self._reads = Reads(self._connections, settings.api_answer_bytes)
        self._past = Past(settings)
        self._rate_limits = RateLimits(self._connections.short, self._reads)
        of_key = max(1, settings.api_subscribers * 3 // 4)
        self._room = Shares(settings.api_subscribers, of_key, settings.api_token_subscribers)
        self.subscriptions = Subscriptions(
            self._connections,
            settings.api_subscriber_rows,
            settings.api_subscriber_bytes,
            open_spans(settings, SERVICE.name),
        )

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Keep the connections during the block."""
        await self._connections.open()
        self._past.open()
        try:
            yield
        finally:
            await self.subscriptions.close()
            self._past.close()
            await self._reads.close()
            await self._connections.close()

    async def reconnect(self) -> None:
        """Replace the connections that PostgreSQL has ended."""
        await self._connections.repair()

    async def health(self) -> Response:
        """Whether PostgreSQL answers."""
        await self._reads.require_ready()
        return _json({"postgresql": True})

    async def views(self, request: Request) -> Response:
        """The views that readers see."""
        sources = await self._reads.sources(_asker(request).name)
        return _json({"views": [answer.head(each, await self._reads.freshness(each)) for each in sources]})

    async def view(self, request: Request, view: _Name) -> Response:
        """The columns of a view with their meaning, its key, its relations, its positions and its age."""
        return await _again_if_replaced(lambda: self._view(request, view))

    async def _view(self, request: Request, view: str) -> Response:
        known = await self._known(request, view)
        source = await self._reads.source(view, _asker(request).name)
        self._reads.require_version(source, known.version)
        head = answer.head(source, await self._reads.freshness(source))
        relations = {name: each.as_dict() for name, each in known.relations.items() if name}
        return _json(head | known.relation("").as_dict() | {"relations": relations})

    async def rows(self, request: Request, view: _Name, asked: Rows) -> Response:
        """Rows of a view by key, conditions, order and cursor."""
        began = time.monotonic()
        return await _again_if_replaced(lambda: self._rows(request, view, "", asked, began))

    async def relation(self, request: Request, view: _Name, relation: _Relation, asked: Rows) -> Response:
        """Rows of a further relation of a view. A relation that a view presents has no key, and so no cursor."""
        began = time.monotonic()
        return await _again_if_replaced(lambda: self._rows(request, view, relation, asked, began))

    async def changes(self, request: Request, view: _Name, asked: Changes) -> Response:
        """The rows of a view, and then each change of them, as server-sent events."""
        return await _again_if_replaced(lambda: self._changes(request, view, asked))

    async def search(self, request: Request, view: _Name, asked: Words) -> Response:
        """The rows of a view whose words match, the best first."""
        return await _again_if_replaced(lambda: self._search(request, view, asked))

    async def _search(self, request: Request, view: str, asked: SearchParameters) -> Response:
        known = await self._known(request, view)
        statement = searches.statement(known, asked, _slot(request, view))
        found = await self._reads.read(known, statement, _asker(request))
        head = answer.head(found.source, await self._reads.freshness(found.source))
        rows, is_more = found.page(asked.limit, goes_on=False)
        return _answered(answer.body(head, rows, {"more": is_more, "next": None}))

    async def rate_limit(self, address: _Address, asked: At) -> Response:
        """Whether an address may make another request."""
        return _json(await self._rate_limits.decide(address, asked))

    async def token(self, request: Request) -> Response:
        """Exchange an API key for a scoped token."""
        asked = await _token_request(request)
        if asked.seconds > self._settings.api_token_seconds:
            raise RequestRefused(422, f"seconds: a token lives at most {self._settings.api_token_seconds} s")
        relation = (await self._known(request, asked.view)).relation(asked.relation)
        permitted = relation.key or tuple(relation.types)
        if unknown := sorted(asked.key.keys() - {*permitted}):
            raise RequestRefused(422, f"key: {', '.join(unknown)} is not in the key; use {', '.join(permitted)}")
        scope, holder = Scope(asked.view, asked.relation, asked.key), _asker(request).name
        token = self._signer.sign(scope, holder, asked.seconds)
        expires = timestamps.to_text(datetime.fromtimestamp(int(time.time()) + asked.seconds, UTC))
        return Response(
            msgspec.json.encode({"token": token, "expires_at": expires}),
            media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    async def _changes(self, request: Request, view: str, asked: ChangeParameters) -> Response:
        known = await self._known(request, view, asked.version)
        slot = _slot(request, view) if asked.version is None else None
        wanted = filter_of(known.relation(""), asked.key, asked.where, _asker(request).scope)
        if request.method == "HEAD":
            await self.subscriptions.head(view, known.version, slot)
            return Response(media_type=MEDIA_TYPE, headers=HEADERS)
        with ExitStack() as claims, self._reads.replaced(view):
            claims.enter_context(self._room.admit(_asker(request)))
            prepared = await self.subscriptions.outbox.prepare(wanted, known.version, slot)
            after = request.headers.get("last-event-id") or asked.last_event_id or None  # a header is newer
            subscriber = await self.subscriptions.subscribe(view, prepared, after, _asker(request))
            claims.callback(self.subscriptions.unsubscribe, view, subscriber)
            place = partial(self.subscriptions.place, view, subscriber)
            return ChangeStream(subscriber, place, request.state.is_permitted, claims.pop_all())

    async def _rows(self, request: Request, view: str, name: str, asked: RowParameters, began: float) -> Response:
        if asked.as_of and _asker(request).scope is not None:  # a visitor must not start rebuilds
            reason = "as_of: the scoped token may not ask about the past; the back end's API key may"
            raise RequestRefused(403, reason)
        known = await self._known(request, view, asked.version)
        relation = known.relation(name)
        whole = question(asked, relation, _asker(request).scope, self._settings.api_rows, _slot(request, view))
        # Without `version`, the reader may get another version at the next page, as after a cut-over.
        named = relation.name if asked.version is not None else known.plain_name(relation)
        of = digest(named, asked.what, _asker(request).scope)
        if asked.as_of:
            return await self._rows_of_past(request, known, whole, asked, of=of)
        cursor = Cursor.parse(asked.cursor, of) if asked.cursor else None
        if cursor is not None:
            cursor.require_basis(basis_of(whole), len(whole.order))
        placed = whole if cursor is None else RowQuestion(**vars(whole) | {"after": cursor.after})
        found = await self._read(request, known, placed.statement(view), asked, began)
        if cursor is not None and found.source.state != cursor.state and not asked.moving:
            reason = "the view has changed since the page before; begin again, or continue with `moving=true`"
            raise Problem(409, reason, Kind.MOVED)
        return await self._page(request, found, whole, of)

    async def _rows_of_past(
        self, request: Request, known: KnownView, whole: RowQuestion, asked: RowParameters, *, of: str
    ) -> Response:
        """The rows as of an earlier time, once a job has rebuilt them."""
        most = max(self._settings.api_past_rows, self._settings.api_rows)
        wanted = question_of(known, whole, asked, most)
        await require_not_held(self._connections.short, known.view, known.version)  # answers are stored
        if asked.cursor:
            found, page = await self._past.follow(wanted, Cursor.parse(asked.cursor, of), whole.limit)
        else:
            page = PastPage(whole.limit)
            found = await self._past.ask(wanted, page, _asker(request).name)
        if found.status is None:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return _answered(msgspec.json.encode(waits(wanted, found)), headers, status=202)
        head, more = answer_of(wanted, found, page, of)
        return _page_of(request, head, found.rows or [], more)

    async def _read(
        self, request: Request, known: KnownView, statement: Statement, asked: RowParameters, began: float
    ) -> Found:
        """The rows, if the view reaches the token that was asked for in time. The time counts from `began`."""
        wanted = Positions.from_token(asked.at_least) if asked.at_least else None
        if wanted is not None and asked.version is not None:
            served = await self._reads.source(known.view, _asker(request).name)
            if asked.version != served.version:
                reason = f"at_least: only the version that readers see can wait for events, which is {served.version}"
                raise RequestRefused(422, reason)
        found = await self._reads.read(known, statement, _asker(request))
        if wanted is None:
            return found
        seconds = min(asked.wait, self._settings.api_wait_seconds)
        if await self._reads.wait(found.source, wanted, seconds, began):
            found = await self._reads.read(known, statement, _asker(request))
        return found

    async def _known(self, request: Request, view: str, version: int | None = None) -> KnownView:
        """The version of the view that was asked for, or that the reader gets.

        Raises:
            Problem: 409, there is no such version.
        """
        if version is None:
            return await self._reads.catalogue.of_reader(view, _slot(request, view))
        try:
            return await self._reads.catalogue.view(view, version)
        except RequestRefused:
            served = (await self._known(request, view)).version  # or else there is no such view
            reason = f"{view} has no version {version}, and readers see version {served}"
            raise Problem(409, reason, Kind.OTHER_VERSION, version=served) from None

    async def _page(self, request: Request, found: Found, whole: RowQuestion, of: str) -> Response:
        rows, is_more = found.page(whole.limit, goes_on=bool(whole.relation.key))
        following = None
        if is_more and whole.relation.key:
            following = Cursor(of, basis_of(whole), found.source.state, place(found.places[len(rows) - 1])).as_text()
        fresh = await self._reads.freshness(found.source, pinned=whole.version is not None)
        head = answer.head(found.source, fresh)
        return _page_of(request, head, rows, {"more": is_more, "next": following})


# A shared cache must not keep an answer, and a browser asks again whether its copy is current.
_CACHING = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}


async def _again_if_replaced(ask: Callable[[], Awaitable[Response]]) -> Response:
    """The answer. If readers move to another version meanwhile, it is made again of the rows that they see now."""
    with suppress(Replaced):
        return await ask()
    return await ask()


def _page_of(request: Request, head: dict[str, Any], rows: Sequence[str], more: dict[str, Any]) -> Response:
    """A page; 304 if the client has these rows already, and needs no cursor of this state."""
    tag = answer.etag(head["version"], [*rows, str(more["more"])])
    headers = {"ETag": tag, answer.HEADER: answer.header(head)}
    if more["next"] is None and answer.is_known(tag, request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers | _CACHING)
    return _answered(answer.body(head, rows, more), headers)


def _json(value: Any) -> Response:
    return _answered(msgspec.json.encode(value))


def _answered(body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json", headers=_CACHING | (headers or {}))


def _asker(request: Request) -> Asker:
    asker: Asker = request.state.asker
    return asker


def _slot(request: Request, view: str) -> int:
    return reader_slot(view, _asker(request).name)


async def _token_request(request: Request) -> TokenRequest:
    """The body of a request for a token, which is read only up to a limit and within a time."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _BODY_BYTES:
                    raise RequestRefused(413, f"a body may have at most {_BODY_BYTES} bytes")
    except TimeoutError:
        raise RequestRefused(408, f"the body did not arrive within {_BODY_SECONDS:g} s; send it again") from None
    try:
        return TokenRequest.model_validate(json.loads(body))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc'])) or 'the body'}: {e['msg']}" for e in error.errors(include_input=False)]
        raise RequestRefused(422, "; ".join(wrong)) from None
    except (ValueError, RecursionError):
        raise RequestRefused(422, "the body is not JSON such as the example in /openapi.json") from None
