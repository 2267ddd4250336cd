"""A value that has a single source."""

from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType

from truelog.measures.columns import ColumnTypes
from truelog.measures.extremes import Max


@dataclass(frozen=True)
class Value(Max):
    """The value of a column whose row has a single source: one event, or the fold of a Group."""

    def accepts(self, dtype: DataType) -> bool:
        element = dtype.elementType if isinstance(dtype, ArrayType) else dtype
        return isinstance(element, (*ColumnTypes.ORDERED, BinaryType))
