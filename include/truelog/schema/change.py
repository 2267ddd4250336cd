"""Changes of a captured table: the event type's base class, and the decoder of Debezium's records.

A file in `include/events/` whose topic has a `source` captures a table of a PostgreSQL database. Debezium writes each
change of a row as an envelope: the row before and after, and where the change is in the database's log. The decoder
turns an envelope into a flat event and judges it as any other event. What it cannot represent exactly is invalid.

- `source_place` puts all changes of a table into one order: first the epoch, then the snapshot before the changes after
  it, then the commits, then the place within a commit. Debezium sends records again after a crash, with the same
  places. The log position alone does not give that order, because transactions interleave.
- The end of a snapshot is a record of its own, under a key of its own: a message that the query of the snapshot writes
  to the database's log. It exists for an empty table too, and compaction keeps it.
- A column that the record lacks was dropped or renamed. The record is invalid, because NULL would be a wrong value.
- For an inner array of an array, Debezium writes the name of a Java object. The record is invalid.
- A deletion has only the key of its row, because an invalid value must not keep a row that is gone.
- A tombstone is not an event. It lets Kafka remove a key, and the deletion before it has said the same with its place.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
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
from truelog.schema.event import CHANGES, LENIENT_CHANGES, NESTED_CHANGES, NO_LIMIT, Event, EventType, Topic
from truelog.schema.field import Field
from truelog.schema.quality import Quality
from truelog.schema.record_validation import TOMBSTONE
from truelog.support import timestamps
from truelog.support.errors import BadDeclaration

OPERATIONS = {"r": "read", "c": "inserted", "u": "updated", "d": "deleted", "t": "truncated", "m": "heartbeat"}
ENDED = "ended"  # the operation of the end of a snapshot
SNAPSHOT_END = "truelog_snapshot_"  # and the event type: the prefix of the message at the end of a snapshot
_OF_ROWS = frozenset("rcud")

_UNCHANGED = "__debezium_unavailable_value"  # in place of a long value that the database did not log
_UNCHANGED_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # the same in base64, for bytea
_INNER_ARRAY = re.compile(r"\[+L[\w.$]+;@[0-9a-f]+")  # in place of an array that is an element of an array
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}Z")
_TABLE = re.compile(r"[a-z_][a-z0-9_]*\.[a-z_][a-z0-9_]*")
_LAST = frozenset({"last", "last_in_data_collection"})
_EPOCH = re.compile(r"(\d+)$")


class Change(Event):
    """What every change of a captured table says. Each event type adds the columns of its table."""

    source_operation: str = Declared(
        examples=[*OPERATIONS.values()], description=f"What happened: {', '.join([*OPERATIONS.values(), ENDED])}."
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


class _Message(msgspec.Struct):
    prefix: str
    content: bytes = b""  # base64 in the record


class _Envelope(msgspec.Struct):
    op: str
    source: _Source
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    message: _Message | None = None


class SnapshotEnd(msgspec.Struct):
    """The content of the message at the end of a snapshot.

    `began` is a place in the log before the snapshot, and after the rows of an interrupted attempt of the same epoch.
    """

    epoch: int
    began: int = 0


class _Invalid(Exception):
    """The record is not an event that the declaration describes."""


_READER = msgspec.json.Decoder(_Envelope)
_END = msgspec.json.Decoder(SnapshotEnd)
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
        end = _end_of_snapshot(event_type, envelope)
        place = _place(envelope) if end is None else _place_of(end.epoch, 0, 0, end.began)
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
            "source_operation": OPERATIONS[envelope.op] if end is None else ENDED,
            "source_place": place,
            "source_lsn": envelope.source.lsn,
            "source_transaction": envelope.source.transaction,
            "source_closes": end is not None or _closes(envelope),
        }
    )


def _instant(microseconds: int) -> str:
    try:
        return timestamps.to_text(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds))
    except OverflowError as error:
        raise _Invalid("record: outside the years 1 to 9999") from error


def _closes(envelope: _Envelope) -> bool:
    """Whether a change of rows closes earlier rows. Before there were ends, the last row of a snapshot did."""
    return envelope.op == "t" or (envelope.op == "r" and envelope.source.snapshot in _LAST)


def _end_of_snapshot(event_type: EventType, envelope: _Envelope) -> SnapshotEnd | None:
    """The end of a snapshot of this table and epoch, if the record is one.

    Each slot has the messages of all tables, and of all environments that capture the database. Debezium's name of the
    source begins with the namespace of the connector's environment.
    """
    message, (namespace, dot, _) = envelope.message, envelope.source.name.rpartition(".")
    if message is None or event_type.decoder == LENIENT_CHANGES:
        return None
    if message.prefix != f"{SNAPSHOT_END}{namespace}{dot}{event_type.name}":
        return None
    end = _END.decode(message.content)
    return end if end.epoch == _epoch(envelope) else None


def _epoch(envelope: _Envelope) -> int:
    found = _EPOCH.search(envelope.source.name)
    return int(found[1]) if found else 0


def epoch_of(value: bytes | None) -> int:
    """The epoch of a record; 0 if the record is not a change."""
    try:
        return _epoch(_READER.decode(value or b""))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def _place(envelope: _Envelope) -> str:
    """The place of a change as text that sorts in the order of the changes."""
    before = _SEQUENCE.decode(envelope.source.sequence)[0] if envelope.source.sequence else None
    try:
        commit = int(before or 0)
    except ValueError as error:
        raise _Invalid("record: not a change that Debezium has written") from error
    return _place_of(_epoch(envelope), 0 if envelope.op == "r" else 1, commit, envelope.source.lsn)


def _place_of(epoch: int, stage: int, commit: int, lsn: int) -> str:
    return f"{epoch:06d}-{stage}-{commit:016X}-{lsn:016X}"


def _row(event_type: EventType, envelope: _Envelope) -> dict[str, Any]:
    """The declared columns of the changed row; none if the record is about the whole table."""
    if envelope.op not in _OF_ROWS:
        return {}
    found = (envelope.before if envelope.op == "d" else envelope.after) or {}
    before = envelope.before or {}
    declared = [each for each in event_type.fields if each.name not in Change.model_fields]
    if event_type.decoder > LENIENT_CHANGES:
        if envelope.op == "d":  # whatever its other values were, the row is gone
            declared = [each for each in declared if each.name == event_type.topic.key]
        else:
            _require_columns(event_type, declared, found)
    row = {each.name: _column(each, found[each.name], before.get(each.name)) for each in declared if each.name in found}
    if event_type.decoder > NESTED_CHANGES:
        _require_flat(row)
    return row


def _require_flat(row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        if isinstance(value, list) and any(isinstance(each, str) and _INNER_ARRAY.fullmatch(each) for each in value):
            raise _Invalid(f"{name}: an array with several dimensions, whose values Debezium does not write")


def _require_columns(event_type: EventType, declared: Iterable[Field], row: Mapping[str, Any]) -> None:
    for each in declared:
        if each.name not in row:
            raise _Invalid(f"{each.name}: {event_type.topic.source} has no such column; it was dropped or renamed")


def row_and_place(event_type: EventType, value: bytes) -> tuple[str, str]:
    """The key of the row that an invalid record changes, and the place of the change. Empty if the record has none."""
    try:
        envelope = _READER.decode(value)
        row = (envelope.before if envelope.op == "d" else envelope.after) or {}
        key = next(each for each in event_type.fields if each.name == event_type.topic.key)
        value = _column(key, row.get(key.name), None)
        if key.python_type is datetime and isinstance(value, str):
            with suppress(ValueError):  # a key that is itself invalid stays as it is
                value = timestamps.parse_timestamp(value)
        return key_text(value), _place(envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, _Invalid):
        return "", ""


def key_text(key: Any) -> str:
    """The key of a row as a text; empty for NULL."""
    if isinstance(key, datetime):
        return timestamps.to_text(key)
    return "" if key is None else str(key)


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
    # The database's clock may be wrong, and a row of a table counts whatever its clock says.
    event_type = EventType(name, model, internal, quality, derived, future_limit=NO_LIMIT, decoder=CHANGES)
    for field in event_type.fields:
        if field.required and field.name not in Change.model_fields:
            raise BadDeclaration(
                f"{name}.{field.name}: a heartbeat and a truncation have no row, so declare `| None = None`."
            )
    return event_type


def _is_unchanged(value: Any) -> bool:
    return value in (_UNCHANGED, _UNCHANGED_BYTES) or value == [_UNCHANGED]
