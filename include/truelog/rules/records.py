"""The records of rules or searches that a view has counted."""

from datetime import UTC, datetime, timedelta

from psycopg import sql

from truelog.patterns.versions import Change
from truelog.storage.database import Connection, names
from truelog.support.errors import NotMade
from truelog.views import catalogue
from truelog.views.judged import Judged

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_changes(connection: Connection, name: str, view: Judged) -> list[Change]:
    """All records that the view has counted.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    table, declared = table_of(name, view, view.rules_side), view.rules_table()
    if not connection.execute("SELECT to_regclass(%s)", (table.as_string(None),)).fetchall()[0][0]:
        raise NotMade(f"no application has created version {view.version} of {name} yet: see `truelog status`")
    columns = names((*declared.key, *declared.measures))
    found = connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, table)).fetchall()
    return [Change(*row) for row in found]


def table_of(name: str, view: Judged, side: str = "") -> sql.Identifier:
    """The table of the stream, or a side table."""
    return sql.Identifier("state", catalogue.table_name(name, view.version, side))


def time_of(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
