"""What the files of event types say to people, and the columns that readers see of a view."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truelog.schema.loading.events import load_proposals
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_TIME, _WHOLE, _NUMBER = "timestamp with time zone", "integer", "number"
_KINDS = {
    "smallint": _WHOLE,
    "integer": _WHOLE,
    "bigint": _WHOLE,
    "numeric": _NUMBER,
    "real": _NUMBER,
    "double precision": _NUMBER,
    "boolean": "boolean",
    "text": "string",
    "character varying": "string",
}
_FORMATS = {_TIME: "date-time", "date": "date"}
_LOGICAL = {_TIME: "timestamp", "date": "date", "json": "object", "jsonb": "object"}
_MODIFIER = re.compile(r"\([0-9,]+\)")
_ARRAY = "[]"


@dataclass(frozen=True)
class Description:
    """About an event type, and about each of its fields that has a description."""

    about: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


def descriptions(settings: Settings) -> dict[str, Description]:
    """What the files of the event types say, by event type. The registry does not keep it."""
    types, _ = load_proposals(settings.events_folder)
    return {
        name: Description(
            (each.model.__doc__ or "").strip(),
            {column.name: column.description for column in each.fields if column.description},
        )
        for name, each in types.items()
    }


@dataclass(frozen=True)
class Column:
    """A column of a relation: its name, its type in PostgreSQL, and its meaning."""

    name: str
    kind: str
    about: str

    @property
    def json_schema(self) -> dict[str, Any]:
        """How a record of an output topic contains the column."""
        said = {"description": self.about} if self.about else {}
        return _json_type(self._plain) | said

    @property
    def logical_type(self) -> str:
        """The type in the words of ODCS, which calls each type a string that it has no word for."""
        if self._plain.endswith(_ARRAY):
            return "array"
        return _LOGICAL.get(self._plain) or _KINDS.get(self._plain, "string")

    @property
    def _plain(self) -> str:
        return _MODIFIER.sub("", self.kind)


def columns_of(connection: Connection, relation: str) -> list[Column]:
    """What readers see of a relation. Empty if it does not exist yet."""
    found = db_snapshot.view_columns(connection, relation)
    return [Column(str(each["name"]), str(each["type"]), each["comment"] or "") for each in found]


def _json_type(kind: str) -> dict[str, Any]:
    """A value may be NULL. Numbers without a value in JSON, such as NaN, are texts."""
    if kind.endswith(_ARRAY):
        return {"type": ["array", "null"], "items": _json_type(kind.removesuffix(_ARRAY))}
    if kind in _FORMATS:
        return {"type": ["string", "null"], "format": _FORMATS[kind]}
    if kind not in _KINDS:
        return {}
    return {"type": [_KINDS[kind], "null"]} if _KINDS[kind] != _NUMBER else {"type": [_NUMBER, "string", "null"]}
