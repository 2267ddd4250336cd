"""The tables that a version of a view owns, for work that does not load the view's file."""

from truelog.storage.database import Connection
from truelog.views.catalogue import table_name


def _side_names(connection: Connection, view: str, version: int) -> list[str]:
    """The names of the version's side tables."""
    rows = connection.execute(
        "SELECT unnest(sides) FROM truelog.view WHERE (view, version) = (%s, %s)", (view, version)
    ).fetchall()
    return [str(side) for (side,) in rows]


def diff_tables(connection: Connection, view: str, version: int) -> dict[str, str]:
    """The names of the version's tables of differences, by the name of the side table; "" for the view's own."""
    return {side: f"{table_name(view, version, side)}_diff" for side in ("", *_side_names(connection, view, version))}


def tables_of(connection: Connection, view: str, version: int) -> list[str]:
    """The names of the version's table and of its side tables, as they are in PostgreSQL."""
    return [table_name(view, version, side) for side in ("", *_side_names(connection, view, version))]
