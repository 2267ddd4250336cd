"""The collector's routes for commands.

    POST /commands/NAME        Content-Type: application/json
        Idempotency-Key: KEY   optional: the same request with this key gets the same answer
        {"expected_version": 3, FIELD: …}

| status | result of the request |
| --- | --- |
| 200 | accepted, and the events are in the log. `events` contains their coordinates |
| 202 | accepted, but the events are not in the log yet. `receipt` identifies the command |
| 409 | refused, with the reason and the current version of the key |
| 412 | the key does not have the expected version. `version` is the current one |
| 422 | a field is invalid, or the idempotency key belongs to another command. Nothing is stored |
| 403 | the role of the key does not permit the command |
| 404 | there is no such command, or no such receipt |
| 503 | nothing is decided, or the result is unknown. Retry with the same idempotency key |

    GET /commands/receipts/RECEIPT   what is known now of a command of this sender
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic

import psycopg
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from truelog.commands import catalogue, history
from truelog.commands.answers import LOG, rendered
from truelog.commands.command_log import Stored
from truelog.commands.decider import Decider
from truelog.commands.request import CommandRequest, InvalidCommandError, Sender, parse
from truelog.commands.watch import Watch
from truelog.control.event_registry import KnownTypes
from truelog.storage.kept_sessions import kept
from truelog.support.background import Background, running
from truelog.support.errors import RequestRefused, ServiceDown, TruelogError
from truelog.support.settings import Settings

_RETRY_SECONDS = 1
_TYPES_SECONDS = 2.0  # interval at which the event types are loaded again
_LONGEST_SECONDS = 10.0  # that a command waits for its decision to begin
_LOOK_SECONDS = 0.5  # between two looks at whether the sender still waits

# Reads the body of a request within all limits, and parses it.
_ReadJson = Callable[[Request, Callable[[bytes], CommandRequest]], Awaitable[CommandRequest]]


class CommandRoutes:
    """The state that all requests share."""

    def __init__(self, settings: Settings, read_json: _ReadJson) -> None:
        self._settings = settings
        self._read_json = read_json
        self._catalogue = catalogue.load()
        self._registered = KnownTypes(settings)
        self._types = self._registered.load()
        self._refused = catalogue.refusals(self._catalogue, self._types)
        self._decider = Decider(settings, self._catalogue, lambda: self._types)
        self._watch = Watch(settings)

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Decide commands, and wait until their events are in the log."""
        threads = [
            Background("commands", self._decider.work),
            Background("accepted", self._watch.work),
            Background("types of commands", self._reload_types, _TYPES_SECONDS),
        ]
        with running(threads):
            yield
        self._decider.stop()
        self._watch.stop()

    def _reload_types(self) -> None:
        try:
            self._types = self._registered.load()
        except (psycopg.Error, TruelogError):
            return  # the known types stay
        self._refused = catalogue.refusals(self._catalogue, self._types)

    async def post(self, request: Request) -> Response:
        """1. Read the body. 2. Validate it. 3. Decide. 4. Wait until the events are in the log. 5. Answer."""
        name = request.path_params["name"]
        if reason := self._refused.get(name):
            raise RequestRefused(503, f"the command {name} is refused: {reason}")
        if name not in self._catalogue.commands:
            known = ", ".join(self._catalogue.commands)
            raise RequestRefused(404, f"there is no command {name}; the commands are {known}")
        request.state.key.require(self._catalogue.commands[name].role)
        sender = Sender(request.state.key.name, request.headers.get("idempotency-key"))
        try:
            command = await self._read_json(request, partial(parse, self._catalogue, name, sender=sender))
        except InvalidCommandError as invalid:
            return JSONResponse({"field": invalid.field, "reason": str(invalid)}, 422)
        try:
            return await self._answer(await decision(self._decider, command, request.is_disconnected))
        except (ServiceDown, psycopg.Error) as down:
            why = str(down) if isinstance(down, ServiceDown) else "the database does not answer"
            raise RequestRefused(503, why, retry_after=_RETRY_SECONDS) from down

    async def _answer(self, stored: Stored) -> Response:
        if stored.receipt is None or not stored.is_accepted:
            return _json(rendered(stored.answer), stored.status)
        try:
            seconds = self._settings.collector_command_seconds
            said = await asyncio.wait_for(asyncio.wrap_future(self._watch.submit(stored.receipt)), seconds)
        except TimeoutError:
            said = await asyncio.to_thread(self._watch.settle, stored.receipt)
        return _json(rendered(stored.answer, said), 200 if said.said == LOG else 202)

    async def receipt(self, request: Request) -> Response:
        """What is known now of an earlier command of the sender."""
        try:
            receipt = uuid.UUID(request.path_params["receipt"])
        except ValueError:
            raise RequestRefused(404, "a receipt is a UUID") from None
        found = await asyncio.to_thread(partial(self._find, receipt, request.state.key.name))
        if found is None:
            raise RequestRefused(404, "there is no such receipt of this sender")
        return JSONResponse(found.as_dict())

    def _find(self, receipt: uuid.UUID, sender: str) -> history.Decided | None:
        with kept(self._settings) as connection:
            found = history.find(connection, receipt)
        return found if found is not None and found.sender == sender else None


async def decision(decider: Decider, command: CommandRequest, is_gone: Callable[[], Awaitable[bool]]) -> Stored:
    """The decision of a command. It does not begin if the sender is gone, or if other commands take too long.

    Raises:
        ServiceDown: the command is not decided, or the result is unknown.
    """
    future, until = decider.submit(command), monotonic() + _LONGEST_SECONDS
    decided = asyncio.wrap_future(future)
    try:
        while not (await asyncio.wait([decided], timeout=_LOOK_SECONDS))[0]:
            if (monotonic() > until or await is_gone()) and future.cancel():
                raise ServiceDown(f"no decision has begun within {_LONGEST_SECONDS:.0f} s. The command is not decided.")
        return decided.result()
    finally:
        future.cancel()  # unless it is done


def _json(body: bytes, status: int) -> Response:
    return Response(body, status, media_type="application/json")
