"""Archived records: one record with its raw bytes and the views that read it, and the records that views skip."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query

from pages.access import DataReader, SignedIn, may_compare
from pages.answer import Answer, parts
from pages.data import OF_VIEWS
from truelog.control import event_registry
from truelog.reports import record as record_report
from truelog.reports.archived_record import ArchivedRecord, read_record
from truelog.reports.record import Place
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_MOST_BYTES = 64 * 2**10  # shown of a value
_SKIPPED = 500
_LAST = 2**63 - 1
Partition = Annotated[int, Query(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Query(ge=0, lt=_LAST)]


@router.get("/skipped")
def skipped(user: SignedIn, view: str = "") -> Answer:
    """The topics that have records, and the records that views skip."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = record_report.skipped_records(connection, view or None, _SKIPPED)
        topics = event_registry.newest_versions(connection)
    return Answer(skipped=found, topics=sorted(topics), may_read=may_compare(user))


@router.get("/record")
def record(topic: str, partition: Partition, offset: Offset, user: DataReader) -> Answer:
    """One record. The audit trail records who looked at it, before the answer is sent."""
    settings = Settings()
    found = read_record(settings, topic, partition, offset)
    if found is None:
        raise HTTPException(404, f"The log has no record at {topic} {partition}:{offset}, as at a transaction's end")
    with connect(settings) as connection:
        about = f"partition {partition}, offset {offset}"
        audit_trail.record_operation(connection, OperationKind.READ, topic, user, about)
    readers = record_report.record_readers(settings, Place(topic, partition, offset))
    return Answer(record=_as_text(found), readers=readers)


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


def _text_of_field(given: Any) -> Any:
    return given if isinstance(given, list) else str(given)
