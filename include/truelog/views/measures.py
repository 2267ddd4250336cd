"""Measures: how one column of a view is aggregated.

A measure is a commutative monoid whose zero is NULL. Its state is the same for any grouping and order of the events.
The algebra is implemented twice: as native Spark expressions, which total a batch, and as SQL, which merges the batch
into the table. The laws in `tests/laws` compare the two implementations.

SQL names are quoted, because a column may be called `order`. They need no escaping, because `views.compiled_view`
checks them.

From events to the table:  prepare (a row's contribution) → total (aggregate) → settle → stored (as in PostgreSQL)
To add states:             plus (aggregate) → settle in Spark,  `merged` in PostgreSQL
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from truelog.support.errors import BadDeclaration
from truelog.views.columns import LONGEST, ColumnTypes, clean, comparable, float_bits, limited, require, sql_type

_SMALL = (ByteType, ShortType, IntegerType)
_WHOLE = (*_SMALL, LongType)
_FRACTIONS = (FloatType, DoubleType, DecimalType)
_MANTISSA_BITS = 52  # of a double
_SUMMED_DIGITS = 28  # of a decimal: 10**10 such values fit into a sum of 38 digits
_LEAST_LIMIT = 8  # digits before the point, which any scale may have
_STATE_BYTES = 2**28  # of the values in a state, so that a merge stays far below PostgreSQL's 1 GB


@dataclass(frozen=True)
class Measure:
    """The interface of a measure; `dtype` is the type of the column that the transform selects for it."""

    per_value = False  # True if rows are first counted per prepared value, because a list of all rows would be too long

    def accepts(self, dtype: DataType) -> bool:
        raise NotImplementedError

    def prepare(self, value: Column, dtype: DataType) -> Column:
        return limited(clean(value, dtype), dtype)

    def total(self, prepared: Column) -> Column:
        raise NotImplementedError

    def plus(self, states: Column) -> Column:
        return self.total(states)

    def settle(self, gathered: Column) -> Column:
        return gathered

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        return {name: state}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: sql_type(dtype)}

    def names(self, name: str, dtype: DataType) -> list[str]:
        """The names of the stored columns. A name is repeated if a column would be made twice, which is an error."""
        return list(self.columns(name, dtype))

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        """The SQL that merges each stored column: `t` is the existing row, and `excluded` is the added row."""
        raise NotImplementedError

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        """The SQL of each column that readers see."""
        return {name: f'"{name}"'}


@dataclass(frozen=True)
class Sum(Measure):
    """The exact sum of integers or decimals. Floats are rejected, because their sum depends on the order.

    `int` and smaller types sum to bigint, which 2**32 rows cannot overflow; `bigint` and decimals sum to
    numeric(38, scale). A decimal of more than 28 digits raises an error and its record is excluded. Otherwise a few
    such decimals would overflow the sum, at a moment that depends on the micro-batches.
    """

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, (*_WHOLE, DecimalType))

    def prepare(self, value: Column, dtype: DataType) -> Column:
        if isinstance(dtype, DecimalType) and dtype.precision > _SUMMED_DIGITS:
            limit = Decimal(10) ** max(_SUMMED_DIGITS - dtype.scale, _LEAST_LIMIT)
            refusal = F.concat(F.lit("a sum cannot take the decimal "), value.cast("string"))
            return require(value, F.abs(value) < limit, refusal)
        return value.cast("decimal(20,0)") if isinstance(dtype, LongType) else value

    def total(self, prepared: Column) -> Column:
        return F.sum(prepared)

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        return {name: state.cast(_total_type(dtype))}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: sql_type(_total_type(dtype))}

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f'coalesce(t."{name}" + excluded."{name}", t."{name}", excluded."{name}")'}


def _total_type(dtype: DataType) -> DataType:
    if isinstance(dtype, _SMALL):
        return LongType()
    return DecimalType(38, dtype.scale if isinstance(dtype, DecimalType) else 0)


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


@dataclass(frozen=True)
class Latest(Measure):
    """The columns of the last event in a declared order, never in arrival order. A NULL among them counts as a value.

    The transform selects `latest(order, deleted=…, name=…, …)`. The state is (order, topic, partition, offset,
    deleted flag, columns); the coordinates make the order total. A deleted row stays in the table, so that an
    older event that arrives late cannot restore it; readers do not see its columns.
    """

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, StructType) and dtype.fieldNames()[: len(_ORDER)] == list(_ORDER)

    def prepare(self, value: Column, dtype: DataType) -> Column:
        assert isinstance(dtype, StructType)  # noqa: S101
        fields = [limited(clean(value[f.name], f.dataType), f.dataType).alias(f.name) for f in dtype]
        return F.when(value["at"].isNotNull(), F.struct(*fields))

    def total(self, prepared: Column) -> Column:
        return F.max(prepared)

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        return {column: state[field] for column, (field, _) in self._fields(name, dtype).items()}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        return {column: sql_type(type_) for column, (_, type_) in self._fields(name, dtype).items()}

    def names(self, name: str, dtype: DataType) -> list[str]:
        """The names of the stored columns. A selected column may have the same name as a part of the order."""
        assert isinstance(dtype, StructType)  # noqa: S101
        return [_column(name, f.name) for f in dtype]

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        order = [f"{name}_{part}" for part in _ORDER[:4]]
        old, new = ("(" + ", ".join(f'{side}."{c}"' for c in order) + ")" for side in ("t", "excluded"))
        newer = f'(t."{name}_at" IS NULL OR {new} > {old}) AND excluded."{name}_at" IS NOT NULL'
        return {c: f'CASE WHEN {newer} THEN excluded."{c}" ELSE t."{c}" END' for c in self.columns(name, dtype)}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        values = [c for c in self._fields(name, dtype) if c not in {f"{name}_{part}" for part in _ORDER}]
        return {c: f'CASE WHEN NOT "{name}_deleted" THEN "{c}" END' for c in values}

    def _fields(self, name: str, dtype: DataType) -> dict[str, tuple[str, DataType]]:
        assert isinstance(dtype, StructType)  # noqa: S101
        return {_column(name, f.name): (f.name, f.dataType) for f in dtype}


_ORDER = ("at", "topic", "partition", "offset", "deleted")


def _column(name: str, field: str) -> str:
    """The column for a field. Parts of the order get the measure's name as a prefix, so that names do not collide."""
    return f"{name}_{field}" if field in _ORDER else field


def latest(order: Column | str, *, deleted: Column | None = None, **columns: Column | str) -> Column:
    """The column that a transform selects for a `Latest` measure: `columns`, with the event's place in `order`."""
    coordinates = [F.col(c).alias(c) for c in _ORDER[1:4]]
    flag = (F.lit(False) if deleted is None else F.coalesce(deleted, F.lit(False))).alias("deleted")
    values = [(F.col(c) if isinstance(c, str) else c).alias(n) for n, c in columns.items()]
    at = (F.col(order) if isinstance(order, str) else order).alias("at")
    return F.struct(at, *coordinates, flag, *values)


@dataclass(frozen=True)
class First(Measure):
    """The first distinct values, at most `most` of them. The values are structs, ordered by their fields.

    The first values of a union depend only on the first values of its parts, so the bounded set is a monoid. The state
    is a sorted array of structs. In PostgreSQL, each field is a separate array, and all arrays are in the same order.
    """

    most: int

    def accepts(self, dtype: DataType) -> bool:
        return isinstance(dtype, StructType) and all(isinstance(f.dataType, ColumnTypes.ORDERED) for f in dtype)

    def prepare(self, value: Column, dtype: DataType) -> Column:
        assert isinstance(dtype, StructType)  # noqa: S101
        most = min(LONGEST, _STATE_BYTES // self.most)
        fields = [limited(clean(value[f.name], f.dataType), f.dataType, most).alias(f.name) for f in dtype]
        return F.when(value.isNotNull(), F.struct(*fields))

    def total(self, prepared: Column) -> Column:
        return comparable(F.collect_set(prepared))

    def plus(self, states: Column) -> Column:
        return comparable(F.array_distinct(F.flatten(F.collect_list(states))))

    def settle(self, gathered: Column) -> Column:
        return F.when(F.size(gathered) > 0, F.slice(gathered, 1, self.most))

    def stored(self, name: str, state: Column, dtype: DataType) -> dict[str, Column]:
        return {column: state[column] for column in self.columns(name, dtype)}

    def columns(self, name: str, dtype: DataType) -> dict[str, str]:
        assert isinstance(dtype, StructType)  # noqa: S101
        return {f.name: sql_type(ArrayType(f.dataType)) for f in dtype}

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        fields = list(self.columns(name, dtype))
        both_sides = ", ".join(f't."{f}" || excluded."{f}"' for f in fields)
        values = ", ".join(f'"{f}"' for f in fields)
        order = ", ".join(f'value."{f}" NULLS FIRST' for f in fields)  # the way Spark sorts structs
        first = f"FROM unnest({both_sides}) AS value({values}) GROUP BY {values} ORDER BY {order} LIMIT {self.most}"
        return {f: f"nullif(ARRAY(SELECT value.\"{f}\" {first}), '{{}}')" for f in fields}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {column: f'"{column}"' for column in self.columns(name, dtype)}


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
        return isinstance(dtype, (*_WHOLE, *_FRACTIONS))

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


def require_accepted(view: str, measures: Mapping[str, Measure], dtypes: Mapping[str, DataType]) -> None:
    """Reject a column whose type its measure cannot aggregate exactly."""
    for name, measure in measures.items():
        if not measure.accepts(dtypes[name]):
            raise BadDeclaration(
                f"{view}.{name}: {type(measure).__name__} cannot aggregate {dtypes[name].simpleString()}; "
                f"cast it in the transform (float sums are never exact: scale them to integers)."
            )
