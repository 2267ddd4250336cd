"""The records of rules or searches that a view has counted."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from psycopg import sql

from truelog.erasure import hold
from truelog.patterns.versions import Change
from truelog.storage.database import Connection, names
from truelog.support.errors import NotMade
from truelog.views import catalogue
from truelog.views.judged import Judged

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_changes(connection: Connection, name: str, view: Judged, only: Collection[str] | None = None) -> list[Change]:
    """All records that the view has counted, or only those of these rules.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    table, declared = table_of(connection, name, view.rules_side), view.rules_table()
    columns = names((*declared.key, *declared.measures))
    query = sql.SQL("SELECT {} FROM {} WHERE %(only)s::text[] IS NULL OR {} = ANY(%(only)s)")
    wanted = {"only": None if only is None else list(only)}
    found = connection.execute(query.format(columns, table, _named(view)), wanted).fetchall()
    return [Change(*row) for row in found]


def read_names(connection: Connection, name: str, view: Judged, part: str = "") -> list[str]:
    """The names of all rules that contain this text, in any case.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    table, named = table_of(connection, name, view.rules_side), _named(view)
    query = sql.SQL("SELECT DISTINCT {0} FROM {1} WHERE position(lower(%s) in lower({0})) > 0 ORDER BY 1")
    return [str(found) for (found,) in connection.execute(query.format(named, table), (part,)).fetchall()]


def _named(view: Judged) -> sql.Identifier:
    """The column with the name of a rule, in the place that it has in a `Change`."""
    declared = view.rules_table()
    return sql.Identifier([*declared.key, *declared.measures][Change._fields.index("rule")])


def table_of(connection: Connection, name: str, side: str = "") -> sql.Identifier:
    """The table or a side table of the version that readers see. A newer version may still be empty.

    Raises:
        NotMade: no application has created the view's table yet.
        NotReady: the view is held back after a restore.
    """
    hold.require_not_held(connection, name)
    found = connection.execute("SELECT version FROM truelog.deployed WHERE view = %s", (name,)).fetchone()
    if found is None:
        raise NotMade(f"no application has created a table of {name} yet: see `truelog status`")
    return sql.Identifier("state", catalogue.table_name(name, int(found[0]), side))


def time_of(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
