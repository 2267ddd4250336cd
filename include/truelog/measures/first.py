"""The first distinct values."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from truelog.measures.columns import LONGEST, ColumnTypes, clean, comparable, limited, sql_type
from truelog.measures.measure import Measure

_STATE_BYTES = 2**28  # of the values in a state, so that a merge stays far below PostgreSQL's 1 GB


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

    def may_keep(self, name: str, key: Sequence[str]) -> Column | None:
        return self._is_early(F.col(name), key)

    def _is_early(self, value: Column, key: Sequence[str]) -> Column:
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

    def may_keep(self, name: str, key: Sequence[str]) -> Column | None:
        value = F.col(name)
        distinct = value.dropFields(self.seen)
        copies = Window.partitionBy(*key, distinct).orderBy(value)
        return self._is_early(distinct, key) & (F.row_number().over(copies) == 1)

    def settle(self, gathered: Column) -> Column:
        def is_first(value: Column, number: Column) -> Column:
            """Whether the value before it in the sorted array is another value."""
            before = F.get(gathered, number - 1).dropFields(self.seen)
            return (number == 0) | ~before.eqNullSafe(value.dropFields(self.seen))

        return super().settle(F.filter(gathered, is_first))

    def _distinct(self, fields: list[str]) -> list[str]:
        return fields[:-1]
