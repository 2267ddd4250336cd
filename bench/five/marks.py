"""Marks: events whose keys occur nowhere else, so that their effect on a view can be recognised.

Each view has its own kind of mark. A mark of one record is a page view or a change of a cart. A mark of two records is
a search with its click, or a new follower with a tweet of the person that is followed. Such a mark shows only after
the view has joined the two records, and its delay begins when the broker has acknowledged both.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from truelog.log.kafka_producer import OutgoingRecord
from truelog.support import timestamps

VIEWS = ("page_views", "request_rates", "cart", "click_through", "home_timeline")


class Reader(Protocol):
    """What a reader of an engine's results sees."""

    def find(self, view: str, marks: Mapping[str, datetime]) -> set[str]:
        """The marks that the view shows, among those with these names and event times."""
        ...


@dataclass
class Marks:
    """The times when each mark was acknowledged, and when its view first showed it."""

    prefix: str  # of the names of the marks: letters, digits and hyphens, because a name may become a host
    happened: dict[str, datetime] = field(default_factory=dict)
    acknowledged: dict[str, dict[str, float]] = field(default_factory=lambda: {view: {} for view in VIEWS})
    shown: dict[str, dict[str, float]] = field(default_factory=lambda: {view: {} for view in VIEWS})
    _owners: dict[str, str] = field(default_factory=dict)  # the view of each mark
    _waiting: Counter[str] = field(default_factory=Counter)  # the records of each mark that are not acknowledged yet

    def make(self, view: str) -> tuple[str, Sequence[OutgoingRecord]]:
        """The name and the records of a new mark."""
        name, now = f"{self.prefix}-{len(self.happened)}", datetime.now(UTC)
        records = records_of(view, name, now)
        self._owners[name], self._waiting[name], self.happened[name] = view, len(records), now
        return name, records

    def acknowledge(self, name: str, error: KafkaError | None, _: Message) -> None:
        """Handle the broker's acceptance or refusal of a record of the mark. The producer calls this method."""
        if error is not None:
            raise KafkaException(error)
        self._waiting[name] -= 1
        if not self._waiting[name]:
            self.acknowledged[self._owners[name]][name] = time.time()

    def look(self, reader: Reader, views: Sequence[str]) -> None:
        """Record the marks that have newly appeared in the views."""
        for view in views:
            missing = [name for name in list(self.acknowledged[view]) if name not in self.shown[view]]
            if missing:
                found = reader.find(view, {name: self.happened[name] for name in missing})
                now = time.time()
                self.shown[view].update(dict.fromkeys(found, now))

    def are_shown(self, views: Sequence[str]) -> bool:
        """Whether each view shows all of its marks, and has at least one."""
        return all(0 < len(self.acknowledged[view]) == len(self.shown[view]) for view in views)

    def delays(self, view: str, now: float) -> tuple[list[float], int]:
        """The delays in seconds, shortest first, and how many of them are of marks that have not appeared by now."""
        shown, acknowledged = self.shown[view], self.acknowledged[view]
        found = sorted(shown.get(name, now) - at for name, at in acknowledged.items())
        return found, len(acknowledged) - len(shown)


def records_of(view: str, name: str, now: datetime) -> Sequence[OutgoingRecord]:
    """The records of a mark with this name."""
    match view:
        case "page_views":
            return [_event("page_view", name, now, visitor_id=name, url=f"https://{name}/")]
        case "request_rates":
            return [_event("page_view", name, now, visitor_id=name, url="https://shop.example/", ip=name)]
        case "cart":
            return [
                _event("cart_event", name, now, cart_id=name, visitor_id=name, verb="added", product="mark", quantity=1)
            ]
        case "click_through":
            url = f"https://{name}/"
            return [
                _event("search", name, now, visitor_id=name, query="mark", results=[url]),
                _event("click", name, now, event_id=f"{name}-click", visitor_id=name, search_id=name, url=url),
            ]
        case "home_timeline":
            author = f"{name}-author"
            return [
                _event("follow", name, now, follower_id=name, followee_id=author, verb="followed"),
                _event("tweet", name, now, tweet_id=name, author_id=author, verb="posted", text="mark"),
            ]
    raise ValueError(f"no kind of mark for the view {view!r}")


def _event(topic: str, name: str, now: datetime, **fields: object) -> OutgoingRecord:
    event = {"event_id": name, "occurred_at": timestamps.to_text(now), **fields}
    return OutgoingRecord(topic, name, json.dumps(event).encode())
