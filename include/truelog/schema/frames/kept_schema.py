"""Kept schemas: the schemas of a registry that an event type's declaration contains.

A registry never gives a number to another schema. A kept schema is part of a version of the event type, so a record
keeps its meaning when the registry is gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

AVRO, JSON = "AVRO", "JSON"  # as the registry names them


@dataclass(frozen=True, order=True)
class KeptSchema:
    """A schema: its number in the registry, its kind (AVRO or JSON), and its text as the registry gave it."""

    id: int
    kind: str
    text: str


def as_data(schemas: Iterable[KeptSchema]) -> list[dict[str, Any]]:
    """The schemas as JSON data, by number. `from_data` reads them."""
    return [{"id": each.id, "kind": each.kind, "schema": each.text} for each in sorted(schemas)]


def from_data(values: Iterable[Mapping[str, Any]]) -> tuple[KeptSchema, ...]:
    return tuple(_schema(each["id"], each["kind"], each["schema"]) for each in values)


@lru_cache(maxsize=4_096)
def _schema(number: int, kind: str, text: str) -> KeptSchema:
    """One object for all versions of an event type, so that their copies for other processes have the text once."""
    return KeptSchema(number, kind, text)


def united(*several: Iterable[KeptSchema]) -> tuple[KeptSchema, ...]:
    """All of these schemas, by number."""
    return tuple(sorted({each for schemas in several for each in schemas}))
