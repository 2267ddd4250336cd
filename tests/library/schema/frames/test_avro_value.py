"""What an Avro value is in JSON: the table of `truelog.schema.frames.avro_value`."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.library.schema.frames.frames import written
from truelog.schema.frames.avro_value import NoJson, as_json, read

MOMENT = datetime(2026, 11, 28, 10, 0, 0, 123000, tzinfo=UTC)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
KEY = UUID("12345678-1234-5678-1234-567812345678")


def of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "string": ("string", "é\0", "é\0"),
    "long": ("long", 2**63 - 1, 2**63 - 1),
    "double": ("double", -0.0, -0.0),
    "float": ("float", 0.5, 0.5),
    "boolean": ("boolean", True, True),
    "enum": ({"type": "enum", "name": "E", "symbols": ["OPEN", "SHUT"]}, "SHUT", "SHUT"),
    "null of a union": (["null", "string"], None, None),
    "branch of a union": (["null", "string", "long"], 5, 5),
    "timestamp-millis": (logical("long", "timestamp-millis"), MOMENT, "2026-11-28T10:00:00.123000Z"),
    "timestamp-micros": (logical("long", "timestamp-micros"), MOMENT, "2026-11-28T10:00:00.123000Z"),
    "timestamp before 1970": (
        logical("long", "timestamp-millis"),
        datetime(1900, 1, 1, tzinfo=UTC),
        "1900-01-01T00:00:00Z",
    ),
    "local timestamp": (logical("long", "local-timestamp-millis"), datetime(2026, 1, 2, 3), "2026-01-02T03:00:00"),
    "date": (logical("int", "date"), date(2026, 2, 28), "2026-02-28"),
    "time": (logical("int", "time-millis"), time(23, 59, 59), "23:59:59"),
    "decimal": (DECIMAL, Decimal("-12.50"), "-12.50"),
    "small decimal": (DECIMAL | {"precision": 12, "scale": 12}, Decimal("1E-12"), "0.000000000001"),
    "zero decimal": (DECIMAL, Decimal(0), "0.00"),
    "uuid": (logical("string", "uuid"), KEY, str(KEY)),
    "array": ({"type": "array", "items": logical("int", "date")}, [date(2026, 1, 1)], ["2026-01-01"]),
    "map": ({"type": "map", "values": "long"}, {"x": 1}, {"x": 1}),
    "record": (of("long") | {"name": "S"}, {"a": 1}, {"a": 1}),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_becomes_json(name: str) -> None:
    kind, value, expected = VALUES[name]
    found = read(json.dumps(of(kind)), written(of(kind), {"a": value}))
    assert found is not None
    assert as_json(found["a"]) == expected
    assert type(as_json(found["a"])) is type(expected)


@pytest.mark.parametrize("value", [b"", b"x", float("nan"), float("inf"), [b"x"], {"a": [float("nan")]}])
def test_json_cannot_carry_a_value(value: Any) -> None:
    with pytest.raises(NoJson):
        as_json(value)


def test_a_decimal_with_more_digits_than_declared_is_not_rounded() -> None:
    """fastavro's own reader would round it to 4 digits."""
    wide = written(of({**DECIMAL, "precision": 9}), {"a": Decimal("1234567.89")})
    assert read(json.dumps(of({**DECIMAL, "precision": 9})), wide) == {"a": Decimal("1234567.89")}
    assert read(json.dumps(of({**DECIMAL, "precision": 4})), wide) is None
    assert read(json.dumps(of(DECIMAL)), b"\x80\x10" + b"\x7f" * 1024) is None
