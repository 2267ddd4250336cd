"""Measures: how one column of a view adds up.

A measure is a commutative monoid whose zero is NULL, and its state is equal as data under any grouping and order of
the events. The same algebra is stated twice, once as native Spark expressions (what a batch adds) and once as SQL
(how a merge adds it to what stands); the laws in `tests/laws` hold the two against each other.

In SQL names stand in quotes: a column may be called `order`. That they need no escaping, `views.compiled_view` sees to.

The way of a column:  prepare (a row's share) → total (aggregate) → settle → stored (as PostgreSQL keeps it)
States add up by:     plus (aggregate) → settle in Spark,  `merged` in PostgreSQL
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from truelog.support.errors import BadDeclaration
from truelog.views.columns import ColumnTypes, clean, comparable, sql_type

_SMALL = (ByteType, ShortType, IntegerType)
_WHOLE = (*_SMALL, LongType)


@dataclass(frozen=True)
class Measure:
    """What every measure answers; `kind` is the type of the column that the transform selects for it."""

    apart = False  # True where rows are first counted per prepared value: the state would not fit one group's list

    def accepts(self, kind: DataType) -> bool:
        raise NotImplementedError

    def prepare(self, value: Column, kind: DataType) -> Column:
        return clean(value, kind)

    def total(self, prepared: Column) -> Column:
        raise NotImplementedError

    def plus(self, states: Column) -> Column:
        return self.total(states)

    def settle(self, gathered: Column) -> Column:
        return gathered

    def stored(self, name: str, state: Column, kind: DataType) -> dict[str, Column]:
        return {name: state}

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: sql_type(kind)}

    def names(self, name: str, kind: DataType) -> list[str]:
        """Of these columns, each as often as it would be made: more than once is one too many."""
        return list(self.columns(name, kind))

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        """SQL for each stored column: `t` is the row that stands, `excluded` what is added."""
        raise NotImplementedError

    def shown(self, name: str, kind: DataType) -> dict[str, str]:
        """SQL for each readable column."""
        return {name: f'"{name}"'}


@dataclass(frozen=True)
class Sum(Measure):
    """Whole numbers and decimals, added exactly; floats are refused, since their sum depends on the order.

    `int` and smaller add up to bigint, which 2**32 rows cannot overflow; `bigint` and decimals to numeric(38, scale).
    """

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, (*_WHOLE, DecimalType))

    def prepare(self, value: Column, kind: DataType) -> Column:
        return value.cast("decimal(20,0)") if isinstance(kind, LongType) else value

    def total(self, prepared: Column) -> Column:
        return F.sum(prepared)

    def stored(self, name: str, state: Column, kind: DataType) -> dict[str, Column]:
        return {name: state.cast(_total_type(kind))}

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: sql_type(_total_type(kind))}

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'coalesce(t."{name}" + excluded."{name}", t."{name}", excluded."{name}")'}


def _total_type(kind: DataType) -> DataType:
    if isinstance(kind, _SMALL):
        return LongType()
    return DecimalType(38, kind.scale if isinstance(kind, DecimalType) else 0)


@dataclass(frozen=True)
class Min(Measure):
    """The least value; text compares by its UTF-8 bytes, in both layers."""

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, ColumnTypes.ORDERED)

    def total(self, prepared: Column) -> Column:
        return F.min(prepared)

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'least(t."{name}", excluded."{name}")'}


@dataclass(frozen=True)
class Max(Measure):
    """The greatest value; text compares by its UTF-8 bytes, in both layers."""

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, ColumnTypes.ORDERED)

    def total(self, prepared: Column) -> Column:
        return F.max(prepared)

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'greatest(t."{name}", excluded."{name}")'}


@dataclass(frozen=True)
class Latest(Measure):
    """The columns of the greatest event by a declared order, never by arrival; a NULL among them is a value.

    The transform selects `latest(order, deleted=…, name=…, …)`. The state is (order, topic, partition, offset,
    deleted flag, columns): coordinates make the order total. A deleted row stays, so that a late older event cannot
    bring it back; readers do not see it.
    """

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, StructType) and kind.fieldNames()[: len(_ORDER)] == list(_ORDER)

    def prepare(self, value: Column, kind: DataType) -> Column:
        assert isinstance(kind, StructType)  # noqa: S101
        fields = [clean(value[f.name], f.dataType).alias(f.name) for f in kind]
        return F.when(value["at"].isNotNull(), F.struct(*fields))

    def total(self, prepared: Column) -> Column:
        return F.max(prepared)

    def stored(self, name: str, state: Column, kind: DataType) -> dict[str, Column]:
        return {column: state[field] for column, (field, _) in self._fields(name, kind).items()}

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        return {column: sql_type(type_) for column, (_, type_) in self._fields(name, kind).items()}

    def names(self, name: str, kind: DataType) -> list[str]:
        """A selected column may be named as a part of the order is."""
        assert isinstance(kind, StructType)  # noqa: S101
        return [_column(name, f.name) for f in kind]

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        order = [f"{name}_{part}" for part in _ORDER[:4]]
        old, new = ("(" + ", ".join(f'{side}."{c}"' for c in order) + ")" for side in ("t", "excluded"))
        newer = f'(t."{name}_at" IS NULL OR {new} > {old}) AND excluded."{name}_at" IS NOT NULL'
        return {c: f'CASE WHEN {newer} THEN excluded."{c}" ELSE t."{c}" END' for c in self.columns(name, kind)}

    def shown(self, name: str, kind: DataType) -> dict[str, str]:
        values = [c for c in self._fields(name, kind) if c not in {f"{name}_{part}" for part in _ORDER}]
        return {c: f'CASE WHEN NOT "{name}_deleted" THEN "{c}" END' for c in values}

    def _fields(self, name: str, kind: DataType) -> dict[str, tuple[str, DataType]]:
        assert isinstance(kind, StructType)  # noqa: S101
        return {_column(name, f.name): (f.name, f.dataType) for f in kind}


_ORDER = ("at", "topic", "partition", "offset", "deleted")


def _column(name: str, field: str) -> str:
    """Of a `Latest` of that name: the parts of its order would be the same columns in each."""
    return f"{name}_{field}" if field in _ORDER else field


def latest(order: Column | str, *, deleted: Column | None = None, **columns: Column | str) -> Column:
    """What a transform selects for a `Latest` measure: `columns` as of the event's place in `order`."""
    place = [F.col(c).alias(c) for c in _ORDER[1:4]]
    flag = (F.lit(False) if deleted is None else F.coalesce(deleted, F.lit(False))).alias("deleted")
    values = [(F.col(c) if isinstance(c, str) else c).alias(n) for n, c in columns.items()]
    at = (F.col(order) if isinstance(order, str) else order).alias("at")
    return F.struct(at, *place, flag, *values)


@dataclass(frozen=True)
class First(Measure):
    """The first different values, `most` of them at most: structs, in the order of their fields.

    The `most` least values of two sets together are those of each, added up: a bounded set is a monoid as well. The
    state is a sorted array of structs; stored, each field is an array of its own, all of them in that one order.
    """

    most: int

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, StructType) and all(isinstance(f.dataType, ColumnTypes.ORDERED) for f in kind)

    def prepare(self, value: Column, kind: DataType) -> Column:
        assert isinstance(kind, StructType)  # noqa: S101
        fields = [clean(value[f.name], f.dataType).alias(f.name) for f in kind]
        return F.when(value.isNotNull(), F.struct(*fields))

    def total(self, prepared: Column) -> Column:
        return comparable(F.collect_set(prepared))

    def plus(self, states: Column) -> Column:
        return comparable(F.array_distinct(F.flatten(F.collect_list(states))))

    def settle(self, gathered: Column) -> Column:
        return F.when(F.size(gathered) > 0, F.slice(gathered, 1, self.most))

    def stored(self, name: str, state: Column, kind: DataType) -> dict[str, Column]:
        return {column: state[column] for column in self.columns(name, kind)}

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        assert isinstance(kind, StructType)  # noqa: S101
        return {f.name: sql_type(ArrayType(f.dataType)) for f in kind}

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        fields = list(self.columns(name, kind))
        both_sides = ", ".join(f't."{f}" || excluded."{f}"' for f in fields)
        values = ", ".join(f'"{f}"' for f in fields)
        order = ", ".join(f'value."{f}" NULLS FIRST' for f in fields)  # as Spark sorts structs
        kept = f"FROM unnest({both_sides}) AS value({values}) GROUP BY {values} ORDER BY {order} LIMIT {self.most}"
        return {f: f"nullif(ARRAY(SELECT value.\"{f}\" {kept}), '{{}}')" for f in fields}

    def shown(self, name: str, kind: DataType) -> dict[str, str]:
        return {column: f'"{column}"' for column in self.columns(name, kind)}


@dataclass(frozen=True)
class Distinct(Measure):
    """How many different values, with a relative standard error of at most `error`.

    Registers after Flajolet et al. (HyperLogLog, 2007): a value's 64-bit hash names a register by its low p bits and
    a rank by the leading zeros of the rest; a register keeps its greatest rank. The state is the sorted array of
    `register * 64 + rank` of the registers in use, the same bytes however the values were grouped. The estimate is
    made when reading, by Ertl's estimator (2017).
    """

    error: float = 0.02

    @property
    def precision(self) -> int:
        """p, for 2**p registers: the standard error is 1.04 / sqrt(2**p)."""
        return max(4, min(16, math.ceil(math.log2((1.04 / self.error) ** 2))))

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, ColumnTypes.ORDERED)

    def prepare(self, value: Column, kind: DataType) -> Column:
        p = self.precision
        hashed = F.xxhash64(clean(value, kind))
        rest = F.shiftrightunsigned(hashed, p)
        length = F.when(rest == 0, 0).otherwise(F.length(F.bin(rest)))
        code = F.shiftleft(hashed.bitwiseAND(F.lit((1 << p) - 1)), 6) + (F.lit(65 - p) - length)
        return F.when(value.isNotNull(), code.cast("int"))

    def total(self, prepared: Column) -> Column:
        return comparable(F.collect_set(prepared))

    def plus(self, states: Column) -> Column:
        return comparable(F.array_distinct(F.flatten(F.collect_list(states))))

    def settle(self, gathered: Column) -> Column:
        def greatest_of_its_register(code: Column, i: Column) -> Column:
            following = F.get(gathered, i + 1)
            return F.coalesce(F.shiftright(following, 6) != F.shiftright(code, 6), F.lit(True))

        return F.when(F.size(gathered) > 0, F.filter(gathered, greatest_of_its_register))

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: "integer[]"}

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'truelog.distinct_estimate("{name}", {self.precision})'}


@dataclass(frozen=True)
class Quantiles(Measure):
    """The distribution of whole numbers, read as quantiles within a relative `error`.

    A histogram of logarithmic buckets with exact counts: a value keeps its leading b + 1 bits (b from `error`), so the
    middle of its bucket is off by at most 2**-(b+1) of it. Negative values mirror positive ones. In Spark the state
    is an array of (bucket, n); stored, the two alternate in one bigint array.
    """

    error: float = 0.01
    shows: tuple[float, ...] = (0.5, 0.95, 0.99)
    apart = True

    @property
    def bits(self) -> int:
        return max(1, math.ceil(-math.log2(self.error)) - 1)

    def accepts(self, kind: DataType) -> bool:
        return isinstance(kind, _WHOLE)

    def prepare(self, value: Column, kind: DataType) -> Column:
        size = F.abs(F.greatest(value.cast("bigint"), F.lit(-(2**63 - 1))))
        shift = F.greatest(F.length(F.bin(size)) - (self.bits + 1), F.lit(0))
        # shiftright takes no column of shifts from Python's functions, SQL's does
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

    def stored(self, name: str, state: Column, kind: DataType) -> dict[str, Column]:
        pairs = F.transform(state, lambda e: F.array(e["bucket"].cast("bigint"), e["n"]))
        return {name: F.flatten(pairs)}

    def columns(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: "bigint[]"}

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f'truelog.quantiles_plus(t."{name}", excluded."{name}")'}

    def shown(self, name: str, kind: DataType) -> dict[str, str]:
        return {
            f"{name}_p{100 * q:g}".replace(".", "_"): f'truelog.quantile("{name}", {q}, {self.bits})'
            for q in self.shows
        }


def require_accepted(view: str, measures: Mapping[str, Measure], kinds: Mapping[str, DataType]) -> None:
    """Refuse a column whose type its measure cannot add up exactly."""
    for name, measure in measures.items():
        if not measure.accepts(kinds[name]):
            raise BadDeclaration(
                f"{view}.{name}: {type(measure).__name__} cannot add up {kinds[name].simpleString()}; "
                f"cast it in the transform (floats never add up exactly: scale them to whole numbers)."
            )
