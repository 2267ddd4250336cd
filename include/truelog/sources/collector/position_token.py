"""Position tokens: with one, a sender asks the API for an answer that contains its events.

A token has the positions after the good events of a request. If a request has no good event, its token has those after
its dead letters, and the API then says that no view counts them. A topic is named with its id, because the same
positions mean other records in a topic that was created again.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import topics
from truelog.log.admin_client import describe_existing
from truelog.log.positions import LONGEST_TOKEN, Positions
from truelog.schema.event import EventType
from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

RELOAD_SECONDS = 5.0
_TIMEOUT_SECONDS = 3.0

log = logging.getLogger(__name__)


class TokenMaker:
    """Knows the ids of the topics that the collector writes to. They are read every few seconds, and for new topics."""

    def __init__(self, settings: Settings) -> None:
        self._broker = topics.client(settings, KafkaUser.COLLECTOR)
        self._ids: Mapping[str, str] = {}
        self._learning: asyncio.Task[None] | None = None

    def reload(self, types: Iterable[EventType]) -> None:
        """Read the ids again. If Kafka is down, the known ids stay."""
        names = [each.name for each in types if not each.topic.internal or each.name == DEAD_LETTER]
        try:
            found, _ = describe_existing(self._broker, names, _TIMEOUT_SECONDS)
        except ServiceDown as down:
            log.warning("the ids of the topics were not read again: %s", down)
            return
        self._ids = {name: str(each.topic_id) for name, each in found.items()}

    async def learn(self, records: Sequence[ClassifiedRecord], types: Iterable[EventType]) -> None:
        """Read the ids again if the topic of a record is new. All requests that wait share the reading."""
        if all(each.topic in self._ids for each in records):
            return
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(asyncio.to_thread(self.reload, types))
        await asyncio.shield(self._learning)

    def token(self, records: Sequence[ClassifiedRecord], places: Sequence[tuple[int, int]]) -> str | None:
        """The token of a request.

        None if it has no records, if the id of a topic is not known, or if the token would be too long to be read.
        """
        stored = list(zip(records, places, strict=True))
        counted = [each for each in stored if each[0].defect is None] or stored
        offsets: dict[str, dict[int, int]] = {}
        for record, (partition, offset) in counted:
            by_partition = offsets.setdefault(record.topic, {})
            by_partition[partition] = max(by_partition.get(partition, 0), offset + 1)
        if not offsets or not offsets.keys() <= self._ids.keys():
            return None
        made = Positions(offsets, {topic: self._ids[topic] for topic in offsets}).as_token()
        return made if len(made) <= LONGEST_TOKEN else None
