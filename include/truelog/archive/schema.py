"""The columns of the archive's tables, for Spark tasks too, which need neither a catalog nor its libraries."""

import pyarrow as pa

from truelog.log.range_reader import HEADERS
from truelog.schema.event import EventType

TIME = pa.timestamp("us", tz="UTC")
PLACE = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("broker_time", TIME, nullable=False),
    ]
)
RAW = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("value", pa.binary()),
        pa.field("erased", pa.bool_(), nullable=False),
        pa.field("invalid", pa.string()),
    ]
)
LOG_DAY = pa.field("log_day", TIME, nullable=False)  # when the record's log day begins


_TAKEN = frozenset({*RAW.names, LOG_DAY.name})


def column_of(field: str) -> str:
    """The archive's column of an event's field.

    A field with the name of one of the archive's own columns, such as `value`, is in the column `_value`. The name of
    a field begins with a letter, so no field has this name.
    """
    return f"_{field}" if field in _TAKEN else field


def arrow_schema(event_type: EventType) -> pa.Schema:
    """All columns of an archive table, in order; a column that any version declares exists once."""
    fields = [field.with_name(column_of(field.name)) for field in event_type.stored_schema]
    return pa.schema([*PLACE, *RAW, *fields, LOG_DAY])
