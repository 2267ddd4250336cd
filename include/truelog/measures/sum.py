"""The sum of exact numbers."""

from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DataType, DecimalType, IntegerType, LongType, ShortType

from truelog.measures.columns import ColumnTypes, require, sql_type
from truelog.measures.measure import Measure

_SMALL = (ByteType, ShortType, IntegerType)
_SUMMED_DIGITS = 28  # of a decimal: 10**10 such values fit into a sum of 38 digits
_MOST_SCALE = 20  # of a longer decimal: values of 8 digits before the point are summed


@dataclass(frozen=True)
class Sum(Measure):
    """The exact sum of integers or decimals. Floats are rejected, because their sum depends on the order.

    `int` and smaller types sum to bigint, which 2**32 rows cannot overflow; `bigint` and decimals sum to
    numeric(38, scale). A decimal of more than 28 digits raises an error and its record is excluded. Otherwise a few
    such decimals would overflow the sum, at a moment that depends on the micro-batches. For the same reason, a type of
    more than 28 digits with more than 20 of them after the point is rejected.
    """

    is_additive = True

    def accepts(self, dtype: DataType) -> bool:
        if isinstance(dtype, DecimalType):
            return dtype.precision <= _SUMMED_DIGITS or dtype.scale <= _MOST_SCALE
        return isinstance(dtype, ColumnTypes.WHOLE)

    def prepare(self, value: Column, dtype: DataType) -> Column:
        if isinstance(dtype, DecimalType) and dtype.precision > _SUMMED_DIGITS:
            limit = Decimal(10) ** (_SUMMED_DIGITS - dtype.scale)
            refusal = F.concat(F.lit("a sum cannot take the decimal "), value.cast("string"))
            return require(value, F.abs(value) < limit, refusal)
        return value.cast("decimal(20,0)") if isinstance(dtype, LongType) else value

    def total(self, prepared: Column) -> Column:
        return F.sum(prepared)

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        return {name: state.cast(_total_type(dtype))}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: sql_type(_total_type(dtype))}

    def united(self, name: str) -> str:
        return f'sum("{name}")'

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'coalesce(t."{name}" + excluded."{name}", t."{name}", excluded."{name}")'}


def _total_type(dtype: DataType) -> DataType:
    if isinstance(dtype, _SMALL):
        return LongType()
    return DecimalType(38, dtype.scale if isinstance(dtype, DecimalType) else 0)
