"""A schema is kept only if no value of it can exhaust the process that reads it."""

import json
from typing import Any

import pytest

from truelog.schema.frames.avro_schema import require_readable
from truelog.support.errors import BadDeclaration


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]}


def error(*types: Any, name: str = "E") -> dict[str, Any]:
    """An error of a protocol, which fastavro reads as a record."""
    return record(*types, name=name) | {"type": "error"}


def nested(levels: int) -> dict[str, Any]:
    found = record("int", name="R0")
    for number in range(1, levels):
        found = record(found, name=f"R{number}")
    return found


def doubled(levels: int) -> dict[str, Any]:
    """Each type has the one before it twice: a walk through all of them would not end."""
    found: Any = record("int", name="R0")
    for number in range(1, levels):
        found = record(found, f"R{number - 1}", name=f"R{number}")
    return dict(found)


DECIMAL = {"type": "bytes", "logicalType": "decimal"}
KEEPABLE: dict[str, Any] = {
    "scalars": record("int", "string", "bytes", "boolean", "double"),
    "unions": record(["null", "string"], ["null", {"type": "array", "items": "long"}]),
    "a type that is used twice": record({"type": "fixed", "name": "F", "size": 16}, "F", ["null", "F"]),
    "names of a namespace": record(record("int", name="a.b.X"), "a.b.X"),
    "decimals": record({**DECIMAL, "precision": 9, "scale": 2}),
    "unknown logical types": record({"type": "string", "logicalType": "colour"}),
    "an error with fields": record(error("int")),
    "many levels": nested(30),
    "many uses": doubled(30),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "no record": ("string", "describes another type"),
    "union": (["null", record("int")], "describes another type"),
    "recursive": (record(["null", "R"]), "the type R contains itself"),
    "recursive through others": (record(record(["null", "R"], name="S")), "the type R contains itself"),
    "recursive through an error": (record(error(["null", "E"])), "the type E contains itself"),
    "a named type as an object": (record(["null", {"type": "R"}]), "not a valid Avro schema"),
    "recursive in a list": (record({"type": "array", "items": "R"}), "the type R contains itself"),
    "array of nulls": (record({"type": "array", "items": "null"}), "null outside a union"),
    "map of nulls": (record({"type": "map", "values": {"type": "null"}}), "null outside a union"),
    "array of nothing": (record({"type": "array", "items": record(name="E")}), "a record without fields"),
    "array of errors of nothing": (record({"type": "array", "items": error()}), "a record without fields"),
    "an error as the event": (error("int"), "describes another type"),
    "array of fixed 0": (record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), "of size 0"),
    "too many levels": (nested(40), "more than 32 levels"),
    "decimal without digits": (record(DECIMAL), "not a valid Avro schema|a decimal without a precision"),
    "decimal with too many digits": (record({**DECIMAL, "precision": 10**9, "scale": 10**9}), "without a precision"),
    "decimal with a wrong scale": (record({**DECIMAL, "precision": 2, "scale": 3}), "not a valid|whose scale"),
    "unknown type": (record("colour"), "not a valid Avro schema"),
    "no name": ({"type": "record", "fields": []}, "not a valid Avro schema"),
    "number": (5, "not a valid Avro schema"),
    "null": (None, "not a valid Avro schema"),
}


@pytest.mark.parametrize("name", KEEPABLE)
def test_a_schema_can_be_kept(name: str) -> None:
    require_readable(json.dumps(KEEPABLE[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_is_refused(name: str) -> None:
    schema, reason = REFUSED[name]
    with pytest.raises(BadDeclaration, match=reason):
        require_readable(json.dumps(schema))


@pytest.mark.parametrize("text", ["", "{", '{"type": "record"', "[" * 90_000])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(BadDeclaration):
        require_readable(text)
