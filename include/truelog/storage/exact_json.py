"""JSON whose numbers keep all their digits. A float has about 16 of them, and a decimal of a view may have more."""

import json
from typing import Any, Self

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=str)


class Number(float):
    """A number with the digits that the JSON text has."""

    digits: str

    def __new__(cls, digits: str) -> Self:
        number = super().__new__(cls, digits)
        number.digits = digits
        return number

    def __repr__(self) -> str:
        return self.digits

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        return (self.digits,)


def read(text: str | bytes) -> Any:
    """The value of a JSON text. NaN and infinities, which some writers put into JSON, become text."""
    return json.loads(text, parse_float=Number, parse_constant=str)


def write(value: Any) -> str:
    """A value as one line of JSON. What JSON does not know becomes text."""
    if isinstance(value, Number):
        return value.digits
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{write(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(write, value)) + "]"
    return _ENCODER.encode(value)


def text(value: Any) -> str:
    """A value as people read it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else write(value)


def _key(key: object) -> str:
    return _ENCODER.encode(key if isinstance(key, str) else _ENCODER.encode(key))
