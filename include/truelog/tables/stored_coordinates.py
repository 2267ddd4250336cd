"""Stored coordinates: the tables of a view whose rows contain the coordinates of a record."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truelog.schema.names import COORDINATES
from truelog.tables import kinds
from truelog.tables.side_tables import side_tables
from truelog.views.view import View


class StoredCoordinates(NamedTuple):
    """A table by its side, the columns that identify a row to readers, and the columns with the coordinates."""

    side: str
    key: tuple[str, ...]
    columns: Mapping[str, str]  # by part: topic, partition, offset


def stored_coordinates(view: View) -> Iterator[StoredCoordinates]:
    """The coordinates in a view's tables. A `Latest` measure has those of the record that made it."""
    tables = {"": view, **side_tables(view)}
    for side, key in kinds.declared_kind(view).rows_of_records(view).items():
        yield StoredCoordinates(side, key, _columns(""))
        del tables[side]
    for side, table in tables.items():
        for name, measure in table.measures.items():
            if measure.keeps_one_event:
                yield StoredCoordinates(side, table.key, _columns(f"{name}_"))


def _columns(prefix: str) -> dict[str, str]:
    return {part: f"{prefix}{part}" for part in COORDINATES}
