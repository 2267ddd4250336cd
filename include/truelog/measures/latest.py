"""The columns of the last event in a declared order."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from truelog.measures.columns import clean, limited, sql_type
from truelog.measures.measure import Measure
from truelog.schema.names import COORDINATES

_PLACE = ("at", *COORDINATES)
_ORDER = (*_PLACE, "deleted")


@dataclass(frozen=True)
class Latest(Measure):
    """The columns of the last event in a declared order, never in arrival order. A NULL among them counts as a value.

    The transform selects `latest(order, deleted=…, name=…, …)`. The state is (order, topic, partition, offset,
    deleted flag, columns); the coordinates make the order total. A deleted row stays in the table, so that an
    older event that arrives late cannot restore it; readers do not see its columns. If the view has no other
    measure, they do not see the row.
    """

    keeps_one_event = True

    def accepts(self, dtype: DataType) -> bool:
        if not isinstance(dtype, StructType) or dtype.fieldNames()[: len(_ORDER)] != list(_ORDER):
            return False
        return not isinstance(dtype["at"].dataType, ArrayType)  # Spark and PostgreSQL order its NULLs differently

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
        order = [f"{name}_{part}" for part in _PLACE]
        old, new = ("(" + ", ".join(f'{side}."{c}"' for c in order) + ")" for side in ("t", "excluded"))
        newer = f'(t."{name}_at" IS NULL OR {new} > {old}) AND excluded."{name}_at" IS NOT NULL'
        return {c: f'CASE WHEN {newer} THEN excluded."{c}" ELSE t."{c}" END' for c in self.columns(name, dtype)}

    def shown(self, name: str, dtype: DataType) -> dict[str, str]:
        values = [c for c in self._fields(name, dtype) if c not in {f"{name}_{part}" for part in _ORDER}]
        return {c: f'CASE WHEN NOT "{name}_deleted" THEN "{c}" END' for c in values}

    def exists_if(self, name: str) -> str:
        return f'"{name}_deleted" IS FALSE'

    def _fields(self, name: str, dtype: DataType) -> dict[str, tuple[str, DataType]]:
        assert isinstance(dtype, StructType)  # noqa: S101
        return {_column(name, f.name): (f.name, f.dataType) for f in dtype}


def _column(name: str, field: str) -> str:
    """The column for a field. Parts of the order get the measure's name as a prefix, so that names do not collide."""
    return f"{name}_{field}" if field in _ORDER else field


def latest(order: Column | str, *, deleted: Column | None = None, **columns: Column | str) -> Column:
    """The column that a transform selects for a `Latest` measure: `columns`, with the event's place in `order`."""
    coordinates = [F.col(c).alias(c) for c in COORDINATES]
    flag = (F.lit(False) if deleted is None else F.coalesce(deleted, F.lit(False))).alias("deleted")
    values = [(F.col(c) if isinstance(c, str) else c).alias(n) for n, c in columns.items()]
    at = (F.col(order) if isinstance(order, str) else order).alias("at")
    return F.struct(at, *coordinates, flag, *values)
