"""The archived events behind figures: those of a time range whose fields have the values of the filters.

A filter on a key column that an event type does not have cannot select among its events, and the answer says so.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from truelog.archive.analyst import open_dataset
from truelog.archive.schema import PLACE, column_of
from truelog.archive.table import open_catalog, stores_answer
from truelog.control import event_registry
from truelog.exports.query import Condition, Operator
from truelog.reports.cubes.cube import Cube
from truelog.reports.cubes.question import Question
from truelog.schema.event import EventType
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

MOST = 100
SECONDS = 10.0
_BATCH_ROWS = 32_768
_NEWEST = [("event_time", "descending"), ("partition", "descending"), ("offset", "descending")]


@dataclass(frozen=True)
class ArchivedEvents:
    """The newest of the events of one topic. `number` counts all. The filters on `open` do not apply."""

    topic: str
    number: int
    events: Sequence[Mapping[str, Any]]  # the place, `event_time`, `event_id` and the key columns of the cube
    applied: Sequence[str]
    open: Sequence[str]


def archived_events(settings: Settings, cube: Cube, question: Question) -> list[ArchivedEvents]:
    """The events of each topic that the cube reads.

    Raises:
        BadInput: a value does not have the type of its field, or the search takes too long.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        ServiceDown: the catalog or the object store does not answer.
    """
    types, end = event_registry.event_types(settings), time.monotonic() + SECONDS
    for each in question.where:
        cube.require_filter(each)
    with stores_answer(), open_catalog(settings) as catalog:
        span = f"event_time >= '{question.since.isoformat()}' and event_time < '{question.until.isoformat()}'"
        return [
            _found(open_dataset(catalog, types[topic], span), types[topic], cube, question, end)
            for topic in cube.reads
            if topic in types
        ]


def _found(dataset: ds.Dataset, event_type: EventType, cube: Cube, question: Question, end: float) -> ArchivedEvents:
    fields = event_type.stored_schema
    keys = [key for key in cube.keys if key in fields.names]
    shown = {name: name for name in (*PLACE.names, "event_id", "event_time")} | {key: column_of(key) for key in keys}
    applied = [each for each in question.where if each.column in fields.names]
    columns = {name: ds.field(column) for name, column in shown.items()}
    scanner = dataset.scanner(columns, filter=_filter(fields, applied, question), batch_size=_BATCH_ROWS)
    number, newest = 0, scanner.projected_schema.empty_table()
    for batch in _in_time(scanner, end):
        number += batch.num_rows
        both = pa.concat_tables([newest, pa.Table.from_batches([batch])])
        newest = both.take(pc.select_k_unstable(both, MOST, _NEWEST))
    left = [each.column for each in question.where if each not in applied]
    return ArchivedEvents(event_type.name, number, newest.to_pylist(), [each.column for each in applied], left)


def _in_time(scanner: ds.Scanner, end: float) -> Iterator[pa.RecordBatch]:
    for batch in scanner.to_batches():
        if time.monotonic() > end:
            raise BadInput(f"the search in the archive takes longer than {SECONDS:g} s. Choose a shorter time range")
        yield batch


def _filter(fields: pa.Schema, applied: Sequence[Condition], question: Question) -> ds.Expression:
    at = ds.field("event_time")
    conditions = [at >= pa.scalar(question.since), at < pa.scalar(question.until)]
    return reduce(and_, [*conditions, *(_condition(fields.field(each.column).type, each) for each in applied)])


def _condition(kind: pa.DataType, condition: Condition) -> ds.Expression:
    field = ds.field(column_of(condition.column))
    if condition.operator is Operator.MISSING:
        return field.is_null()
    try:
        return field == pa.scalar(condition.value).cast(kind)
    except pa.ArrowException as wrong:
        raise BadInput(f"{condition.column}: {wrong}") from wrong
