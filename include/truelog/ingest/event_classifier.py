"""Pieces of a body sorted: which are events, which are not and why, and the record that Kafka is to keep of each.

1. Its bytes are one JSON object, which names its `type`: an event type to which others than the platform write.
2. It keeps what that type's model declares, the receipt apart, which is the collector's to say.
3. By its times it happened no later than the future limit allows.

A good event is kept as it came, byte for byte, but for `received_at` put in front. A bad one is kept as a dead letter.
What is good here is good for `schema.decode` too: the model is the same, and what the two would read differently is a
flaw of the piece.
"""

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from truelog.ingest.body_splitter import Piece
from truelog.schema import record_validation
from truelog.schema.event import FUTURE_LIMIT, Event, EventType
from truelog.support import timestamps
from truelog.support.errors import RequestRefused

DEAD_LETTER = "dead_letter"
RECEIPT = "received_at"


@dataclass(frozen=True)
class Defect:
    """Why a piece is no event."""

    field: str
    reason: str


@dataclass(frozen=True)
class ClassifiedRecord:
    """What Kafka is to keep: an event, or a dead letter with its flaw."""

    topic: str
    key: bytes | None
    value: bytes
    flaw: Defect | None = None


@dataclass(frozen=True)
class Receipt:
    """When the pieces came, and with whose key."""

    time: datetime
    sender: str


@dataclass(frozen=True)
class EventClassifier:
    """What is asked of a piece, and how many and how long they may be."""

    types: Mapping[str, EventType]
    most: int
    longest: int

    def records(self, pieces: Iterable[Piece], receipt: Receipt) -> list[ClassifiedRecord]:
        """A record for each piece, in order; 413 where they are too many or one is too long."""
        return [self._record(piece, receipt) for piece in self._within_bounds(pieces)]

    def _within_bounds(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        for index, piece in enumerate(pieces):
            if index == self.most:
                raise RequestRefused(413, f"more than {self.most} events; send fewer at a time")
            if len(piece.raw) > self.longest:
                why = f" ({piece.flaw[1]})" if piece.flaw else ""
                raise RequestRefused(413, f"event {index} has more than {self.longest} bytes{why}; nothing was kept")
            yield piece

    def _record(self, piece: Piece, receipt: Receipt) -> ClassifiedRecord:
        found = self._examined(piece, receipt)
        return self._dead_letter(piece, found, receipt) if isinstance(found, Defect) else found

    def _examined(self, piece: Piece, receipt: Receipt) -> ClassifiedRecord | Defect:
        if piece.flaw:
            return Defect(*piece.flaw)
        event_type = self._type(piece)
        if isinstance(event_type, Defect):
            return event_type
        if RECEIPT in piece.said:
            return Defect(RECEIPT, "the collector says when it received an event; leave it out")
        try:
            event = event_type.model.model_validate_json(piece.raw)
        except ValidationError as error:
            return Defect(*record_validation.first_invalid(error))
        if flaw := self._misplaced(event, receipt.time):
            return flaw
        key = None if event_type.topic.key is None else getattr(event, event_type.topic.key)
        return ClassifiedRecord(
            event_type.name, None if key is None else key.encode(), _stamped(piece.raw, receipt.time)
        )

    def _type(self, piece: Piece) -> EventType | Defect:
        if not isinstance(piece.said, dict):
            return Defect("record", "not a JSON object")
        if "type" not in piece.said:
            return Defect("type", "missing; it names the event type")
        name = piece.said["type"]
        event_type = self.types.get(name) if isinstance(name, str) else None
        if event_type is None:
            return Defect("type", f"no event type; there are {', '.join(sorted(self._open()))}")
        if event_type.topic.internal:
            return Defect("type", f"only the platform writes {event_type.name}")
        return event_type

    def _open(self) -> Iterator[str]:
        return (name for name, each in self.types.items() if not each.topic.internal)

    def _misplaced(self, event: Event, received: datetime) -> Defect | None:
        """The rule of `batch_validation` for one event; its record's broker time is not before its receipt."""
        try:
            event_time = event.occurred_at + (received - event.sent_at if event.sent_at else timedelta())
        except OverflowError:
            return Defect("event_time", "outside the years 1 to 9999")
        if event_time > received + FUTURE_LIMIT:
            return Defect("event_time", f"more than {FUTURE_LIMIT.total_seconds():g} s after its receipt")
        return None

    def _dead_letter(self, piece: Piece, flaw: Defect, receipt: Receipt) -> ClassifiedRecord:
        named = piece.said.get("type") if isinstance(piece.said, dict) else None
        letter = self.types[DEAD_LETTER].model.model_validate(
            {
                "event_id": str(uuid.uuid4()),
                "occurred_at": receipt.time,
                "received_at": receipt.time,
                "event_type": named if isinstance(named, str) and named in self.types else None,
                "field": flaw.field,
                "reason": flaw.reason,
                "sender": receipt.sender,
                "raw": base64.b64encode(piece.raw).decode(),
            }
        )
        return ClassifiedRecord(DEAD_LETTER, None, letter.model_dump_json(exclude_none=True).encode(), flaw)


def _stamped(raw: bytes, received: datetime) -> bytes:
    """The event with its receipt in front; it has a member already, so a comma follows."""
    members = raw[raw.index(b"{") + 1 :]
    return b'{"%b":"%b",%b' % (RECEIPT.encode(), timestamps.to_text(received).encode(), members)
