"""Generated events of a community: carts, prices, sensors, pages, documents, and people with profiles and friends.

Operators limit and block addresses. A few people and a few posts are popular, by Zipf's law. Some things are withdrawn:
tweets and posts are deleted, and people stop following. Some events arrive late, out of order or twice.
"""

import json
from datetime import datetime, timedelta
from random import Random
from typing import Any

from truelog.log.kafka_producer import OutgoingRecord
from truelog.support import timestamps
from truelog.traffic.zipf import Zipf

# Shares of all events of their kind.
WITHDRAWN, CLOSED, CHECKED_OUT = 0.1, 0.02, 0.05
LATE, TWICE = 0.05, 0.02

_PEOPLE = Zipf(tuple(f"p{n}" for n in range(1, 501)))
_PRODUCTS = Zipf(tuple(f"product {n}" for n in range(1, 101)))
_KINDS = {
    "cart_event": 40,
    "follow": 15,
    "tweet": 10,
    "profile": 5,
    "friendship": 5,
    "post": 5,
    "comment": 5,
    "like": 12,
    "share": 3,
    "price": 10,
    "reading": 10,
    "rate_policy": 1,
    "block": 1,
    "page_edit": 5,
    "document_edit": 10,
}
TOPICS = tuple(_KINDS)
_PRICES = {"GOLD": 200_000, "SILVER": 2_500, "COPPER": 400}  # the first price of each symbol
_ADDRESSES = Zipf(tuple(f"198.51.100.{n}" for n in range(250)))  # of the shop's visitors
_SENSORS = 20
_LOWEST, _HIGHEST = 0.0, 80.0
_NAMES = ("Ann", "Bob", "Cem", "Dora", "Eve", "Finn", "Gül", "Hana", "Ivan", "Jun")
_TRADES, _COMPANIES = ("Engineer", "Author", "Designer", "Nurse"), ("Initech", "Globex", "O'Reilly")
_PAGES, _LINES = 30, 40  # the wiki pages, and the lines of the longest
_DOCUMENTS = 10
_SKILLS = ("Kafka", "SQL", "writing", "drawing", "statistics")
_CARTS, _RECENT = 50, 100  # the carts, and the tweets, posts and comments that events may still change


class Community:
    """The open carts, and the recent tweets, posts, comments and shares with their events, which may be withdrawn."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.carts = [self._identity() for _ in range(_CARTS)]
        self.recent: dict[str, list[dict[str, Any]]] = {"tweet": [], "post": [], "comment": [], "share": []}
        self.prices, self.values = dict(_PRICES), [40.0] * _SENSORS
        self.pages: list[list[str]] = [[] for _ in range(_PAGES)]
        self.lengths = [0] * _DOCUMENTS  # characters of each document
        self.sent: OutgoingRecord | None = None

    def record(self, now: datetime) -> OutgoingRecord:
        """The next record."""
        if self.sent is not None and self._chance(TWICE):
            return self.sent
        topic = self.random.choices(list(_KINDS), list(_KINDS.values()))[0]
        key, event = getattr(self, f"_{topic}")()
        delay = timedelta(seconds=self.random.expovariate(1 / 600 if self._chance(LATE) else 10))
        event |= {"event_id": self._identity(), "occurred_at": timestamps.to_text(now - delay)}
        self.sent = OutgoingRecord(topic, key, json.dumps(event).encode())
        return self.sent

    def _cart_event(self) -> tuple[str, dict[str, Any]]:
        number = self.random.randrange(_CARTS)
        cart = self.carts[number]
        event: dict[str, Any] = {"cart_id": cart, "visitor_id": f"v{number}"}
        if self._chance(CHECKED_OUT):
            self.carts[number] = self._identity()
            return cart, event | {"verb": "checked_out"}
        verb = self.random.choice(("added", "added", "quantity_changed", "removed"))
        event |= {"verb": verb, "product": _PRODUCTS.draw(self.random)}
        return cart, event if verb == "removed" else event | {"quantity": self.random.randrange(1, 5)}

    def _follow(self) -> tuple[str, dict[str, Any]]:
        follower = self.random.choice(_PEOPLE.items)
        verb = "unfollowed" if self._chance(WITHDRAWN) else "followed"
        return follower, {"follower_id": follower, "followee_id": _PEOPLE.draw(self.random), "verb": verb}

    def _friendship(self) -> tuple[str, dict[str, Any]]:
        person, friend = self.random.sample(_PEOPLE.items, 2)
        verb = "unfriended" if self._chance(WITHDRAWN) else "friended"
        return person, {"person_id": person, "friend_id": friend, "verb": verb}

    def _tweet(self) -> tuple[str, dict[str, Any]]:
        written = {"author_id": _PEOPLE.draw(self.random), "text": f"I like my {_PRODUCTS.draw(self.random)}"}
        return self._made_or_withdrawn("tweet", ("posted", "deleted"), written)

    def _post(self) -> tuple[str, dict[str, Any]]:
        written = {"author_id": _PEOPLE.draw(self.random), "text": f"Look at my {_PRODUCTS.draw(self.random)}"}
        return self._made_or_withdrawn("post", ("posted", "deleted"), written)

    def _comment(self) -> tuple[str, dict[str, Any]]:
        written = {"post_id": self._one_of("post"), "author_id": _PEOPLE.draw(self.random), "text": "Nice"}
        return self._made_or_withdrawn("comment", ("posted", "deleted"), written)

    def _share(self) -> tuple[str, dict[str, Any]]:
        shared = {"post_id": self._one_of("post"), "person_id": _PEOPLE.draw(self.random)}
        return self._made_or_withdrawn("share", ("shared", "unshared"), shared)

    def _like(self) -> tuple[str, dict[str, Any]]:
        target = self._one_of("comment" if self._chance(0.3) else "post")
        verb = "unliked" if self._chance(WITHDRAWN) else "liked"
        return target, {"target_id": target, "person_id": self.random.choice(_PEOPLE.items), "verb": verb}

    def _made_or_withdrawn(
        self, topic: str, verbs: tuple[str, str], made: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """An event with a new id, or the end of what an earlier event made."""
        recent, key, (begin, end) = self.recent[topic], f"{topic}_id", verbs
        if recent and self._chance(WITHDRAWN):
            former = recent.pop(self.random.randrange(len(recent)))
            return former[key], {**{name: each for name, each in former.items() if name != "text"}, "verb": end}
        event = {key: self._identity(), **made}
        self.recent[topic] = [*recent[1 - _RECENT :], event]
        return event[key], event | {"verb": begin}

    def _one_of(self, topic: str) -> str:
        """The id of a recent post or comment, the oldest most often; `unknown` if there is none."""
        recent = tuple(str(each[f"{topic}_id"]) for each in self.recent[topic])
        return Zipf(recent).draw(self.random) if recent else "unknown"

    def _profile(self) -> tuple[str, dict[str, Any]]:
        person = self.random.choice(_PEOPLE.items)
        if self._chance(CLOSED):
            return person, {"person_id": person, "verb": "closed"}
        made = {
            "name": f"{self.random.choice(_NAMES)} {person}",
            "headline": f"{self.random.choice(_TRADES)} who likes {_PRODUCTS.draw(self.random)}",
            "company": self.random.choice(_COMPANIES),
            "keywords": ", ".join(self.random.sample(_SKILLS, 2)),
            "photo_url": f"https://photos.example/{self.random.getrandbits(32):08x}",
        }
        return person, {"person_id": person, "verb": "changed", **made}

    def _price(self) -> tuple[str, dict[str, Any]]:
        """A random walk."""
        symbol = self.random.choice(tuple(_PRICES))
        self.prices[symbol] = max(1, round(self.prices[symbol] * self.random.lognormvariate(0, 0.01)))
        return symbol, {"symbol": symbol, "price": self.prices[symbol]}

    def _reading(self) -> tuple[str, dict[str, Any]]:
        """A value that changes slowly, and is sometimes out of range for some readings."""
        number = self.random.randrange(_SENSORS)
        self.values[number] = 0.8 * self.values[number] + 0.2 * 40.0 + self.random.gauss(0, 15)
        event = {"sensor_id": f"s{number}", "machine_id": f"m{number // 4}", "measured": round(self.values[number], 3)}
        return f"s{number}", event | {"lowest": _LOWEST, "highest": _HIGHEST}

    def _rate_policy(self) -> tuple[str, dict[str, Any]]:
        address = "all" if self._chance(0.2) else _ADDRESSES.draw(self.random)
        if self._chance(WITHDRAWN):
            return address, {"address": address, "verb": "removed"}
        limit = {"max_requests": self.random.randrange(100, 1_000), "window_seconds": self.random.choice((60, 3_600))}
        return address, {"address": address, "verb": "set", "decided_by": "generator", **limit}

    def _block(self) -> tuple[str, dict[str, Any]]:
        address = _ADDRESSES.draw(self.random)
        if self._chance(WITHDRAWN):
            return address, {"address": address, "verb": "unblocked"}
        return address, {"address": address, "verb": "blocked", "reason": "scraping", "decided_by": "generator"}

    def _page_edit(self) -> tuple[str, dict[str, Any]]:
        """The whole page, in which one line is added, replaced or removed."""
        number = self.random.randrange(_PAGES)
        page, lines = f"page {number}", self.pages[number]
        event = {"page_id": page, "author_id": _PEOPLE.draw(self.random), "title": page.title()}
        if self._chance(CLOSED):
            lines.clear()
            return page, event | {"verb": "deleted", "comment": "spam"}
        place = self.random.randrange(len(lines) + 1)
        added = [f"{_PRODUCTS.draw(self.random)} is good"] if len(lines) < _LINES else []
        lines[place : place + self.random.randrange(2)] = added
        return page, event | {"verb": "edited", "comment": "more facts", "text": "\n".join(lines)}

    def _document_edit(self) -> tuple[str, dict[str, Any]]:
        """A word that is typed somewhere, or some characters that are removed."""
        number = self.random.randrange(_DOCUMENTS)
        position = self.random.randint(0, self.lengths[number])
        removed = min(self.lengths[number] - position, self.random.randrange(8)) if self._chance(0.3) else 0
        inserted = None if removed else f"{_PRODUCTS.draw(self.random)} "
        self.lengths[number] += len(inserted or "") - removed
        edit = {"position": position, "removed": removed, "inserted": inserted}
        return f"d{number}", {"document_id": f"d{number}", "author_id": _PEOPLE.draw(self.random), **edit}

    def _identity(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _chance(self, share: float) -> bool:
        return self.random.random() < share
