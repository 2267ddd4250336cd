"""Generated events of a community: carts, and people who follow each other, post tweets and change their profiles.

A few people are followed by many, by Zipf's law. Some tweets are deleted, some people stop following, some carts are
checked out. Some events arrive late, out of order or twice.
"""

import json
from datetime import datetime, timedelta
from random import Random
from typing import Any

from truelog.ingest.zipf import Zipf
from truelog.log.kafka_producer import OutgoingRecord
from truelog.support import timestamps

TOPICS = ("cart_event", "follow", "tweet", "profile")

# Shares of all events of their kind.
UNFOLLOWED, DELETED, CLOSED, CHECKED_OUT = 0.1, 0.1, 0.02, 0.05
LATE, TWICE = 0.05, 0.02

_PEOPLE = Zipf(tuple(f"p{n}" for n in range(1, 501)))
_PRODUCTS = Zipf(tuple(f"product {n}" for n in range(1, 101)))
_KINDS = {"cart_event": 50, "follow": 25, "tweet": 20, "profile": 5}
_NAMES = ("Ann", "Bob", "Cem", "Dora", "Eve", "Finn", "Gül", "Hana", "Ivan", "Jun")
_CARTS, _TWEETS = 50, 100  # the carts and the tweets that events may still change


class Community:
    """The open carts, and the tweets that may be deleted."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.carts = [self._identity() for _ in range(_CARTS)]
        self.tweets: list[tuple[str, str]] = []
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
        verb = "unfollowed" if self._chance(UNFOLLOWED) else "followed"
        return follower, {"follower_id": follower, "followee_id": _PEOPLE.draw(self.random), "verb": verb}

    def _tweet(self) -> tuple[str, dict[str, Any]]:
        if self.tweets and self._chance(DELETED):
            tweet, author = self.tweets.pop(self.random.randrange(len(self.tweets)))
            return tweet, {"tweet_id": tweet, "author_id": author, "verb": "deleted"}
        tweet, author = self._identity(), _PEOPLE.draw(self.random)
        self.tweets = [*self.tweets[1 - _TWEETS :], (tweet, author)]
        text = f"I like my {_PRODUCTS.draw(self.random)}"
        return tweet, {"tweet_id": tweet, "author_id": author, "verb": "posted", "text": text}

    def _profile(self) -> tuple[str, dict[str, Any]]:
        person = self.random.choice(_PEOPLE.items)
        if self._chance(CLOSED):
            return person, {"person_id": person, "verb": "closed"}
        name = f"{self.random.choice(_NAMES)} {person}"
        photo = f"https://photos.example/{self.random.getrandbits(32):08x}"
        return person, {"person_id": person, "verb": "changed", "name": name, "photo_url": photo}

    def _identity(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _chance(self, share: float) -> bool:
        return self.random.random() < share
