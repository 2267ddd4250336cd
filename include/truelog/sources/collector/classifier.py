"""The classifier: separates good events from bad events, and builds a Kafka record for each event.

An event is good if it passes these checks:

1. Its bytes are one JSON object, whose `type` is an event type that is not internal to the platform.
2. The event is valid for that type's model, has the required fields, and leaves `received_at` to the collector.
3. Its time is not past the future limit.

A good event is stored byte for byte, with `received_at` inserted in front. A bad event is stored as a dead letter.
`schema.decode` accepts every good event, because it agrees with the model, and because the splitter rejects every event
that the decoder and the model would parse differently.
"""

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.schema import record_validation
from truelog.schema.event import Event, EventType
from truelog.schema.required import first_missing
from truelog.sources.collector.parser import RawEvent
from truelog.support import timestamps
from truelog.support.errors import RequestRefused

RECEIPT = "received_at"


@dataclass(frozen=True)
class Defect:
    """Why an event is bad."""

    field: str
    reason: str


@dataclass(frozen=True)
class ClassifiedRecord:
    """A record for Kafka: a good event, or a dead letter with its defect."""

    topic: str
    key: bytes | None
    value: bytes
    defect: Defect | None = None
    event_id: str | None = field(default=None, compare=False)  # of a good event
    said: Mapping[str, Any] = field(default_factory=dict, compare=False)  # a good event as its sender wrote it
    trace: str = field(default="", compare=False)  # of this event, instead of the request's


@dataclass(frozen=True)
class Receipt:
    """When the events arrived, and the name of the sender's key."""

    time: datetime
    sender: str


@dataclass(frozen=True)
class EventClassifier:
    """Classifies events of at most `max_bytes` bytes."""

    types: Mapping[str, EventType]
    max_bytes: int

    def classify(self, events: Iterable[RawEvent], receipt: Receipt) -> list[ClassifiedRecord]:
        """A record for each event, in order. Raises 413 before classifying any event if an event is too long."""
        split = list(events)
        for index, event in enumerate(split):
            if len(event.raw) > self.max_bytes:
                why = f" ({event.defect[1]})" if event.defect else ""
                reason = f"event {index} has more than {self.max_bytes} bytes{why}; nothing was stored"
                raise RequestRefused(413, reason)
        return [self._record(event, receipt) for event in split]

    def _record(self, event: RawEvent, receipt: Receipt) -> ClassifiedRecord:
        result = self.judge(event, receipt)
        record = self._dead_letter(event, result, receipt) if isinstance(result, Defect) else result
        return replace(record, trace=event.trace) if event.trace else record

    def judge(self, event: RawEvent, receipt: Receipt) -> ClassifiedRecord | Defect:
        """The record of a good event, or why the event is bad."""
        if event.defect:
            return Defect(*event.defect)
        event_type = self._type(event)
        if isinstance(event_type, Defect):
            return event_type
        if RECEIPT in event.value:
            return Defect(RECEIPT, "only the collector sets it; leave it out")
        try:
            model = event_type.model.model_validate_json(event.raw)
        except ValidationError as error:
            return Defect(*record_validation.first_invalid(error))
        if defect := _missing_defect(event_type, model) or _time_defect(event_type, model, receipt.time):
            return defect
        key = None if event_type.topic.key is None else getattr(model, event_type.topic.key)
        return ClassifiedRecord(
            event_type.name,
            None if key is None else key.encode(),
            _with_receipt(event.raw, receipt.time),
            event_id=model.event_id,
            said=event.value,
        )

    def _type(self, event: RawEvent) -> EventType | Defect:
        if not isinstance(event.value, dict):
            return Defect("record", "not a JSON object")
        if "type" not in event.value:
            return Defect("type", "missing; it must name the event type")
        name = event.value["type"]
        event_type = self.types.get(name) if isinstance(name, str) else None
        if event_type is None:
            return Defect("type", f"not an event type; use one of {', '.join(sorted(self._public_types()))}")
        if event_type.topic.internal:
            return Defect("type", f"only the platform writes {event_type.name}")
        return event_type

    def _public_types(self) -> Iterator[str]:
        return (name for name, each in self.types.items() if not each.topic.internal)

    def _dead_letter(self, event: RawEvent, defect: Defect, receipt: Receipt) -> ClassifiedRecord:
        name = event.value.get("type") if isinstance(event.value, dict) else None
        letter = self.types[DEAD_LETTER].model.model_validate(
            {
                "event_id": str(uuid.uuid4()),
                "occurred_at": receipt.time,
                "received_at": receipt.time,
                "event_type": name if isinstance(name, str) and name in self.types else None,
                "field": defect.field,
                "reason": defect.reason,
                "sender": receipt.sender,
                "raw": base64.b64encode(event.raw).decode(),
            }
        )
        return ClassifiedRecord(DEAD_LETTER, None, letter.model_dump_json(exclude_none=True).encode(), defect)


def _missing_defect(event_type: EventType, event: Event) -> Defect | None:
    missing = first_missing(event_type.required, event)
    return Defect(missing.field, missing.reason) if missing else None


def _time_defect(event_type: EventType, event: Event, received: datetime) -> Defect | None:
    """The time rule of `batch_validation` for one event, whose record's broker time is never before its receipt."""
    try:
        event_time = event.occurred_at + (received - event.sent_at if event.sent_at else timedelta())
    except OverflowError:
        return Defect("event_time", "outside the years 1 to 9999")
    if event_time > received + event_type.future_limit:
        return Defect("event_time", f"more than {event_type.future_limit.total_seconds():g} s after its receipt")
    return None


def _with_receipt(raw: bytes, received: datetime) -> bytes:
    """The event with `received_at` as its first member. A comma follows, because a good event has other members."""
    members = raw[raw.index(b"{") + 1 :]
    return b'{"%b":"%b",%b' % (RECEIPT.encode(), timestamps.to_text(received).encode(), members)
