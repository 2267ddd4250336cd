"""Reads dead letters: from the archive, and past the archive's positions from the log.

The archive keeps dead letters forever, and the log keeps the newest for 30 days, so every dead letter is found. If a
producer wrote directly to the topic, records that are not dead letters are left out.
"""

import base64
import binascii
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pydantic import ValidationError

from truelog.archive.analyst import open_dataset
from truelog.archive.schema import TIME
from truelog.archive.table import archived_positions, open_catalog, require_adopted
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import kafka_reader, topics
from truelog.log.positions import Range
from truelog.schema.event import EventType
from truelog.schema.loading.events import EVENTS, load_event
from truelog.sources.collector.parser import parse_event
from truelog.support import timestamps
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

_COLUMNS = ["partition", "offset", "broker_time", "value"]
_PROGRESS_STEP = 500


class Coordinates(NamedTuple):
    """The place of a dead letter: its topic's id, its partition and its offset."""

    topic_id: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{self.partition}:{self.offset}"


Cursor = tuple[datetime, Coordinates]  # when a dead letter was received, and its place: the order of a list
Progress = Callable[[int], None]  # called with the number of records read so far


@dataclass(frozen=True)
class DeadLetter:
    """A bad event as it was posted, and why the collector rejected it."""

    at: Coordinates
    received_at: datetime
    event_type: str | None  # the type that the event names, whether or not that type exists
    field: str
    reason: str
    sender: str
    raw: bytes


@dataclass(frozen=True)
class LetterFilter:
    """Which dead letters to read. `reason` is a part of the field or of the reason, in any case."""

    event_type: str | None = None
    reason: str | None = None
    since: datetime | None = None

    def accepts(self, letter: DeadLetter) -> bool:
        return (
            (self.event_type is None or letter.event_type == self.event_type)
            and (self.reason is None or self.reason.lower() in f"{letter.field}: {letter.reason}".lower())
            and (self.since is None or letter.received_at >= self.since)
        )


class LetterStore:
    """All dead letters up to the log's end at the time when the store was opened."""

    def __init__(self, settings: Settings) -> None:
        """Open the store.

        Raises:
            CatalogBehind: the database was restored from a backup. Kafka still has records that the archive has erased.
        """
        self._settings = settings
        broker = topics.client(settings)
        self._archived = archived_positions(settings, [DEAD_LETTER])
        begins, ends = topics.begins(broker, [DEAD_LETTER]), topics.committed_ends(broker, [DEAD_LETTER])
        self._log_id = ends.ids[DEAD_LETTER]
        require_adopted(settings, ends.ids)
        is_same = self._archived.ids.get(DEAD_LETTER) == self._log_id
        self._tail = (begins.latest(self._archived) if is_same else begins).ranges_to(ends)

    def count_records(self, since: datetime | None) -> int:
        """How many records `read` looks at."""
        with open_catalog(self._settings) as catalog:
            archived: int = open_dataset(catalog, _letter_type()).count_rows(filter=_received(since))
        return archived + sum(each.end - each.start for each in self._tail)

    def read(self, chosen: LetterFilter, progress: Progress = lambda _: None) -> Iterator[DeadLetter]:
        """The dead letters that the filter accepts, in no particular order."""
        archived, tail = self._from_archive(_received(chosen.since)), map(self._from_log, self._tail)
        for number, letter in enumerate(chain(archived, *tail), 1):
            if number % _PROGRESS_STEP == 0:
                progress(number)
            if chosen.accepts(letter):
                yield letter

    def newest(self, chosen: LetterFilter, limit: int, before: Cursor | None = None) -> list[DeadLetter]:
        """At most `limit` dead letters, newest first, from `before` on."""
        older = (each for each in self.read(chosen) if before is None or _order(each) < before)
        return heapq.nlargest(limit, older, key=_order)

    def find(self, partition: int, offset: int) -> DeadLetter | None:
        """The dead letter at a place in the topic, or None."""
        tail = [each for each in self._tail if each.partition == partition and each.start <= offset < each.end]
        at = (ds.field("partition") == partition) & (ds.field("offset") == offset)
        found = chain(
            *(self._from_log(Range(DEAD_LETTER, partition, offset, offset + 1)) for _ in tail), self._from_archive(at)
        )
        return next(found, None)

    def _from_archive(self, condition: ds.Expression) -> Iterator[DeadLetter]:
        if DEAD_LETTER not in self._archived.ids:
            return
        with open_catalog(self._settings) as catalog:
            archived = open_dataset(catalog, _letter_type())
            for batch in archived.to_batches(columns=_COLUMNS, filter=condition & ~ds.field("erased")):
                for partition, offset, broker_time, value in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
                    if offset < self._archived.at(DEAD_LETTER, partition):  # later records are read from the log
                        at = Coordinates(self._archived.ids[DEAD_LETTER], partition, offset)
                        if letter := parse_letter(at, broker_time, value):
                            yield letter

    def _from_log(self, part: Range) -> Iterator[DeadLetter]:
        for message in kafka_reader.messages(self._settings, DEAD_LETTER, part.partition, part.start, part.end):
            at = Coordinates(self._log_id, part.partition, message.offset() or 0)
            if letter := parse_letter(at, datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC), message.value()):
                yield letter


def parse_letter(at: Coordinates, broker_time: datetime, value: bytes | None) -> DeadLetter | None:
    """The dead letter in a record, or None if the record is not a dead letter."""
    try:
        found = _letter_type().model.model_validate_json(value or b"").model_dump()
        raw = base64.b64decode(found["raw"], validate=True)
    except (ValidationError, binascii.Error):
        return None
    value_posted = parse_event(raw).value
    named = value_posted.get("type") if isinstance(value_posted, dict) else None
    event_type = named if isinstance(named, str) else found["event_type"]
    received_at = found["received_at"] or broker_time
    return DeadLetter(at, received_at, event_type, found["field"], found["reason"], found["sender"], raw)


@cache
def _letter_type() -> EventType:
    return load_event(EVENTS / f"{DEAD_LETTER}.py")


def cursor(letter: DeadLetter) -> str:
    """The place of a dead letter in a list, as text."""
    received_at, (topic_id, partition, offset) = _order(letter)
    return f"{timestamps.to_text(received_at)},{topic_id},{partition},{offset}"  # an id may contain "/"


def parse_cursor(text: str) -> Cursor:
    """Parse the text of `cursor`. Raises BadInput if it is something else."""
    try:
        received_at, topic_id, partition, offset = text.split(",")
        return timestamps.parse_timestamp(received_at), Coordinates(topic_id, int(partition), int(offset))
    except ValueError:
        raise BadInput(f"{text!r} is not a cursor; copy the cursor that the previous list printed") from None


def _order(letter: DeadLetter) -> Cursor:
    return letter.received_at, letter.at


def _received(since: datetime | None) -> ds.Expression:
    """True for all records that were received since then, and for a few earlier records: brokers stamp them later."""
    return ds.scalar(True) if since is None else ds.field("broker_time") >= pa.scalar(since, TIME)
