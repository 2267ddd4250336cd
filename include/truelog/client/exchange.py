"""What both clients do, without the network: requests, retries and the meaning of answers.

A request is sent again after a pause if the service did not answer or was too busy. An event has its id before it is
first sent, so that the log shows every copy as the same event.
"""

import json
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx

from truelog.client.errors import EventsRefused, NoToken, Unavailable, refusal
from truelog.client.page import Page
from truelog.client.receipt import Receipt

Event = Mapping[str, Any]
_BUSY = (408, 429, 502, 503, 504)
_JUDGED = (200, 207, 422)  # of the collector: the answer lists the events
_REBUILD_SECONDS = 600.0  # the shortest time limit for rows of the past
_PROBLEM = "application/problem+json"
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # each subscription has a connection
UNANSWERED = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError)  # a retry may succeed
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True)
class Addresses:
    """Where the services are, and the keys for them. A client that only reads or only sends needs one of both."""

    collector: str = ""
    producer_key: str = ""
    api: str = ""
    reader_key: str = ""


@dataclass(frozen=True)
class Ask:
    """A request that may be repeated."""

    method: str
    url: str
    key: str
    params: Sequence[tuple[str, str]] = ()
    json: Any = None
    traceparent: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of httpx."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers |= {"traceparent": self.traceparent} if self.traceparent else {}
        given = {"method": self.method, "url": self.url, "params": list(self.params)}
        if self.json is None:
            return {**given, "headers": headers}
        content = json.dumps(self.json, default=_double, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return {**given, "headers": {**headers, "Content-Type": "application/json"}, "content": content}


def _double(value: Any) -> float:
    """A `Decimal` of a row, as the fields of events have it."""
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _pauses() -> Iterator[float]:
    """Growing pauses with jitter, so that clients do not return all at once."""
    longest = _FIRST_PAUSE
    while True:
        yield random.uniform(longest / 2, longest)  # noqa: S311  no secret depends on it
        longest = min(longest * 2, _LONGEST_PAUSE)


@dataclass
class Retries:
    """When a request is sent again, until the time limit.

    Rows of the past have a longer limit, from the first answer on that they are not rebuilt yet.
    """

    seconds: float
    began: float = field(default_factory=time.monotonic)
    pauses: Iterator[float] = field(default_factory=_pauses)

    def pause_after(self, outcome: httpx.Response | httpx.TransportError) -> float | None:
        """How long to wait before the request is sent again; None if the answer is final.

        Raises:
            Unavailable: the time is up.
        """
        pause, why = next(self.pauses), f"it did not answer: {type(outcome).__name__}"
        if isinstance(outcome, httpx.Response):
            if not _is_busy(outcome):
                return None
            stated = outcome.headers.get("Retry-After", "")
            pause, why = max(pause, float(stated) if stated.isdigit() else 0.0), f"it answered {outcome.status_code}"
            self.seconds = max(self.seconds, _REBUILD_SECONDS) if _is_rebuilding(outcome) else self.seconds
        if time.monotonic() + pause > self.began + self.seconds:
            raise Unavailable(f"gave up after {self.seconds:g} s: {why}")
        return pause


def _is_busy(response: httpx.Response) -> bool:
    """Whether a later attempt may succeed. A problem says so by `Retry-After`."""
    is_problem = response.headers.get("Content-Type") == _PROBLEM
    is_busy = response.status_code in _BUSY and not (is_problem and "Retry-After" not in response.headers)
    return is_busy or _is_rebuilding(response)


def _is_rebuilding(response: httpx.Response) -> bool:
    """Whether the API answers that the rows of the past are not rebuilt yet."""
    return response.status_code == 202 and "Retry-After" in response.headers


def sending(at: Addresses, events: Sequence[Event], traceparent: str = "") -> Ask:
    """The request that sends events. An event without an id or a time gets both, and keeps them in every retry."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    identified = [{"event_id": str(uuid.uuid4()), "occurred_at": now, **event} for event in events]
    return Ask("POST", f"{at.collector}/events", at.producer_key, json=identified, traceparent=traceparent)


def reading(at: Addresses, view: str, relation: str, asked: Mapping[str, Any], what: str = "rows") -> Ask:
    """The request that reads rows, or follows them. Parameters without a value are left out.

    Raises:
        NoToken: `at_least` has no value, so the rows might lack the events that the caller waits for.
    """
    if "at_least" in asked and asked["at_least"] is None:
        reason = "the collector gave no position token, as for events in a new topic or in very many partitions"
        raise NoToken(f"at_least: {reason}; leave at_least out to read rows that may lack the events")
    path = f"relations/{quote(relation, safe='')}" if relation else what
    params: list[tuple[str, str]] = []
    for name, value in asked.items():
        values = value if isinstance(value, list | tuple) else [value]
        params += [(name, _text(each)) for each in values if each is not None]
    return Ask("GET", f"{at.api}/views/{quote(view, safe='')}/{path}", at.reader_key, params)


def exchanging(at: Addresses, view: str, relation: str, key: Mapping[str, str], seconds: int) -> Ask:
    """The request for a scoped token."""
    body = {"view": view, "relation": relation, "key": dict(key), "seconds": seconds}
    return Ask("POST", f"{at.api}/tokens", at.reader_key, json=body)


def receipt(response: httpx.Response) -> Receipt:
    """The meaning of the collector's answer.

    Raises:
        EventsRefused: some events are dead letters.
        Refused: the collector refused the whole request.
    """
    answer = _body(response)
    if response.status_code not in _JUDGED or "good" not in answer:
        raise refusal(response.status_code, answer)
    found = Receipt.of(answer)
    if found.bad:
        raise EventsRefused(found)
    return found


def page(response: httpx.Response) -> Page:
    """The meaning of the API's answer about rows.

    Raises:
        Refused: the API refused the request.
    """
    return Page.of(answered(response))


def answered(response: httpx.Response) -> Mapping[str, Any]:
    """The API's answer.

    Raises:
        Refused: the API refused the request.
    """
    answer = _body(response)
    if response.status_code != 200:
        raise refusal(response.status_code, answer)
    return answer


def _body(response: httpx.Response) -> Mapping[str, Any]:
    try:
        found = json.loads(response.content, parse_float=Decimal)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"detail": "the answer is not JSON; is this the right address?"}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)
