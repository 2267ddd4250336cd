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
    table, declared = table_of(connection, name, view.rules_side), view.rules_table()
    columns = names((*declared.key, *declared.measures))
    found = connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, table)).fetchall()
    return [Change(*row) for row in found]


def table_of(connection: Connection, name: str, side: str = "") -> sql.Identifier:
    """The table or a side table of the version that readers see. A newer version may still be empty.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    found = connection.execute("SELECT version FROM truelog.deployed WHERE view = %s", (name,)).fetchone()
    if found is None:
        raise NotMade(f"no application has created a table of {name} yet: see `truelog status`")
    return sql.Identifier("state", catalogue.table_name(name, int(found[0]), side))


def time_of(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
