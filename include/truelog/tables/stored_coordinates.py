"""Stored coordinates: the tables of a view whose rows contain the coordinates of a record."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from truelog.schema.names import COORDINATES
from truelog.tables.side_tables import side_tables
from truelog.views.group import INPUTS, Group
from truelog.views.view import View


class StoredCoordinates(NamedTuple):
    """A table by its side, the columns that identify a row to readers, and the columns with the coordinates."""

    side: str
    key: tuple[str, ...]
    columns: Mapping[str, str]  # by part: topic, partition, offset


def stored_coordinates(view: View) -> Iterator[StoredCoordinates]:
    """The coordinates in a view's tables. A `Latest` measure has those of the record that made it.

    The key of a Group's input ends with the input's own coordinates, so readers identify its group.
    """
    for side, table in {"": view, **side_tables(view)}.items():
        if isinstance(view, Group) and side == INPUTS:
            yield StoredCoordinates(side, view.by, _columns(""))
            continue
        for name, measure in table.measures.items():
            if measure.keeps_one_event:
                yield StoredCoordinates(side, table.key, _columns(f"{name}_"))


def _columns(prefix: str) -> dict[str, str]:
    return {part: f"{prefix}{part}" for part in COORDINATES}
