"""Generated shop traffic, as irregular as real traffic. It depends only on the seed, the start time and the rate.

Visitors start sessions and view pages, whose popularity follows Zipf's law. Some visitors search and click on results.
Some events arrive late or out of order. Devices with wrong clocks report when they sent an event, so that the event's
time can be corrected. Some records are malformed. A click may arrive before its search or more than an hour after it.

Record i is due i/rate seconds after the start, and the times in its event are relative to that moment.
"""

import heapq
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any

from truelog.log.kafka_producer import OutgoingRecord
from truelog.support import timestamps
from truelog.traffic import community
from truelog.traffic.community import Community
from truelog.traffic.zipf import Zipf

SITE_TOPICS = ("page_view", "search", "click")
TOPICS = (*SITE_TOPICS, *community.TOPICS)
SITE = "https://shop.example"
BROWSERS = {"Chrome": 60, "Safari": 20, "Firefox": 10, "Edge": 6, "Opera": 3, None: 1}
LANGUAGES = {"en": 50, "de": 20, "fr": 15, "ja": 10, None: 5}
STATUSES = {200: 93, 304: 3, 404: 3, 500: 1}
WORDS = ("lamp", "chair", "table", "desk", "sofa", "shelf", "rug", "mirror", "bed", "clock", "vase", "stool")

# Shares of all records, sessions, devices, searches or clicks.
MALFORMED = 0.01
NEW_SESSION = 0.04
SEARCHES = 0.1
WRONG_CLOCKS = 0.05
WITHOUT_SENT_AT = 0.2
LATE, OUT_OF_ORDER = 0.02, 0.2
EARLY_CLICKS, HOUR_LATE_CLICKS = 0.1, 0.1

_SESSIONS, _VISITORS, _PAGES, _RESULTS = 50, 5_000, 500, 10


PAGES = Zipf(("/", *(f"/p/{n}" for n in range(1, _PAGES))))
QUERIES = Zipf(WORDS + tuple(f"{a} {b}" for a in WORDS for b in WORDS if a != b))


@dataclass(frozen=True)
class Session:
    """One visit: the visitor, the device, and the error of the device's clock."""

    session_id: str
    visitor_id: str
    ip: str
    browser: str | None
    language: str | None
    skew: timedelta
    has_sent_at: bool


@dataclass(frozen=True, order=True)
class Planned:
    """An event that is due later. `number` makes the order total."""

    due: datetime
    number: int
    topic: str = field(compare=False)
    session: Session = field(compare=False)
    happened: datetime = field(compare=False)
    event: Mapping[str, Any] = field(compare=False)


def generate(
    *, seed: int, begin: datetime, rate: float, seconds: float, social: float = 0.0
) -> Iterator[OutgoingRecord]:
    """`rate * seconds` records, in sending order. `social` is the share of records that `Community` makes."""
    shop, others, draw = (Random(seed) for _ in range(3))  # noqa: S311 — repeatable, not secret
    site, people = _Shop(shop), Community(others)
    for number in range(round(rate * seconds)):
        source = people if draw.random() < social else site
        yield source.record(begin + timedelta(seconds=number / rate))


class _Shop:
    """The current sessions and the planned events."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.sessions = [self._session() for _ in range(_SESSIONS)]
        self.planned: list[Planned] = []
        self.numbers = count()

    def record(self, now: datetime) -> OutgoingRecord:
        """The next record: a planned event that is due, or a visitor's next action."""
        if self.planned and self.planned[0].due <= now:
            return self._record(heapq.heappop(self.planned), now)
        index = self.random.randrange(_SESSIONS)
        if self._chance(NEW_SESSION):
            self.sessions[index] = self._session()
        session = self.sessions[index]
        if self._chance(SEARCHES):
            return self._search(session, now)
        return self._record(self._plan("page_view", session, now, now - self._delay(), self._page_view(session)), now)

    def _search(self, session: Session, now: datetime) -> OutgoingRecord:
        """A search and the clicks on its results, in varying order and at varying intervals."""
        results = [SITE + page for page in dict.fromkeys(PAGES.draw(self.random) for _ in range(_RESULTS))]
        search = self._event(session) | {"query": QUERIES.draw(self.random), "results": results}
        clicks = [self._event(session) | {"search_id": search["event_id"], "url": url} for url in self._chosen(results)]
        if clicks and self._chance(EARLY_CLICKS):  # the search arrives late
            due, happened = now + self._seconds(2), now - self._seconds(5)
            heapq.heappush(self.planned, self._plan("search", session, due, happened, search))
            return self._record(self._plan("click", session, now, now, clicks[0]), now)
        hour_late = self._chance(HOUR_LATE_CLICKS)
        delay = timedelta(minutes=61) + self._seconds(3_600) if hour_late else self._delay()
        for click in clicks:
            due = now + self._seconds(8)
            heapq.heappush(self.planned, self._plan("click", session, due, due, click))
        return self._record(self._plan("search", session, now, now - delay, search), now)

    def _chosen(self, results: list[str]) -> list[str]:
        """The results that the visitor clicks: often none, and the first results more often than others."""
        n = self.random.choice((0, 0, 1, 1, 2))
        return results[:n] if self._chance(0.5) else self.random.sample(results, min(n, len(results)))

    def _page_view(self, session: Session) -> dict[str, Any]:
        random = self.random
        return self._event(session) | {
            "ip": session.ip,
            "url": SITE + PAGES.draw(random),
            "referrer": SITE + PAGES.draw(random) if self._chance(0.5) else None,
            "browser": session.browser,
            "language": session.language,
            "status": self._weighted(STATUSES),
            "bytes": int(random.lognormvariate(9, 1)),
            "response_ms": int(random.lognormvariate(4, 0.8)),
        }

    def _event(self, session: Session) -> dict[str, Any]:
        identity = f"{self.random.getrandbits(128):032x}"
        return {"event_id": identity, "session_id": session.session_id, "visitor_id": session.visitor_id}

    def _plan(self, topic: str, session: Session, due: datetime, happened: datetime, event: dict[str, Any]) -> Planned:
        return Planned(due, next(self.numbers), topic, session, happened, event)

    def _record(self, planned: Planned, now: datetime) -> OutgoingRecord:
        session = planned.session
        event = {**planned.event, "occurred_at": timestamps.to_text(planned.happened + session.skew)}
        if session.has_sent_at:
            event["sent_at"] = timestamps.to_text(now + session.skew)
        value = json.dumps({name: member for name, member in event.items() if member is not None}).encode()
        if self._chance(MALFORMED):
            value = self._malformed(event, value)
        return OutgoingRecord(planned.topic, session.visitor_id, value)

    def _malformed(self, event: dict[str, Any], value: bytes) -> bytes:
        """A malformed record, such as buggy or hostile clients send."""
        return self.random.choice(
            (
                b"",
                b"not json",
                value[: len(value) // 2],
                b"[" + value + b"]",
                json.dumps({**event, "visitor_id": None}).encode(),
                json.dumps({**event, "event_id": 7}).encode(),
                json.dumps({**event, "occurred_at": "yesterday"}).encode(),
                json.dumps({**event, "occurred_at": "9999-12-31T23:59:59Z", "sent_at": None}).encode(),
            )
        )

    def _session(self) -> Session:
        visitor = int(_VISITORS ** self.random.random())  # a few visitors have many sessions
        is_clock_wrong = self._chance(WRONG_CLOCKS)
        return Session(
            session_id=f"{self.random.getrandbits(64):016x}",
            visitor_id=f"v{visitor}",
            ip=f"198.51.100.{visitor % 250}",
            browser=self._weighted(BROWSERS),
            language=self._weighted(LANGUAGES),
            skew=timedelta(seconds=self.random.gauss(0, 86_400)) if is_clock_wrong else timedelta(),
            has_sent_at=is_clock_wrong or not self._chance(WITHOUT_SENT_AT),
        )

    def _delay(self) -> timedelta:
        """The delay between an event and the time at which it is sent."""
        if self._chance(LATE):
            return self._seconds(1_800)
        return self._seconds(5) if self._chance(OUT_OF_ORDER) else self._seconds(0.1)

    def _seconds(self, mean: float) -> timedelta:
        return timedelta(seconds=self.random.expovariate(1 / mean))

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _weighted(self, weights: Mapping[Any, int]) -> Any:
        return self.random.choices(list(weights), list(weights.values()))[0]
