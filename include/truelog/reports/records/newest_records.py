"""Lists the archived records of a topic, newest first.

The first query reads places and keys only, first of the last hour before the given moment, then of longer spans, until
it has found enough records. The second one reads the values at these places. One time limit holds for all of them.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta

import duckdb
from pyiceberg.catalog import Catalog

from truelog.archive.analyst import interrupted_after, open_dataset, open_engine
from truelog.archive.table import open_catalog, stores_answer
from truelog.reports.records.archived_record import type_of
from truelog.schema.event import EventType
from truelog.support.settings import Settings

_SECONDS = 10.0
_SPANS = (timedelta(hours=1), timedelta(days=1), timedelta(days=30), None)
_VALUES = """
SELECT partition, "offset", broker_time, key, value, erased, invalid FROM records
WHERE partition = ? AND "offset" BETWEEN ? AND ? AND "offset" IN (SELECT unnest(?::BIGINT[]))
"""

_Place = tuple[int, int]
_Engine = duckdb.DuckDBPyConnection


@dataclass(frozen=True)
class Moment:
    """A moment in a topic: a time, and between records with the same time, a partition and an offset."""

    time: datetime
    partition: int = -1
    offset: int = -1


@dataclass(frozen=True)
class ListRequest:
    """At most `limit` records that were appended before a moment; if `key` is given, only records with this key."""

    before: Moment
    limit: int
    key: bytes | None = None


@dataclass(frozen=True)
class ListedRecord:
    """A record. `invalid` says why it was not a valid event when it was archived. An erased record has no value."""

    partition: int
    offset: int
    broker_time: datetime
    key: bytes | None
    value: bytes | None
    erased: bool
    invalid: str | None


def newest_records(settings: Settings, topic: str, wanted: ListRequest) -> list[ListedRecord]:
    """The wanted records of the topic.

    Raises:
        BadInput: there is no such topic.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        QueryTooSlow: the search takes longer than ten seconds.
        ServiceDown: the catalog or the object store does not answer.
    """
    event_type = type_of(settings, topic)
    with (
        stores_answer(),
        open_engine() as engine,
        open_catalog(settings) as catalog,
        interrupted_after(engine, _SECONDS),
    ):
        places: list[_Place] = []
        for span in _SPANS:
            places = _places(engine, catalog, event_type, wanted, span)
            if len(places) == wanted.limit:
                break
        found = _at_places(engine, catalog, event_type, places)
    return [found[place] for place in places if place in found]


def _places(
    engine: _Engine, catalog: Catalog, event_type: EventType, wanted: ListRequest, span: timedelta | None
) -> list[_Place]:
    """The places of the wanted records of the span before the moment, or of all records before it."""
    until, key = wanted.before.time, wanted.key
    where = f"broker_time <= '{until.isoformat()}'"
    if span is not None:
        where += f" AND broker_time >= '{(until - span).isoformat()}'"
    query = (
        f'SELECT partition, "offset" FROM records WHERE {where} '  # noqa: S608 - times only
        'AND (broker_time, partition, "offset") < (?, ?, ?) AND (?::BLOB IS NULL OR key = ?::BLOB) '
        'ORDER BY broker_time DESC, partition DESC, "offset" DESC LIMIT ?'
    )
    engine.register("records", open_dataset(catalog, event_type, where))
    return engine.execute(query, [*astuple(wanted.before), key, key, wanted.limit]).fetchall()


def _at_places(
    engine: _Engine, catalog: Catalog, event_type: EventType, places: Iterable[_Place]
) -> dict[_Place, ListedRecord]:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    found: dict[_Place, ListedRecord] = {}
    for partition, offsets in by_partition.items():
        first, last = min(offsets), max(offsets)
        where = f"partition = {partition} AND offset >= {first} AND offset <= {last}"
        engine.register("records", open_dataset(catalog, event_type, where))
        rows = engine.sql(_VALUES, params=[partition, first, last, offsets]).to_arrow_table().to_pylist()
        found |= {(partition, row["offset"]): ListedRecord(**row) for row in rows}
    return found
