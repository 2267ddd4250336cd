"""Positions: the only clock that stream and batch share.

A position is the next offset to read of one partition of one topic, the topic known by its id, so that a topic
deleted and made again is not mistaken for the old one. Positions are one per partition: a vector, partially ordered.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from truelog.support.errors import TopicRecreated

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
    """Next offsets by topic and partition; a partition not named stands at 0.

    `ids` maps a topic to the id that the broker gave it; empty where only offsets are compared.
    """

    offsets: Offsets = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frozen = {t: MappingProxyType(dict(sorted(ps.items()))) for t, ps in sorted(self.offsets.items())}
        object.__setattr__(self, "offsets", MappingProxyType(frozen))
        object.__setattr__(self, "ids", MappingProxyType(dict(self.ids)))

    def at(self, topic: str, partition: int) -> int:
        return self.offsets.get(topic, {}).get(partition, 0)

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, partition) for topic, by in self.offsets.items() for partition in by]

    def only(self, topics: Iterable[str]) -> "Positions":
        """These positions of the topics that are named."""
        kept = set(topics)
        return Positions(
            {t: by for t, by in self.offsets.items() if t in kept},
            {t: i for t, i in self.ids.items() if t in kept},
        )

    def covers(self, other: "Positions") -> bool:
        """True where every partition stands at or past `other`."""
        return all(self.at(t, p) >= other.at(t, p) for t, p in other.partitions())

    def earliest(self, other: "Positions") -> "Positions":
        return self._combined(other, min)

    def latest(self, other: "Positions") -> "Positions":
        return self._combined(other, max)

    def portion_to(self, end: "Positions", records: int) -> "Positions":
        """On the way to `end`, as far as about so many records reach, spread over the partitions."""
        each = max(1, records // max(1, len(end.partitions())))
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition in end.partitions():
            here = self.at(topic, partition)
            offsets.setdefault(topic, {})[partition] = max(here, min(end.at(topic, partition), here + each))
        return Positions(offsets, end.ids)

    def ranges_to(self, end: "Positions") -> list[Range]:
        """What lies between here and `end`, partition by partition; nothing where `end` is not ahead."""
        return [Range(t, p, self.at(t, p), end.at(t, p)) for t, p in end.partitions() if end.at(t, p) > self.at(t, p)]

    def require_same_topics(self, other: "Positions") -> None:
        """Refuse to mix positions of a topic with those of its re-created namesake."""
        for topic in self.ids.keys() & other.ids.keys():
            if self.ids[topic] != other.ids[topic]:
                raise TopicRecreated(
                    f"{topic} was deleted and made again: it is {other.ids[topic]} now, the positions were made on "
                    f"{self.ids[topic]}. Bump `version` of the views that read it and rebuild them."
                )

    def plain(self) -> dict[str, dict[int, int]]:
        """The offsets as dictionaries, for those who show them."""
        return {topic: dict(by) for topic, by in self.offsets.items()}

    def as_json(self) -> str:
        """`{topic: {partition: offset}}`, keys in order: equal positions are equal text."""
        plain = {t: {str(p): o for p, o in by.items()} for t, by in self.offsets.items()}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))

    def with_ids(self) -> str:
        """Offsets and topic ids together, for those who keep positions in one field; see `from_text`."""
        return json.dumps([json.loads(self.as_json()), dict(self.ids)], sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> "Positions":
        """What `with_ids` wrote."""
        offsets, ids = json.loads(text)
        return Positions.from_json(json.dumps(offsets), ids)

    @staticmethod
    def of_rows(rows: Iterable[tuple[object, ...]]) -> "Positions":
        """Of rows as the database has them: topic, partition, next offset, topic id."""
        offsets: dict[str, dict[int, int]] = {}
        ids: dict[str, str] = {}
        for topic, partition, next_offset, topic_id in rows:
            offsets.setdefault(str(topic), {})[int(str(partition))] = int(str(next_offset))
            ids[str(topic)] = str(topic_id)
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
