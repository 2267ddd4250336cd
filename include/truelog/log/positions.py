"""Positions: the only clock that stream and batch share.

A position is the next offset to read in one partition of one topic. The topic is identified by its id, so that a topic
that was deleted and created again is not mistaken for the old topic. Positions form a vector with one position for each
partition, and these vectors are partially ordered.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from truelog.support.errors import BadInput, TopicRecreated

LONGEST_TOKEN = 12_288  # characters; a question of the API may have 16,384 in all

Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True)
class Range:
    """The records [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Positions:
    """Next offsets by topic and partition. A partition without an entry is at 0.

    `ids` maps each topic to the id that the broker assigned. `ids` is empty if only offsets are compared.
    """

    offsets: Offsets = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frozen = {t: MappingProxyType(dict(sorted(ps.items()))) for t, ps in sorted(self.offsets.items())}
        object.__setattr__(self, "offsets", MappingProxyType(frozen))
        object.__setattr__(self, "ids", MappingProxyType(dict(self.ids)))

    def at(self, topic: str, partition: int) -> int:
        return self.offsets.get(topic, {}).get(partition, 0)

    @property
    def records(self) -> int:
        """How many records are below the positions."""
        return sum(sum(ends.values()) for ends in self.offsets.values())

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, partition) for topic, by in self.offsets.items() for partition in by]

    def only(self, topics: Iterable[str]) -> "Positions":
        """The positions in the given topics."""
        wanted = set(topics)
        return Positions(
            {t: by for t, by in self.offsets.items() if t in wanted},
            {t: i for t, i in self.ids.items() if t in wanted},
        )

    def renamed(self, rename: Callable[[str], str]) -> "Positions":
        """The same positions, with other names of the topics."""
        return Positions({rename(t): by for t, by in self.offsets.items()}, {rename(t): i for t, i in self.ids.items()})

    def covers(self, other: "Positions") -> bool:
        """True if every partition is at or past its position in `other`."""
        return all(self.at(t, p) >= other.at(t, p) for t, p in other.partitions())

    def earliest(self, other: "Positions") -> "Positions":
        return self._combined(other, min)

    def latest(self, other: "Positions") -> "Positions":
        return self._combined(other, max)

    def portion_to(self, end: "Positions", records: int) -> "Positions":
        """Positions `records` records ahead on the way to `end`, spread evenly over the partitions that are behind it.

        Each of these advances by a record at least. What a partition lacks less than the others, they get.
        """
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition in end.partitions():
            offsets.setdefault(topic, {})[partition] = self.at(topic, partition)
        behind = sorted(self.ranges_to(end), key=lambda each: each.end - each.start)
        for number, each in enumerate(behind):
            share = max(1, records // (len(behind) - number))
            offsets[each.topic][each.partition] = min(each.end, each.start + share)
            records -= offsets[each.topic][each.partition] - each.start
        return Positions(offsets, end.ids)

    def ranges_to(self, end: "Positions") -> list[Range]:
        """The range from these positions to `end`, for each partition in which `end` is ahead."""
        return [Range(t, p, self.at(t, p), end.at(t, p)) for t, p in end.partitions() if end.at(t, p) > self.at(t, p)]

    def records_to(self, end: "Positions") -> int:
        """The number of records from these positions to `end`, by their offsets."""
        return sum(each.end - each.start for each in self.ranges_to(end))

    def require_same_topics(self, other: "Positions") -> None:
        """Raise TopicRecreated if a topic was deleted and created again between the two positions."""
        for topic in self.ids.keys() & other.ids.keys():
            if self.ids[topic] != other.ids[topic]:
                raise TopicRecreated(
                    f"{topic} was deleted and created again: its id is {other.ids[topic]}, but the positions have the "
                    f"id {self.ids[topic]}. Bump `version` in the views that read it, and rebuild them."
                )

    def plain(self) -> dict[str, dict[int, int]]:
        """The offsets as plain dictionaries, for JSON and display."""
        return {topic: dict(by) for topic, by in self.offsets.items()}

    def as_json(self) -> str:
        """`{topic: {partition: offset}}` with sorted keys, so that equal positions produce equal text."""
        plain = {t: {str(p): o for p, o in by.items()} for t, by in self.offsets.items()}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    def with_ids(self) -> str:
        """Offsets and topic ids in one text, which `from_text` parses."""
        return json.dumps([json.loads(self.as_json()), dict(self.ids)], sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> "Positions":
        """Parse the text of `with_ids`."""
        offsets, ids = json.loads(text)
        return Positions.from_json(json.dumps(offsets), ids)

    def as_token(self) -> str:
        """The same text in characters that a URL may have. For clients, it is opaque.

        `from_token` reads up to `LONGEST_TOKEN` characters.
        """
        return base64.urlsafe_b64encode(self.with_ids().encode()).decode().rstrip("=")

    @staticmethod
    def from_token(token: str) -> "Positions":
        """Parse a token from a client.

        Raises:
            BadInput: it is not a token of `as_token`.
        """
        try:
            if len(token) > LONGEST_TOKEN:
                raise ValueError("too long")
            text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            found = Positions.from_text(text.decode())
            numbers = [each for by in found.offsets.values() for item in by.items() for each in item]
            is_whole = found.offsets.keys() == found.ids.keys() and {*map(type, found.ids.values())} <= {str}
            if not is_whole or not all(type(each) is int and 0 <= each < 2**63 for each in numbers):
                raise ValueError("not positions")
        except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError) as error:
            raise BadInput("it is not a position token; use the `token` of the collector's answer as it is") from error
        return found

    @staticmethod
    def of_rows(rows: Iterable[tuple[Any, ...]]) -> "Positions":
        """Positions from database rows: topic, partition, next offset, topic id."""
        offsets: dict[str, dict[int, int]] = {}
        ids: dict[str, str] = {}
        for topic, partition, next_offset, topic_id in rows:
            offsets.setdefault(topic, {})[partition] = next_offset
            ids[topic] = topic_id
        return Positions(offsets, ids)

    @staticmethod
    def from_json(text: str, ids: Mapping[str, str] | None = None) -> "Positions":
        plain: dict[str, dict[str, int]] = json.loads(text)
        return Positions({t: {int(p): o for p, o in by.items()} for t, by in plain.items()}, ids or {})

    def _combined(self, other: "Positions", choose: Callable[[int, int], int]) -> "Positions":
        both = {*self.partitions(), *other.partitions()}
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition in both:
            offsets.setdefault(topic, {})[partition] = choose(self.at(topic, partition), other.at(topic, partition))
        return Positions(offsets, {**other.ids, **self.ids})
