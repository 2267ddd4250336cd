"""The smallest and the greatest value."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from truelog.measures.columns import ColumnTypes
from truelog.measures.measure import Measure


@dataclass(frozen=True)
class Min(Measure):
    """The smallest value. Text is compared by its UTF-8 bytes in both layers."""

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, ColumnTypes.ORDERED)

    def total(self, prepared: Column) -> Column:
        return F.min(prepared)

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'least(t."{name}", excluded."{name}")'}


@dataclass(frozen=True)
class Max(Measure):
    """The greatest value. Text is compared by its UTF-8 bytes in both layers."""

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, ColumnTypes.ORDERED)

    def total(self, prepared: Column) -> Column:
        return F.max(prepared)

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'greatest(t."{name}", excluded."{name}")'}
