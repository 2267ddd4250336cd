"""Validation of single records in plain Python, for the few records that the decoder cannot parse."""

import json
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from truelog.schema.event import EventType
from truelog.schema.field import INT64_MAX, INT64_MIN, Field
from truelog.support import timestamps

_JSON_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    bool: (bool,),
    float: (int, float),
    datetime: (str,),
    list[str]: (list,),
}

# What a compacted topic keeps of a removed key until it forgets the key.
TOMBSTONE = "record: NULL, a tombstone"

# The model accepts such a record but the decoder does not, because parsers disagree about the record's values.
AMBIGUOUS_REASON = "record: a duplicate field, or a number outside the range of float"


def is_certainly_invalid(event_type: EventType, value: bytes | None) -> bool:
    """True only if Arrow's parser would certainly reject the record. Doubtful records are left to that parser."""
    if value is None:
        return True
    try:
        found = json.loads(value)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):  # Python's own limit; the record may be valid
        return False
    if not isinstance(found, dict):
        return True
    return any(not _fits(field, found.get(field.name)) for field in event_type.fields)


def _fits(field: Field, value: Any) -> bool:
    if value is None:
        return True
    if type(value) not in _JSON_TYPES[field.python_type]:
        return False
    if field.python_type is int:
        return bool(INT64_MIN <= value <= INT64_MAX)
    if field.python_type is datetime:
        return _is_instant(value)
    return field.python_type != list[str] or all(type(text) is str for text in value)


def _is_instant(text: str) -> bool:
    try:
        timestamps.parse_timestamp(text)
    except ValueError:
        return False
    return True


def invalid_reason(event_type: EventType, value: bytes | None) -> str:
    """Why a record could not be parsed, in terms of its declaration."""
    if value is None:
        return TOMBSTONE
    try:
        event_type.model.model_validate_json(value)
    except ValidationError as error:
        return ": ".join(first_invalid(error))
    return AMBIGUOUS_REASON


def first_invalid(error: ValidationError) -> tuple[str, str]:
    """The name of the invalid field (`record` for the record as a whole) and the reason, without the value."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    # A missing field alone would not have prevented the record from being parsed.
    named = next((each for each in errors if each["type"] != "missing"), errors[0])
    return ".".join(map(str, named["loc"])) or "record", named["msg"].removeprefix("Value error, ")
