"""Measures: how one column of a view is aggregated.

A measure is a commutative monoid whose zero is NULL. Its state is the same for any grouping and order of the events,
byte for byte, also that of a sketch.
The algebra is implemented twice: as native Spark expressions, which total a batch, and as SQL, which merges the batch
into the table. The laws in `tests/laws` compare the two implementations.

A measure is one module, with a file of the same name for its SQL functions if it has some, and is listed in
`registry.py`. Other packages ask a measure these questions, and never ask for its type.

SQL names are quoted, because a column may be called `order`. They need no escaping, because `tables.compiler` checks
them.

From events to the table:  prepare (a row's contribution) → total (aggregate) → settle → stored (as in PostgreSQL)
To add states:             plus (aggregate) → settle in Spark,  `merged` in PostgreSQL

`plus` also adds totals that are not settled yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql.types import DataType

from truelog.measures.columns import clean, limited, sql_type
from truelog.support.errors import BadDeclaration


@dataclass(frozen=True)
class Measure:
    """The interface of a measure; `dtype` is the type of the column that the transform selects for it."""

    per_value = False  # True if rows are first counted per prepared value, because a list of all rows would be too long
    is_additive = False  # True if states are numbers whose sum is the state of all events
    error = 0.0  # the relative error of what readers see; 0 if it is exact
    keeps_one_event = False  # True if a state is an event's place, its columns, and whether it deletes the row

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

    def may_keep(self, name: str, key: Sequence[str]) -> Column | None:
        """Whether a prepared value may be in the state of its key. If it is None, every value may."""
        return None

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

    def united(self, name: str) -> str | None:
        """The SQL aggregate of the stored states of several rows. None if readers cannot add rows of this measure."""
        return None

    def exists_if(self, name: str) -> str:
        """The SQL condition for a row that has no other measure to exist."""
        return "true"


def require_accepted(view: str, measures: Mapping[str, Measure], dtypes: Mapping[str, DataType]) -> None:
    """Reject a column whose type its measure cannot aggregate exactly."""
    for name, measure in measures.items():
        if not measure.accepts(dtypes[name]):
            raise BadDeclaration(
                f"{view}.{name}: {type(measure).__name__} cannot aggregate {dtypes[name].simpleString()}; "
                f"cast it in the transform (float sums are never exact: scale them to integers)."
            )
