"""The distribution of numbers, from a sketch."""

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType

from truelog.measures.columns import ColumnTypes, combined, comparable, float_bits, sql_type
from truelog.measures.measure import Measure

_FRACTIONS = (FloatType, DoubleType, DecimalType)
_MANTISSA_BITS = 52  # of a double


@dataclass(frozen=True)
class Quantiles(Measure):
    """The distribution of numbers, read as quantiles with a relative error of at most `error`.

    The state is a histogram of logarithmic buckets with exact counts. A bucket contains the values with the same
    leading b + 1 bits (b follows from `error`), so its middle differs from a value by at most 2**-(b+1) of the value.
    Of a float, these are the exponent and the first b bits of the mantissa; a decimal is read as the nearest float.
    Negative values mirror positive values, and NaN is greater than all other values, as in Spark and PostgreSQL.

    In Spark, the state is an array of (bucket, n) pairs; in PostgreSQL, buckets and counts alternate in a bigint array.
    """

    error: float = 0.01
    shows: tuple[float, ...] = (0.5, 0.95, 0.99)
    per_value = True

    @property
    def bits(self) -> int:
        return max(1, math.ceil(-math.log2(self.error)) - 1)

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, (*ColumnTypes.WHOLE, *_FRACTIONS))

    def prepare(self, value: Column, dtype: DataType) -> Column:
        if isinstance(dtype, _FRACTIONS):
            number = value.cast("double")
            bucket = F.shiftright(float_bits(F.abs(number)), _MANTISSA_BITS - self.bits)
            return F.when(number < 0, -bucket).otherwise(bucket).cast("int")
        size = F.abs(F.greatest(value.cast("bigint"), F.lit(-(2**63 - 1))))
        shift = F.greatest(F.length(F.bin(size)) - (self.bits + 1), F.lit(0))
        # PySpark's `shiftright` does not accept a column as the shift, but the SQL function does.
        bucket = F.shiftleft(shift.cast("bigint"), self.bits) + F.call_function("shiftright", size, shift)
        return F.when(value >= 0, bucket).when(value < 0, -bucket).cast("int")

    def total(self, prepared: Column) -> Column:
        one = F.array(F.struct(F.first(prepared).alias("bucket"), F.count(F.lit(1)).alias("n")))
        return F.when(F.first(prepared).isNotNull(), one)

    def plus(self, states: Column) -> Column:
        return comparable(F.flatten(F.collect_list(states)))

    def settle(self, gathered: Column) -> Column:
        """Add the counts of each bucket, which are next to each other."""

        def of_bucket(pairs: Column) -> Column:
            n = F.aggregate(pairs, F.lit(0).cast("bigint"), lambda sum_, pair: sum_ + pair["n"])
            return F.struct(pairs[0]["bucket"].alias("bucket"), n.alias("n"))

        return combined(gathered, lambda pair: pair["bucket"], of_bucket)

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        pairs = F.transform(state, lambda e: F.array(e["bucket"].cast("bigint"), e["n"]))
        return {name: F.flatten(pairs)}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: "bigint[]"}

    def united(self, name: str) -> str:
        return f"""truelog.quantiles_united(string_agg(array_to_string("{name}", ','), ','))"""

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.quantiles_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        columns = {f"{name}_p{100 * q:g}".replace(".", "_"): f'"{name}", {q}, {self.bits}' for q in self.shows}
        if isinstance(dtype, DecimalType):
            return {c: _within(dtype, f"truelog.quantile_of_floats({e})", name) for c, e in columns.items()}
        function = "quantile_of_floats" if isinstance(dtype, _FRACTIONS) else "quantile"
        return {c: f"truelog.{function}({e})" for c, e in columns.items()}


def _within(dtype: DecimalType, quantile: str, name: str) -> str:
    """The quantile as a number of the type. The middle of a bucket may be greater than all numbers of the type."""
    greatest = "9" * (dtype.precision - dtype.scale) + "." + "9" * dtype.scale
    number = f"least(greatest({quantile}::numeric, -{greatest}), {greatest})::{sql_type(dtype)}"
    return f'CASE WHEN "{name}" IS NOT NULL THEN {number} END'
