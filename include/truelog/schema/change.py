"""Changes of a captured table: the event type's base class, and the decoder of Debezium's records.

A file in `include/events/` whose topic has a `source` captures a table of a PostgreSQL database. Debezium writes each
change of a row as an envelope: the row before and after, and where the change is in the database's log. The decoder
turns an envelope into a flat event and judges it as any other event. What it cannot represent exactly is invalid.

- `source_place` puts all changes of a table into one order: first the epoch, then the snapshot before the changes after
  it, then the commits, then the place within a commit. Debezium sends records again after a crash, with the same
  places. The log position alone does not give that order, because transactions interleave.
- A tombstone is not an event. It lets Kafka remove a key, and the deletion before it has said the same with its place.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2s
from inspect import get_annotations
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field as Declared

from truelog.schema.decode import decode
from truelog.schema.derived import Derivation
from truelog.schema.event import CHANGES, Event, EventType, Topic
from truelog.schema.field import Field
from truelog.schema.quality import Quality
from truelog.schema.record_validation import TOMBSTONE
from truelog.support import timestamps
from truelog.support.errors import BadDeclaration

OPERATIONS = {"r": "read", "c": "inserted", "u": "updated", "d": "deleted", "t": "truncated", "m": "heartbeat"}
_OF_ROWS = frozenset("rcud")

# The database's clock may be wrong, and a row of a table counts whatever its clock says.
NO_LIMIT = timedelta(days=3_650_000)

_UNCHANGED = "__debezium_unavailable_value"  # in place of a long value that the database did not log
_UNCHANGED_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # the same in base64, for bytea
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}Z")
_TABLE = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
_LAST = frozenset({"last", "last_in_data_collection"})
_EPOCH = re.compile(r"(\d+)$")


class Change(Event):
    """What every change of a captured table says. Each event type adds the columns of its table."""

    source_operation: str = Declared(
        examples=[*OPERATIONS.values()], description=f"What happened: {', '.join(OPERATIONS.values())}."
    )
    source_place: str = Declared(description="Where the change is in the order of all changes of the table.")
    source_lsn: int = Declared(ge=0, description="Where the change is in the database's log.")
    source_transaction: int | None = Declared(default=None, description="The transaction's id in the database.")
    source_closes: bool = Declared(
        description="Whether every row with an earlier place is gone: a truncation, or the end of a snapshot."
    )


OWN_FIELDS = tuple(name for name in Change.model_fields if name not in Event.model_fields)


class _Source(msgspec.Struct):
    name: str  # <event type>-<epoch>
    lsn: int
    ts_us: int
    sequence: str | None = None  # [the commit before the change's own, the change], as JSON text
    transaction: int | None = msgspec.field(default=None, name="txId")
    snapshot: str = "false"


class _Envelope(msgspec.Struct):
    op: str
    source: _Source
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class _Invalid(Exception):
    """The record is not an event that the declaration describes."""


_READER = msgspec.json.Decoder(_Envelope)
_SEQUENCE = msgspec.json.Decoder(tuple[str | None, str])
_WRITER = msgspec.json.Encoder()


def decode_changes(
    event_type: EventType, values: pa.Array, broker_times: pa.Array, future_limit: timedelta, columns: Any = None
) -> pa.RecordBatch:
    """Decode Debezium's records, as `decode` decodes flat events."""
    flat: list[bytes | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        try:
            flat.append(_flat_event(event_type, value))
            reasons.append(None)
        except _Invalid as invalid:
            flat.append(None)
            reasons.append(str(invalid))
    decoded = decode(event_type, pa.array(flat, pa.binary()), broker_times, future_limit, columns)
    at = decoded.schema.get_field_index("invalid")
    return decoded.set_column(at, "invalid", pc.coalesce(pa.array(reasons, pa.string()), decoded["invalid"]))


def _flat_event(event_type: EventType, value: bytes | None) -> bytes:
    """The event in the form of all other events, with the declared columns only."""
    if value is None:
        raise _Invalid(TOMBSTONE)
    try:
        envelope = _READER.decode(value)
        place = _place(envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Invalid("record: not a change that Debezium has written") from error
    if envelope.op not in OPERATIONS:
        raise _Invalid("record: an operation that this release does not know")
    row = _row(event_type, envelope)
    return _WRITER.encode(
        row
        | {
            "event_id": f"{place}-{envelope.op}-{blake2s(_WRITER.encode(row), digest_size=8).hexdigest()}",
            "occurred_at": _instant(envelope.source.ts_us),
            "source_operation": OPERATIONS[envelope.op],
            "source_place": place,
            "source_lsn": envelope.source.lsn,
            "source_transaction": envelope.source.transaction,
            "source_closes": envelope.op == "t" or (envelope.op == "r" and envelope.source.snapshot in _LAST),
        }
    )


def _instant(microseconds: int) -> str:
    try:
        return timestamps.to_text(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds))
    except OverflowError as error:
        raise _Invalid("record: outside the years 1 to 9999") from error


def _place(envelope: _Envelope) -> str:
    """The place of a change as text that sorts in the order of the changes."""
    epoch = _EPOCH.search(envelope.source.name)
    before = _SEQUENCE.decode(envelope.source.sequence)[0] if envelope.source.sequence else None
    stage = 0 if envelope.op == "r" else 1
    try:
        commit = int(before or 0)
    except ValueError as error:
        raise _Invalid("record: not a change that Debezium has written") from error
    return f"{int(epoch[1]) if epoch else 0:06d}-{stage}-{commit:016X}-{envelope.source.lsn:016X}"


def _row(event_type: EventType, envelope: _Envelope) -> dict[str, Any]:
    """The declared columns of the changed row; none if the record is about the whole table."""
    if envelope.op not in _OF_ROWS:
        return {}
    found = (envelope.before if envelope.op == "d" else envelope.after) or {}
    before = envelope.before or {}
    fields = [each for each in event_type.fields if each.name in found and each.name not in Change.model_fields]
    return {each.name: _column(each, found[each.name], before.get(each.name)) for each in fields}


def _column(field: Field, value: Any, before: Any) -> Any:
    """The value of a column, in the form in which events have it."""
    if _is_unchanged(value):
        value = before
        if value is None or _is_unchanged(value):
            raise _Invalid(
                f"{field.name}: the database did not log this long value, because it is unchanged; "
                "run ALTER TABLE … REPLICA IDENTITY FULL"
            )
    if field.python_type is datetime and isinstance(value, str) and _DATE.fullmatch(value):
        return f"{value[:-1]}T00:00:00Z"
    return value


def captured(
    name: str, model: type[Event], topic: Topic, quality: Quality, derived: tuple[Derivation, ...]
) -> EventType:
    """The event type of a captured table.

    Raises:
        BadDeclaration: the declaration and a captured table do not fit together.
    """
    if not issubclass(model, Change):
        raise BadDeclaration(
            f"{name}: the events of a captured table derive from Change: class {model.__name__}(Change)."
        )
    if taken := sorted({*OWN_FIELDS} & get_annotations(model).keys()):
        raise BadDeclaration(f"{name}.{taken[0]}: every change has a field of this name; leave the column out.")
    if not _TABLE.fullmatch(topic.source or ""):
        raise BadDeclaration(f"{name}: write the source as schema and table, such as 'public.customers'.")
    if topic.key is None or not topic.compacted or topic.partitions != 1:
        raise BadDeclaration(
            f"{name}: the topic of a captured table needs its primary key as `key`, `compacted=True`, and "
            "`partitions=1`, because one partition has the order of the database's log."
        )
    internal = replace(topic, internal=True)
    event_type = EventType(name, model, internal, quality, derived, future_limit=NO_LIMIT, decoder=CHANGES)
    for field in event_type.fields:
        if field.required and field.name not in Change.model_fields:
            raise BadDeclaration(
                f"{name}.{field.name}: a heartbeat and a truncation have no row, so declare `| None = None`."
            )
    return event_type


def _is_unchanged(value: Any) -> bool:
    return value in (_UNCHANGED, _UNCHANGED_BYTES) or value == [_UNCHANGED]
