"""The number of distinct values, from a sketch."""

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from truelog.measures.columns import ColumnTypes, clean, comparable
from truelog.measures.measure import Measure
from truelog.support.errors import BadDeclaration

_MOST_PRECISION = 16
_LEAST_ERROR = 0.0041  # with 2**16 registers


@dataclass(frozen=True)
class Distinct(Measure):
    """The number of distinct values, with a relative standard error of at most `error`.

    The registers follow Flajolet et al. (HyperLogLog, 2007): the low p bits of a value's 64-bit hash select a register,
    and the leading zeros of the rest determine a rank; a register stores its greatest rank. The state is the sorted
    array of `register * 64 + rank` for the registers in use. Its bytes are the same for any grouping of the values.
    Queries estimate the number with Ertl's estimator (2017).
    """

    error: float = 0.02

    def __post_init__(self) -> None:
        if not _LEAST_ERROR <= self.error < 1:
            raise BadDeclaration(f"{self!r}: the error must be between {_LEAST_ERROR} and 1.")

    @property
    def precision(self) -> int:
        """The exponent p of the number of registers, 2**p. The standard error is 1.04 / sqrt(2**p)."""
        return max(4, min(_MOST_PRECISION, math.ceil(math.log2((1.04 / self.error) ** 2))))

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, ColumnTypes.ORDERED)

    def prepare(self, value: Column, dtype: DataType) -> Column:
        p = self.precision
        hashed = F.xxhash64(clean(value, dtype))
        rest = F.shiftrightunsigned(hashed, p)
        length = F.when(rest == 0, 0).otherwise(F.length(F.bin(rest)))
        code = F.shiftleft(hashed.bitwiseAND(F.lit((1 << p) - 1)), 6) + (F.lit(65 - p) - length)
        return F.when(value.isNotNull(), code.cast("int"))

    def total(self, prepared: Column) -> Column:
        return comparable(F.collect_set(prepared))

    def plus(self, states: Column) -> Column:
        return comparable(F.array_distinct(F.flatten(F.collect_list(states))))

    def settle(self, gathered: Column) -> Column:
        def is_greatest_of_register(code: Column, i: Column) -> Column:
            following = F.get(gathered, i + 1)
            return F.coalesce(F.shiftright(following, 6) != F.shiftright(code, 6), F.lit(True))

        return F.when(F.size(gathered) > 0, F.filter(gathered, is_greatest_of_register))

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: "integer[]"}

    def united(self, name: str) -> str:
        return f"""truelog.distinct_united(string_agg(array_to_string("{name}", ','), ','))"""

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_estimate("{name}", {self.precision})'}
