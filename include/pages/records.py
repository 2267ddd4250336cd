"""Archived records: the newest of a topic, one with its raw bytes and readers, and the records that views skip."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query

from pages.access import DataReader, SignedIn, may_compare, may_replay
from pages.answer import Answer, parts
from pages.data import OF_VIEWS, Until
from truelog.control import event_registry
from truelog.dead_letters import ledger as replay_ledger
from truelog.dead_letters import replay as dead_letter_replay
from truelog.dead_letters.store import Coordinates, DeadLetter, parse_letter
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.reports import record as record_report
from truelog.reports.record import Place
from truelog.reports.records.archived_record import ArchivedRecord, read_record
from truelog.reports.records.newest_records import ListedRecord, ListRequest, Moment, newest_records
from truelog.sources.collector.classifier import Defect
from truelog.sources.collector.parser import parse_event
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_MOST_BYTES = 64 * 2**10  # shown of a value
_LISTED, _LISTED_BYTES = 50, 300  # records in a list, and what is shown of each value
_SKIPPED = 500
_LAST = 2**63 - 1
Partition = Annotated[int, Query(ge=0, le=2**31 - 1)]
Version = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
Offset = Annotated[int, Query(ge=0, lt=_LAST)]


@router.get("/skipped")
def skipped(user: SignedIn, view: str = "", version: Version = None) -> Answer:
    """The topics that have records, and the records that views skip, by default in the versions that readers see."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = record_report.skipped_records(connection, view or None, version, _SKIPPED)
        topics = event_registry.newest_versions(connection)
    return Answer(skipped=found, topics=sorted(topics), may_read=may_compare(user))


def _moment(
    until: Until = None,
    partition: Annotated[int, Query(ge=-1, le=2**31 - 1)] = -1,
    offset: Annotated[int, Query(ge=-1, lt=_LAST)] = -1,
) -> Moment:
    return Moment(until or datetime.now(UTC), partition, offset)


@router.get("/records")
def records(
    topic: str,
    user: DataReader,
    moment: Annotated[Moment, Depends(_moment)],
    key: Annotated[str, Query(max_length=1000)] = "",
) -> Answer:
    """The newest archived records of a topic before a moment. The audit trail records who looked at them."""
    settings = Settings()
    found = newest_records(settings, topic, ListRequest(moment, _LISTED, key.encode() or None))
    with connect(settings) as connection:
        about = f"the newest {_LISTED} before {moment.time:%Y-%m-%d %H:%M:%S}" + (f" with the key {key}" if key else "")
        audit_trail.record_operation(connection, OperationKind.READ, topic, user, about)
    return Answer(topic=topic, records=[_listed(topic, each) for each in found], more=len(found) == _LISTED)


def _listed(topic: str, record: ListedRecord) -> dict[str, Any]:
    """A record of a list. A dead letter is shown as the event that was posted, with the reason of its rejection."""
    letter = _letter(record) if topic == DEAD_LETTER else None
    value = letter.raw if letter else record.value
    return parts(record) | {
        "key": _text(record.key),
        "value": _text(value and value[:_LISTED_BYTES]),
        "bytes": value and len(value),
        "is_cut": len(value or b"") > _LISTED_BYTES,
        "rejected": f"{letter.field}: {letter.reason}" if letter else "",
    }


def _letter(record: ListedRecord | ArchivedRecord, topic_id: str = "") -> DeadLetter | None:
    return parse_letter(Coordinates(topic_id, record.partition, record.offset), record.broker_time, record.value)


@router.get("/record")
def record(topic: str, partition: Partition, offset: Offset, user: DataReader, signed_in: SignedIn) -> Answer:
    """One record. The audit trail records who looked at it, before the answer is sent."""
    settings = Settings()
    found = read_record(settings, topic, partition, offset)
    if found is None:
        raise HTTPException(404, f"The log has no record at {topic} {partition}:{offset}, as at a transaction's end")
    with connect(settings) as connection:
        about = f"partition {partition}, offset {offset}"
        audit_trail.record_operation(connection, OperationKind.READ, topic, user, about)
    readers = record_report.record_readers(settings, Place(topic, partition, offset))
    letter = _rejected_event(settings, found) if topic == DEAD_LETTER else None
    return Answer(record=_as_text(found), readers=readers, letter=letter, may_replay=may_replay(signed_in))


def _rejected_event(settings: Settings, record: ArchivedRecord) -> dict[str, Any] | None:
    """The rejected event in a dead letter, and what would happen to it now. None if the record is not a dead letter."""
    letter = _letter(record, record.topic_id)
    if letter is None:
        return None
    judged, event = (
        dead_letter_replay.judge(event_registry.event_types(settings), letter),
        parse_event(letter.raw).value,
    )
    with connect(settings) as connection:
        sent = replay_ledger.find_reservations(connection, [letter.at]).get(letter.at)
    return {
        "event_type": letter.event_type,
        "field": letter.field,
        "reason": letter.reason,
        "sender": letter.sender,
        "received_at": letter.received_at,
        "text": _text(letter.raw[:_MOST_BYTES]),
        "fields": {name: _shown(each) for name, each in event.items()} if isinstance(event, dict) else {},
        "still_wrong": f"{judged.field}: {judged.reason}" if isinstance(judged, Defect) else "",
        "topic": "" if isinstance(judged, Defect) else judged.topic,
        "sent": sent and {"topic": sent.topic, "place": sent.place},
    }


def _as_text(found: ArchivedRecord) -> dict[str, Any]:
    """The record as JSON data. Bytes that are not UTF-8 are escaped."""
    value = found.value
    return parts(found) | {
        "key": _text(found.key),
        "headers": [(name, _text(content)) for name, content in found.headers],
        "value": _text(value if value is None else value[:_MOST_BYTES]),
        "bytes": None if value is None else len(value),
        "shown_bytes": _MOST_BYTES,
        "fields": {name: None if each is None else _text_of_field(each) for name, each in found.fields.items()},
    }


def _text(given: bytes | None) -> str | None:
    return None if given is None else given.decode("utf-8", "backslashreplace")


def _shown(value: Any) -> str | None:
    """A value of an event. A text is shown as it is, and anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:  # the parser accepts slightly deeper nesting than the encoder
        return "(nested too deeply to be shown)"


def _text_of_field(given: Any) -> Any:
    return given if isinstance(given, list) else str(given)
