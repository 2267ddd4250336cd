"""Cubes: views with a time in the key, whose rows can be added. Each measure says how its states are united."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from psycopg import sql
from pyspark.sql.types import DataType, DecimalType, DoubleType, LongType

from truelog.control import view_versions
from truelog.erasure import hold
from truelog.exports.query import Condition, Operator
from truelog.reports.declared_view import declared_view, stored_view
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.durations import seconds
from truelog.support.errors import BadInput
from truelog.support.settings import Settings
from truelog.views import catalogue
from truelog.views.view import View

_FILTERS = (Operator.EQUAL, Operator.MISSING)
_TIME = "timestamp with time zone"
_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Figure:
    """A column of figures: its measure, and the SQL that reads it from the united state of the measure."""

    name: str
    measure: str
    shown: str
    error: float
    is_additive: bool
    comment: str


@dataclass(frozen=True)
class Cube:
    """A view as a cube. `united` has the SQL that adds the states of rows, by measure. `table` is what readers get."""

    view: str
    time: str
    keys: Sequence[str]  # without the time
    types: Mapping[str, str]  # of the keys
    figures: Sequence[Figure]
    united: Mapping[str, str]
    table: sql.Identifier
    reads: Sequence[str]  # topics
    all_if_null: Sequence[str]  # keys in which NULL means all values
    keep: timedelta | None = None
    has_windows: bool = False  # readers see the status of each row
    is_declared: bool = True  # readers see the version that the view's file declares

    def require_key(self, column: str) -> None:
        if column not in self.keys:
            raise BadInput(f"there is no key column {column!r} in {self.view}; there are {', '.join(self.keys)}")

    def require_filter(self, condition: Condition) -> None:
        self.require_key(condition.column)
        if condition.operator not in _FILTERS:
            raise BadInput(f"a filter is COLUMN=VALUE or `COLUMN is NULL`, not {condition.operator}")


def cube_names(settings: Settings, connection: Connection) -> list[str]:
    """The views that are cubes and have a table."""
    declared = {name: declared_view(settings, name)[0] for name in catalogue.view_names(settings.views_folder)}
    able = {name: view for name, view in declared.items() if view is not None and _united(view)}
    rows = connection.execute(
        "SELECT relname, attname FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid "
        "WHERE relnamespace = 'views'::regnamespace AND relname = ANY(%s) AND atttypid = 'timestamptz'::regtype",
        (list(able),),
    ).fetchall()
    return sorted({view for view, column in rows if column in able[view].key})


def find_cube(settings: Settings, connection: Connection, name: str) -> Cube:
    """The cube of this view, with the columns that its table contains.

    Raises:
        BadInput: the view is not a cube, has no table yet, or readers see a version whose file is not stored.
    """
    names = cube_names(settings, connection)
    declared = declared_view(settings, name)[0] if name in names else None
    if declared is None:
        raise BadInput(f"{name!r} is not a cube with a table; the cubes are {', '.join(names)}")
    version, table = _table(connection, name)
    view = declared if version == declared.version else _served(settings, connection, name, version)
    stored = {each["name"] for each in db_snapshot.view_columns(connection, table[1], table[0])}
    shown = {str(each["name"]): each for each in db_snapshot.view_columns(connection, name)}
    types = {key: str(shown[key]["type"]) for key in view.key if key in shown}
    time = next((key for key, kind in types.items() if kind == _TIME), "")
    united = {measure: aggregate for measure, aggregate in _united(view).items() if measure in stored}
    figures = [each for measure in united for each in _figures(view, measure, shown)]
    if not figures or not time:
        raise BadInput(f"the table of {name} has no figure yet; it is made when its stream starts")
    keys = [key for key in types if key != time]
    keep = None if view.keep is None else timedelta(seconds=seconds(view.keep))
    named = (name, time, keys, types, figures, united, sql.Identifier(*table), view.reads, view.all_if_null)
    has_windows = view.window is not None and "status" in shown
    return Cube(*named, keep, has_windows=has_windows, is_declared=view is declared)


def _united(view: View) -> dict[str, str]:
    aggregates = {name: measure.united(name) for name, measure in view.measures.items()}
    return {name: aggregate for name, aggregate in aggregates.items() if aggregate is not None}


def _table(connection: Connection, name: str) -> tuple[int, tuple[str, str]]:
    """The version that readers see, and the table of the layer that serves them: its schema and its name.

    Raises:
        NotReady: the view is held back after a restore.
    """
    hold.require_not_held(connection, name)
    [(version, by_batch)] = connection.execute(
        "SELECT version, EXISTS (SELECT FROM truelog.batch_layer b WHERE (b.view, b.version) = (d.view, d.version)) "
        "FROM truelog.deployed d WHERE view = %s",
        (name,),
    ).fetchall()
    return version, ("batch" if by_batch else "state", catalogue.table_name(name, version))


def _served(settings: Settings, connection: Connection, name: str, version: int) -> View:
    """The view as its file was when this version was deployed. Its measures may differ from the declared ones."""
    stored = view_versions.stored(connection, [(name, version)])
    view = stored_view(settings, stored[0]) if stored else None
    if view is None:
        raise BadInput(
            f"readers still see version {version} of {name}, whose file is not stored or cannot be loaded; "
            "the figures come back when readers see the version that the file declares"
        )
    return view


def _figures(view: View, name: str, shown: Mapping[str, Mapping[str, str | None]]) -> list[Figure]:
    measure = view.measures[name]
    names = [column for column in measure.shown(name, LongType()) if column in shown]
    return [
        Figure(column, name, expression, measure.error, measure.is_additive, shown[column]["comment"] or "")
        for first in names[:1]
        for column, expression in measure.shown(name, _dtype(str(shown[first]["type"]))).items()
        if column in shown
    ]


def _dtype(kind: str) -> DataType:
    """The type of the values of a measure, from the type of a column that readers see."""
    if found := _DECIMAL.fullmatch(kind):
        return DecimalType(int(found[1]), int(found[2]))
    return DoubleType() if kind == "double precision" else LongType()
