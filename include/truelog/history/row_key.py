"""The key of a row, as a person writes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from truelog.support.errors import BadInput
from truelog.tables.row_filter import RowFilter, with_keys
from truelog.tables.table import Table


@dataclass(frozen=True)
class RowKey:
    """Values of key columns, in the form in which the tables have them: a frame of one row, and a dictionary."""

    frame: DataFrame
    values: Mapping[str, Any]

    @property
    def only(self) -> RowFilter:
        """A filter that selects the rows with these values."""
        return with_keys(self.frame)

    @property
    def condition(self) -> sql.Composed:
        """The same filter in SQL, in a form for which PostgreSQL can use the index on the key."""
        equal = (
            sql.SQL("{} IS NULL").format(sql.Identifier(name))
            if value is None
            else sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value))
            for name, value in self.values.items()
        )
        return sql.SQL(" AND ").join(equal)


def parse_key(spark: SparkSession, table: Table, given: Mapping[str, str | None]) -> RowKey:
    """The key with these values as text; None is NULL. The columns that its groups share are enough for a Group.

    Raises:
        BadInput: a column is unknown or missing, or a value does not have its column's type.
    """
    view = table.view
    needed = view.question_columns
    if unknown := [name for name in given if name not in view.key]:
        raise BadInput(f"{table.owner} has no key column {', '.join(unknown)}; {_columns(table, view.key)}")
    if missing := [name for name in needed if name not in given]:
        raise BadInput(f"a value of {', '.join(missing)} is missing; {_columns(table, view.key)}")
    names = [name for name in view.key if name in given]
    texts = spark.createDataFrame(pa.table({name: pa.array([given[name]], pa.string()) for name in names}))
    typed = texts.select(*(F.col(name).try_cast(table.dtypes[name]).alias(name) for name in names))
    found = typed.select(*(table.canonical_key(name).alias(name) for name in names)).toArrow()
    [values] = found.to_pylist()
    for name, text in given.items():
        if text is not None and values[name] is None:
            raise BadInput(f"{text!r} is not a value of {name}; {_columns(table, [name])}")
    return RowKey(spark.createDataFrame(found).coalesce(1), values)  # a join with one partition needs no shuffle


def _columns(table: Table, names: Iterable[str]) -> str:
    return "the key has " + ", ".join(f"{name} ({table.dtypes[name].simpleString()})" for name in names)
