"""Contributions: what each record adds to the rows of a table, with the record's coordinates and times."""

from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, TimestampType

from truelog.log.records import EventFrames
from truelog.tables.provenance_frame import ProvenanceFrame
from truelog.tables.row_filter import RowFilter
from truelog.tables.table import Table

COORDINATES = ("_topic", "_partition", "_offset")  # the topic is its index in the view's `reads`
RECORD = (*COORDINATES, "_broker_time", "_event_time")
_TYPES = dict(zip(RECORD, (IntegerType(), IntegerType(), LongType(), TimestampType(), TimestampType()), strict=True))


def by_record(table: Table) -> Table:
    """The table with the record added to the key. (A text in the key would leave less room for the other texts.)"""
    return reduce(lambda extended, column: extended.with_key(*column), reversed(_TYPES.items()), table)


def transformed_by_record(table: Table, events: EventFrames) -> DataFrame:
    """The transform's rows for these events, each with its record."""
    view = table.view
    frames: list[Any] = []
    for number, topic in enumerate(view.reads):
        values = (F.lit(number), *map(F.col, ("partition", "offset", "broker_time", "event_time")))
        frames.append(ProvenanceFrame(events[topic].withColumns(dict(zip(RECORD, values, strict=True))), RECORD))
    transformed: Any = view.contributions(*frames)
    rows: DataFrame = transformed.frame
    return rows


def prepared_by_record(table: Table, transformed: DataFrame) -> DataFrame:
    """The transform's rows with keys in canonical form, each row's contribution to the measures, and its record."""
    return by_record(table).prepared(transformed)


def added_by_record(table: Table, prepared: DataFrame) -> DataFrame:
    """What each record adds by these prepared rows, as states with the record in the key."""
    return by_record(table).added_up(prepared)


def totals_by_record(table: Table, transformed: DataFrame, only: RowFilter) -> DataFrame:
    """What each record adds to the rows that `only` selects, as states with the record in the key."""
    return by_record(table).totals(transformed, only)
