"""A Bloom filter: which values were seen."""

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from truelog.measures.columns import ColumnTypes, clean, combined, comparable
from truelog.measures.measure import Measure
from truelog.support.errors import BadDeclaration

_WORD_BITS = 32  # beside the number of the word
_MOST_BITS = 2**26  # the state then has at most 16 MB


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
        return isinstance(dtype, (StringType, *ColumnTypes.WHOLE))

    def prepare(self, value: Column, dtype: DataType) -> Column:
        digest = F.md5(clean(value, dtype).cast("string"))
        return F.conv(F.substring(digest, 1, 16), 16, -10).cast("bigint")

    def total(self, prepared: Column) -> Column:
        return comparable(F.flatten(F.transform(F.collect_set(prepared), self._codes)))

    def plus(self, states: Column) -> Column:
        return comparable(F.flatten(F.collect_list(states)))

    def settle(self, gathered: Column) -> Column:
        """Combine the codes of each word, which are next to each other."""

        def of_word(codes: Column) -> Column:
            return F.aggregate(codes, F.lit(0).cast("bigint"), lambda bits, code: bits.bitwiseOR(code))

        return combined(gathered, _word, of_word)

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: "bigint[]"}

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'truelog.bloom_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'ROW({self.hashes}, {self.bits}, "{name}")::truelog.bloom'}

    def _codes(self, hashed: Column) -> Column:
        """The codes of a value's bits."""
        first, step = hashed.bitwiseAND(F.lit(2**31 - 1)), F.shiftrightunsigned(hashed, 33).bitwiseOR(F.lit(1))

        def code(i: int) -> Column:
            bit = (first + F.lit(i) * step) % self.bits
            # PySpark's `shiftleft` does not accept a column as the shift, but the SQL function does.
            of_bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), (bit % _WORD_BITS).cast("int"))
            return F.shiftleft(F.shiftright(bit, 5), 32).bitwiseOR(of_bit)

        return F.array(*(code(i) for i in range(self.hashes)))


def _word(code: Column) -> Column:
    return F.shiftright(code, 32)
