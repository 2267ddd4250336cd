"""Events of commands: their bytes in the log, and what a fold reads of an event."""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from truelog.commands.declaration import NewEvent, Payload
from truelog.schema.event import Event, EventType, EventTypes
from truelog.schema.event_version import judge
from truelog.schema.record_validation import first_invalid
from truelog.support import timestamps
from truelog.support.errors import BadDeclaration

_PLACE = {"partition": pa.int32(), "offset": pa.int64(), "broker_time": pa.timestamp("us", "UTC"), "value": pa.binary()}


@dataclass(frozen=True)
class LogEvent:
    """An event of a decision, as it will be in the log."""

    event_id: str
    event: str
    key: str
    value: bytes


@dataclass(frozen=True)
class LoggedEvent:
    """A valid event of the log: its key, its id, and what a fold reads of it."""

    key: str
    event_id: str
    payload: Payload


def to_log(types: EventTypes, new: NewEvent, now: datetime) -> LogEvent:
    """The event with its envelope. It is valid for its type.

    Raises:
        BadDeclaration: the command's decision made an event that is not valid for its type.
    """
    event_type = types.get(new.event)
    if event_type is None or event_type.topic.key is None:
        raise BadDeclaration(f"{new.event} is not an event type with a key")
    event_id = str(uuid.uuid4())
    try:
        model = event_type.model.model_validate(
            {"event_id": event_id, "occurred_at": now, "received_at": now, **new.payload}
        )
    except ValidationError as error:
        raise BadDeclaration(f"{new.event}: {': '.join(first_invalid(error))}") from None
    value = {"type": new.event, **json.loads(model.model_dump_json(exclude_none=True))}
    return LogEvent(event_id, new.event, getattr(model, event_type.topic.key), json.dumps(value).encode())


def payloads(types: EventTypes, events: Sequence[LogEvent]) -> list[Payload]:
    """What folds read of events that are not in the log yet. The newest version of their type judges them.

    They have no broker time yet, so no clock but that of their decision judges them.
    """
    found: dict[str, Payload] = {}
    for name in {each.event for each in events}:
        of_type = [each for each in events if each.event == name]
        newest = types[name]
        if newest.past:  # a copy loses the cached properties, which take long for one event
            newest = replace(newest, past=())
        rows = [(0, number, None, each.value) for number, each in enumerate(of_type)]
        for each, judged in zip(of_type, _judged(newest, rows), strict=True):
            found[each.event_id] = {} if judged is None else judged.payload
    return [found[each.event_id] for each in events]


def logged(
    event_type: EventType, records: Iterable[tuple[int, int, datetime, bytes | None]]
) -> list[LoggedEvent | None]:
    """The events of records (partition, offset, broker time, value). None for a record that is not a valid event.

    The version that was in force at its offset judges a record, as in every view.
    """
    return _judged(event_type, list(records))


def _judged(event_type: EventType, rows: Sequence[tuple[Any, ...]]) -> list[LoggedEvent | None]:
    columns = list(zip(*rows, strict=True)) or [()] * len(_PLACE)
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, _PLACE.values(), strict=True)]
    names = [field.name for field in event_type.fields if field.name not in Event.model_fields]
    wanted = {"event_id", str(event_type.topic.key), *names}  # the columns that no fold reads take time, too
    judged = judge(event_type, pa.RecordBatch.from_arrays(arrays, list(_PLACE)), wanted)
    return [_logged(event_type, names, row) for row in judged.to_pylist()]


def _logged(event_type: EventType, names: Sequence[str], row: Mapping[str, Any]) -> LoggedEvent | None:
    key = event_type.topic.key
    if row["invalid"] is not None or key is None or row[key] is None:
        return None
    return LoggedEvent(row[key], row["event_id"], {name: _as_json(row[name]) for name in names})


def _as_json(value: Any) -> Any:
    return timestamps.to_text(value) if isinstance(value, datetime) else value
