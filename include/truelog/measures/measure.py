"""Measures: how one column of a view is aggregated.

A measure is a commutative monoid whose zero is NULL. Its state is the same for any grouping and order of the events.
The algebra is implemented twice: as native Spark expressions, which total a batch, and as SQL, which merges the batch
into the table. The laws in `tests/laws` compare the two implementations.

SQL names are quoted, because a column may be called `order`. They need no escaping, because `views.compiled_view`
checks them.

From events to the table:  prepare (a row's contribution) → total (aggregate) → settle → stored (as in PostgreSQL)
To add states:             plus (aggregate) → settle in Spark,  `merged` in PostgreSQL
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from truelog.measures.columns import LONGEST, ColumnTypes, clean, comparable, limited, require, sql_type
from truelog.support.errors import BadDeclaration

_SMALL = (ByteType, ShortType, IntegerType)
WHOLE = (*_SMALL, LongType)
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
        return isinstance(dtype, (*WHOLE, DecimalType))

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
class Value(Max):
    """The value of a column whose row has a single source: one event, or the fold of a Group."""

    def accepts(self, dtype: DataType) -> bool:
        element = dtype.elementType if isinstance(dtype, ArrayType) else dtype
        return isinstance(element, (*ColumnTypes.ORDERED, BinaryType))


@dataclass(frozen=True)
class Latest(Measure):
    """The columns of the last event in a declared order, never in arrival order. A NULL among them counts as a value.

    The transform selects `latest(order, deleted=…, name=…, …)`. The state is (order, topic, partition, offset,
    deleted flag, columns); the coordinates make the order total. A deleted row stays in the table, so that an
    older event that arrives late cannot restore it; readers do not see its columns. If the view has no other
    measure, they do not see the row.
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

    def is_kept(self, value: Column, key: Sequence[str]) -> Column:
        """Whether a prepared value may be in the state of its key. Others need not be collected."""
        rank = F.dense_rank().over(Window.partitionBy(*key).orderBy(value))
        return rank <= self.most + 1  # NULL has a rank of its own

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        fields = {f: f'value."{f}"' for f in self.columns(name, dtype)}
        both_sides = ", ".join(f't."{f}" || excluded."{f}"' for f in fields)
        values = ", ".join(f'"{f}"' for f in fields)
        distinct = self._distinct(list(fields.values()))
        order = ", ".join(f"{f} NULLS FIRST" for f in distinct)  # the way Spark sorts structs
        groups = f"GROUP BY {', '.join(distinct)} ORDER BY {order} LIMIT {self.most}"
        first = f"FROM unnest({both_sides}) AS value({values}) {groups}"
        least = {f: f if f in distinct else f"(array_agg({f} ORDER BY {f} NULLS FIRST))[1]" for f in fields.values()}
        return {name: f"nullif(ARRAY(SELECT {least[f]} {first}), '{{}}')" for name, f in fields.items()}

    def _distinct(self, fields: list[str]) -> list[str]:
        """The fields that distinguish a value from other values."""
        return fields

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        return {column: f'"{column}"' for column in self.columns(name, dtype)}


@dataclass(frozen=True)
class FirstSeen(First):
    """The first distinct values, each with the least `seen`: the last field of the structs, such as a time of arrival.

    Values that differ only in `seen` are one value. The least field of a union is the least field of its parts, so this
    is a monoid too.
    """

    seen: str

    def accepts(self, dtype: DataType) -> bool:
        return super().accepts(dtype) and isinstance(dtype, StructType) and dtype.fieldNames()[1:][-1:] == [self.seen]

    def is_kept(self, value: Column, key: Sequence[str]) -> Column:
        distinct = value.dropFields(self.seen)
        copies = Window.partitionBy(*key, distinct).orderBy(value)
        return super().is_kept(distinct, key) & (F.row_number().over(copies) == 1)

    def settle(self, gathered: Column) -> Column:
        def is_first(value: Column, number: Column) -> Column:
            """Whether the value before it in the sorted array is another value."""
            before = F.get(gathered, number - 1).dropFields(self.seen)
            return (number == 0) | ~before.eqNullSafe(value.dropFields(self.seen))

        return super().settle(F.filter(gathered, is_first))

    def _distinct(self, fields: list[str]) -> list[str]:
        return fields[:-1]


def require_accepted(view: str, measures: Mapping[str, Measure], dtypes: Mapping[str, DataType]) -> None:
    """Reject a column whose type its measure cannot aggregate exactly."""
    for name, measure in measures.items():
        if not measure.accepts(dtypes[name]):
            raise BadDeclaration(
                f"{view}.{name}: {type(measure).__name__} cannot aggregate {dtypes[name].simpleString()}; "
                f"cast it in the transform (float sums are never exact: scale them to integers)."
            )
