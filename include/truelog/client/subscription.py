"""What both clients do with a stream of events, without the network: its lines become updates, and a place.

A client that comes back names its place, so it misses no change and gets none twice. After `resync`, its id names
no place, and it begins again with all rows.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import httpx

from truelog.client.exchange import Addresses, Ask, Retries, reading
from truelog.client.update import Change, Update

SILENT_SECONDS = 45.0  # three heartbeats: a service that says nothing for so long is away


@dataclass
class Subscription:
    """One subscriber, over all its connections."""

    ask: Ask
    view: str
    seconds: float  # how long to come back while the service does not answer
    _place: str | None = None  # the last id of the service, and None before the first
    _version: int = 0
    _rest: list[bytes] = field(default_factory=list)  # the pieces of a line that has not ended
    _fields: dict[str, str] = field(default_factory=dict)
    _retries: Retries | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of httpx for the next connection."""
        self._fields, self._rest = {}, []
        given = self.ask.arguments
        if self._place is not None:  # the place that the caller gave is past
            given["params"] = [each for each in given["params"] if each[0] != "last_event_id"]
        headers = given["headers"] | ({"Last-Event-ID": self._place} if self._place else {})
        return given | {"headers": headers, "timeout": httpx.Timeout(self.seconds, read=SILENT_SECONDS)}

    def pause_after(self, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """How long to wait before the next attempt. None if the stream has begun, or the refusal is final.

        Raises:
            Unavailable: the time is up.
        """
        self._retries = self._retries or Retries(self.seconds)
        return self._retries.pause_after(outcome)

    def pause_after_end(self) -> float:
        """How long to wait before the client comes back after the end of a stream."""
        return random.uniform(0.1, 1.0)  # noqa: S311  no secret depends on it

    def updates(self, data: bytes) -> Iterator[Update]:
        """The updates that these bytes complete. Only line feeds end a line: a row may contain other separators."""
        self._rest.append(data)
        if b"\n" not in data:
            return  # to join the pieces each time would take quadratic time for a long line
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        for each in lines:
            if (update := self._line(each.decode())) is not None:
                yield update

    def _line(self, text: str) -> Update | None:
        """The update that a line completes, if it does."""
        if text:
            name, _, value = text.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        found, self._fields = self._fields, {}
        self._retries = None  # the service answers
        self._place = found.get("id", self._place)
        update = self._update(found.get("event", ""), json.loads(found.get("data", "{}"), parse_float=Decimal))
        return update and replace(update, version=self._version)

    def _update(self, name: str, told: Mapping[str, Any]) -> Update | None:
        """The update of an event. `resync` needs none, because all rows follow it here or in the next stream."""
        if name == "rows":
            self._version = told["version"]
            rows = (Change({each: row[each] for each in told["key"]}, row) for row in told["rows"])
            return Update(self.view, 0, told["number"], told["positions"], None, True, tuple(rows))
        if name == "change":
            changes = tuple(Change(**each) for each in told["changes"])
            at = datetime.fromisoformat(told["at"])
            return Update(self.view, 0, told["number"], told["positions"], at, False, changes)
        return None


def subscribing(at: Addresses, view: str, asked: Mapping[str, Any], seconds: float) -> Subscription:
    """A subscription with the parameters of `GET /views/{view}/changes`."""
    return Subscription(reading(at, view, "", asked, "changes"), view, seconds)
