"""One archived record, with its raw bytes, and its fields as its event type's version in force decodes them now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError

from truelog.archive.catalog_pointer import load_newest
from truelog.archive.reader import require_archived
from truelog.archive.schema import PLACE, RAW
from truelog.archive.table import Progress, identifier, open_catalog, stores_answer
from truelog.control import event_registry
from truelog.log.positions import Range
from truelog.schema.event import EventType
from truelog.schema.event_version import judge, versions_below
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.support.settings import Settings

_COLUMNS = (*PLACE.names, *RAW.names)


@dataclass(frozen=True)
class ArchivedRecord:
    """A record. `invalid` says why it is not a valid event; then it has no fields. An erased record has no value."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    broker_time: datetime
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    value: bytes | None
    erased: bool
    invalid: str | None
    version: int  # of the event type
    fields: Mapping[str, Any]


def read_record(settings: Settings, topic: str, partition: int, offset: int) -> ArchivedRecord | None:
    """The record at these coordinates; None if the log has no record there, as at the end of a transaction.

    Raises:
        BadInput: there is no such topic or no such partition.
        ArchiveBehind: the record is not archived yet.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        ServiceDown: the catalog or the object store does not answer.
    """
    event_type = type_of(settings, topic)
    with stores_answer():
        found, archived = _scan(settings, event_type.topic_id, Range(topic, partition, offset, offset + 1))
    if not found.num_rows:
        return None
    return _record(event_type, archived.topic_id, found)


def type_of(settings: Settings, topic: str) -> EventType:
    """The event type of a topic that a user has named.

    Raises:
        BadInput: there is no such topic.
    """
    types = event_registry.event_types(settings)
    if topic not in types:
        raise BadInput(f"there is no topic {topic!r}; the topics are {', '.join(types)}")
    return types[topic]


def _scan(settings: Settings, topic_id: str, wanted: Range) -> tuple[pa.Table, Progress]:
    with open_catalog(settings) as catalog:
        try:
            table = load_newest(catalog, identifier(wanted.topic), topic_id)
        except NoSuchTableError:
            raise ArchiveBehind(f"no record of {wanted.topic} is archived yet") from None
        archived = Progress.of(table.metadata)
        if wanted.partition not in archived.positions:
            raise BadInput(f"no record of partition {wanted.partition} of {wanted.topic} is archived yet")
        require_archived(table, wanted.topic, [wanted])
        where = f"partition = {wanted.partition} AND offset = {wanted.start}"
        return table.scan(where, selected_fields=_COLUMNS).to_arrow(), archived


def _record(event_type: EventType, topic_id: str, found: pa.Table) -> ArchivedRecord:
    row = found.slice(0, 1).to_pylist()[0]
    fields: dict[str, Any] = {}
    reason = row["invalid"]
    if not row["erased"]:
        judged = judge(event_type, _as_logged(found.slice(0, 1))).to_pylist()[0]
        reason = judged.pop("invalid")
        fields = {} if reason else judged
    place = {row["partition"]: row["offset"] + 1}
    return ArchivedRecord(
        topic=event_type.name,
        topic_id=topic_id,
        partition=row["partition"],
        offset=row["offset"],
        broker_time=row["broker_time"],
        key=row["key"],
        headers=[(each["key"], each["value"]) for each in row["headers"] or ()],
        value=row["value"],
        erased=row["erased"],
        invalid=reason,
        version=max(versions_below(event_type, place).versions, default=event_type.version),
        fields=fields,
    )


def _as_logged(found: pa.Table) -> pa.RecordBatch:
    """The record with the types that decoding expects, which pyiceberg's reader may widen."""
    types = {"partition": pa.int32(), "offset": pa.int64(), "value": pa.binary()} | {
        "broker_time": PLACE.field("broker_time").type
    }
    return pa.RecordBatch.from_pydict({name: found[name].combine_chunks().cast(type_) for name, type_ in types.items()})
