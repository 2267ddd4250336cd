"""Refusal: records that are no such event, one by one in plain Python, for the few that the decoder cannot read."""

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


# The model takes such a record, the decoder does not: readers would differ on what it says.
AMBIGUOUS_REASON = "record: gives a field twice, or a number beyond every float"


def is_certain(event_type: EventType, value: bytes | None) -> bool:
    """True only for a record that Arrow's parser refuses for certain; what is doubtful is left to that parser."""
    if value is None:
        return True
    try:
        found = json.loads(value)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):  # a limit of Python's, not a fault of the record
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
    """What is wrong with a record that could not be read, in the words of its own declaration."""
    if value is None:
        return "record: NULL, a tombstone"
    try:
        event_type.model.model_validate_json(value)
    except ValidationError as error:
        return ": ".join(first_invalid(error))
    return AMBIGUOUS_REASON


def first_invalid(error: ValidationError) -> tuple[str, str]:
    """The field to name, `record` for the whole, and what is wrong with it; never its value."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)
    # A missing field alone would not have made the record unreadable.
    named = next((each for each in errors if each["type"] != "missing"), errors[0])
    return ".".join(map(str, named["loc"])) or "record", named["msg"].removeprefix("Value error, ")
