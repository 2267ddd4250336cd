"""Sketches: measures that summarise many values in little space, with a stated error.

Unlike most sketches, their states are the same for any grouping and order of the events, byte for byte.
"""

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType

from truelog.measures.columns import ColumnTypes, clean, comparable, float_bits, sql_type
from truelog.measures.measure import WHOLE, Measure
from truelog.support.errors import BadDeclaration

_FRACTIONS = (FloatType, DoubleType, DecimalType)
_MANTISSA_BITS = 52  # of a double
_WORD_BITS = 32  # of a Bloom filter, beside the number of the word
_MOST_BITS = 2**26  # of a Bloom filter: its state then has at most 16 MB


@dataclass(frozen=True)
class Distinct(Measure):
    """The number of distinct values, with a relative standard error of at most `error`.

    The registers follow Flajolet et al. (HyperLogLog, 2007): the low p bits of a value's 64-bit hash select a register,
    and the leading zeros of the rest determine a rank; a register stores its greatest rank. The state is the sorted
    array of `register * 64 + rank` for the registers in use. Its bytes are the same for any grouping of the values.
    Queries estimate the number with Ertl's estimator (2017).
    """

    error: float = 0.02

    @property
    def precision(self) -> int:
        """The exponent p of the number of registers, 2**p. The standard error is 1.04 / sqrt(2**p)."""
        return max(4, min(16, math.ceil(math.log2((1.04 / self.error) ** 2))))

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

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_estimate("{name}", {self.precision})'}


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
        return isinstance(dtype, (*WHOLE, *_FRACTIONS))

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
        return F.flatten(F.collect_list(states))

    def settle(self, gathered: Column) -> Column:
        def counted(bucket: Column) -> Column:
            same = F.filter(gathered, lambda e: e["bucket"] == bucket)
            n = F.aggregate(same, F.lit(0).cast("bigint"), lambda acc, e: acc + e["n"])
            return F.struct(bucket.alias("bucket"), n.alias("n"))

        buckets = comparable(F.array_distinct(F.transform(gathered, lambda e: e["bucket"])))
        return F.when(F.size(gathered) > 0, F.transform(buckets, counted))

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        pairs = F.transform(state, lambda e: F.array(e["bucket"].cast("bigint"), e["n"]))
        return {name: F.flatten(pairs)}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: "bigint[]"}

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.quantiles_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        columns = {f"{name}_p{100 * q:g}".replace(".", "_"): f'"{name}", {q}, {self.bits}' for q in self.shows}
        if isinstance(dtype, DecimalType):
            return {c: f"truelog.quantile_of_floats({e})::{sql_type(dtype)}" for c, e in columns.items()}
        function = "quantile_of_floats" if isinstance(dtype, _FRACTIONS) else "quantile"
        return {c: f"truelog.{function}({e})" for c, e in columns.items()}


@dataclass(frozen=True)
class Bloom(Measure):
    """Which values were seen: a Bloom filter (1970), read as `truelog.seen(column, value)`.

    Each value that was seen is found. If at most `capacity` values were seen, then at most a share `error` of all other
    values is found too; beyond its capacity, a filter finds more of them.

    A value sets some bits of a bitmap of fixed size. The bits follow from two halves of a hash of the value's text
    (Kirsch and Mitzenmacher, 2006). The hash is MD5, because PostgreSQL must compute it when a reader asks. The state
    is the sorted array of `word * 2**32 + bits` for each 32-bit word of the bitmap that is not empty. A few values
    therefore take a few bytes, and a full filter takes twice the bytes of its bitmap.
    """

    capacity: int
    error: float = 0.01

    def __post_init__(self) -> None:
        if self.capacity < 1 or not 0 < self.error < 1 or self.bits > _MOST_BITS:
            raise BadDeclaration(
                f"{self!r}: the capacity must be positive, the error between 0 and 1, and the bitmap at most "
                f"{_MOST_BITS:,} bits, which an error of 1 % reaches at a capacity of 6,900,000."
            )

    @property
    def hashes(self) -> int:
        """The number of bits that a value sets."""
        return max(1, round(-math.log2(self.error)))

    @property
    def bits(self) -> int:
        """The size of the bitmap: so many bits that the filter has the error when it has reached its capacity."""
        needed = -self.hashes * self.capacity / math.log1p(-(self.error ** (1 / self.hashes)))
        return math.ceil(needed / _WORD_BITS) * _WORD_BITS

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, (StringType, *WHOLE))

    def prepare(self, value: Column, dtype: DataType) -> Column:
        digest = F.md5(clean(value, dtype).cast("string"))
        return F.conv(F.substring(digest, 1, 16), 16, -10).cast("bigint")

    def total(self, prepared: Column) -> Column:
        return comparable(F.flatten(F.transform(F.collect_set(prepared), self._codes)))

    def plus(self, states: Column) -> Column:
        return comparable(F.flatten(F.collect_list(states)))

    def settle(self, gathered: Column) -> Column:
        """Combine the codes of each word, which are next to each other."""

        def begins(code: Column, i: Column) -> Column:
            before = F.get(gathered, i - 1)  # NULL before the first
            return F.when(_word(before).eqNullSafe(_word(code)), None).otherwise(i)

        def combined(begin: Column, end: Column) -> Column:
            codes = F.slice(gathered, begin + 1, end - begin)
            return F.aggregate(codes, F.lit(0).cast("bigint"), lambda bits, code: bits.bitwiseOR(code))

        begins_at = F.array_compact(F.transform(gathered, begins))
        ends_at = F.concat(F.slice(begins_at, 2, F.size(gathered)), F.array(F.size(gathered)))
        return F.when(F.size(gathered) > 0, F.zip_with(begins_at, ends_at, combined))

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: "bigint[]"}

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.bloom_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'ROW({self.hashes}, {self.bits}, "{name}")::truelog.bloom'}

    def _codes(self, hashed: Column) -> Column:
        """The codes of a value's bits."""
        first, step = hashed.bitwiseAND(F.lit(2**31 - 1)), F.shiftrightunsigned(hashed, 33).bitwiseOR(F.lit(1))

        def code(i: Column) -> Column:
            bit = (first + i * step) % self.bits
            # PySpark's `shiftleft` does not accept a column as the shift, but the SQL function does.
            in_word = (bit % _WORD_BITS).cast("int")
            of_bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), in_word)
            return F.shiftleft(F.shiftright(bit, 5), 32).bitwiseOR(of_bit)

        return F.transform(F.sequence(F.lit(0), F.lit(self.hashes - 1)), code)


def _word(code: Column) -> Column:
    return F.shiftright(code, 32)
