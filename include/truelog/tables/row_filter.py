"""Row filters: select rows by their key columns."""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

RowFilter = Callable[[DataFrame], DataFrame]


def all_rows(rows: DataFrame) -> DataFrame:
    return rows


def with_keys(keys: DataFrame) -> RowFilter:
    """A filter that selects the rows that equal one of `keys` in all of its columns; NULL equals NULL."""

    def only(rows: DataFrame) -> DataFrame:
        selected = F.broadcast(keys.toDF(*(f"_{k}" for k in keys.columns)))
        equal = reduce(Column.__and__, (rows[k].eqNullSafe(selected[f"_{k}"]) for k in keys.columns))
        return rows.join(selected, equal, "left_semi")

    return only
