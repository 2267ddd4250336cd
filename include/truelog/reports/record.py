"""The record report: which views read a record, whether each has counted it, and which of their rows name it.

Some tables store the coordinates of records: the inputs of Groups, and `Latest` measures. In the others, only a Spark
job can tell which keys a record has: the page leads to the rows of the view, and each row can be explained.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import psycopg
from psycopg import sql

from truelog.reports.declared_view import declared_view
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.stored_coordinates import stored_coordinates
from truelog.views import catalogue
from truelog.views.view import View

_SECONDS = 1.0  # for the search in all views, because the tables have no index on coordinates
_MOST_KEYS = 20
KeyQuery = tuple[str, tuple[str, ...], sql.Composed]  # a table's side and key, and the query for the keys of a record


class Counted(StrEnum):
    """Whether a view has counted a record."""

    COUNTED = "COUNTED"  # if it is a valid event
    WAITING = "WAITING"
    SKIPPED = "SKIPPED"


class Search(StrEnum):
    """Whether the database can tell which rows name the record."""

    DONE = "done"
    TOO_SLOW = "too slow"
    NOT_STORED = "not stored"


@dataclass(frozen=True)
class NamedKey:
    """The key of a stored row that names the record; `side` is the side table, or "" for the view's own table."""

    side: str
    key: Mapping[str, Any]


@dataclass(frozen=True)
class RecordReader:
    """A view that reads the record's topic. `reason` says why the view skips the record."""

    view: str
    version: int
    state: Counted
    reason: str = ""
    search: Search = Search.NOT_STORED
    keys: list[NamedKey] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class SkippedRecord:
    """A record that a view skips, because its transform fails on it."""

    view: str
    version: int
    topic: str
    partition: int
    offset: int
    error: str


def record_readers(settings: Settings, place: Place) -> list[RecordReader]:
    """The views that read the record's topic. A view whose file cannot be loaded is left out."""
    declared = dict(_reading(settings, place.topic))
    deadline = time.monotonic() + _SECONDS
    with db_snapshot.read_snapshot(settings) as connection:
        positions = _positions(connection, place)
        skipped = {(each.view, each.version): each for each in _skipped_at(connection, place)}
        readers = []
        for name, view in declared.items():
            version, position = positions.get(name, (0, 0))
            if version and (name, version) in skipped:
                readers.append(RecordReader(name, version, Counted.SKIPPED, skipped[name, version].error))
            elif position <= place.offset:
                readers.append(RecordReader(name, version, Counted.WAITING))
            else:
                search, keys = _named(connection, list(_queries(name, version, view)), place, deadline)
                readers.append(RecordReader(name, version, Counted.COUNTED, search=search, keys=keys))
    return readers


def skipped_records(connection: Connection, view: str | None, version: int | None, limit: int) -> list[SkippedRecord]:
    """The records that this version of views skips, by default the deployed version of a view; the newest first."""
    rows = connection.execute(
        'SELECT view, e.version, topic, partition, "offset", error FROM truelog.exclusion e '
        "JOIN truelog.deployed d USING (view) WHERE view = coalesce(%s, view) AND e.version = coalesce(%s, d.version) "
        'ORDER BY noticed_at DESC, view, topic, partition, "offset" LIMIT %s',
        (view, version, limit),
    ).fetchall()
    return [SkippedRecord(*row) for row in rows]


def _reading(settings: Settings, topic: str) -> Iterator[tuple[str, View]]:
    for name in catalogue.view_names(settings.views_folder):
        view, _ = declared_view(settings, name)
        if view is not None and topic in view.topics:
            yield name, view


def _positions(connection: Connection, place: Place) -> dict[str, tuple[int, int]]:
    """The deployed version of each view, and its next offset in the record's partition."""
    rows = connection.execute(
        "SELECT d.view, d.version, coalesce(next_offset, 0) FROM truelog.deployed d LEFT JOIN truelog.position p "
        "ON (p.view, p.version, topic, partition) = (d.view, d.version, %s, %s)",
        (place.topic, place.partition),
    ).fetchall()
    return {view: (version, position) for view, version, position in rows}


def _skipped_at(connection: Connection, place: Place) -> list[SkippedRecord]:
    rows = connection.execute(
        'SELECT view, version, topic, partition, "offset", error FROM truelog.exclusion '
        'WHERE (topic, partition, "offset") = (%s, %s, %s)',
        (place.topic, place.partition, place.offset),
    ).fetchall()
    return [SkippedRecord(*row) for row in rows]


def _named(
    connection: Connection, queries: Sequence[KeyQuery], place: Place, deadline: float
) -> tuple[Search, list[NamedKey]]:
    keys: list[NamedKey] = []
    for side, key, query in queries:
        left = int(1000 * (deadline - time.monotonic()))
        if left < 1:
            return Search.TOO_SLOW, keys
        try:
            with connection.transaction():
                connection.execute(sql.SQL("SET LOCAL statement_timeout = {}").format(sql.Literal(left)))
                rows = connection.execute(query, vars(place)).fetchall()
        except psycopg.errors.QueryCanceled:
            return Search.TOO_SLOW, keys
        except psycopg.errors.UndefinedTable:
            continue  # the deployed version has other tables than the file declares
        keys += [NamedKey(side, dict(zip(key, row, strict=True))) for row in rows]
    return Search.DONE if queries else Search.NOT_STORED, keys


def _queries(name: str, version: int, view: View) -> Iterator[KeyQuery]:
    """A query for each table that stores coordinates."""
    for side, key, columns in stored_coordinates(view):
        matches = (sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(part)) for part, c in columns.items())
        query = sql.SQL("SELECT DISTINCT {} FROM {} WHERE {} LIMIT {}").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(each)) for each in key),
            sql.Identifier("state", catalogue.table_name(name, version, side)),
            sql.SQL(" AND ").join(matches),
            sql.Literal(_MOST_KEYS),
        )
        yield side, key, query
