"""Table: what merges. A view owns one or more tables; each has columns, a key, measures, and SQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from truelog.measures.columns import bounded, clean, sql_type
from truelog.support.errors import CodeChanged
from truelog.tables.row_filter import RowFilter, all_rows
from truelog.views.catalogue import table_name
from truelog.views.view import View

STATUS = "status"  # the column that says whether a row of a view with a window is open, complete or corrected
KEY_BYTES = 2_000  # limit for the text in a key: a PostgreSQL B-tree accepts rows of up to 2,704 bytes


class Derivation(Protocol):
    """How the rows of a table follow from other tables of the view."""

    @property
    def follows_from(self) -> Sequence["Table"]:
        """The tables from which the rows follow."""

    def states(self, table: "Table", states_of: Callable[["Table"], DataFrame]) -> DataFrame:
        """The states of the table's rows, given those of the tables from which they follow."""


@dataclass(frozen=True)
class Table:
    """A table of a view: its declaration, the types of the columns that its transform selects, and its fingerprint.

    A side table is declared like a view. The fingerprint of the table that readers query is that of the whole view.
    """

    owner: str  # the name of the view
    view: View
    dtypes: Mapping[str, DataType]
    fingerprint: str
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of each topic, the columns the table needs
    scans: int = 1  # how often the transform reads its events: a union of two selections reads them twice
    reads_offsets: bool = False  # whether more than a tie depends on an event's offset
    side: str = ""  # the name of a side table; "" for the table that readers query
    text_bytes: int | None = None  # limit for each text in the key; None shares the limit of the key among its texts
    matched: frozenset[str] = (
        frozenset()
    )  # the columns beside the key that indexes contain, whose texts have that limit
    derivation: Derivation | None = None  # None if events are added to the table

    @property
    def name(self) -> str:
        """The name of the table, which is the same in every schema."""
        return table_name(self.owner, self.view.version, self.side)

    @property
    def relation(self) -> str:
        """The name of what readers see of the table."""
        return f"{self.owner}_{self.side}" if self.side else self.owner

    @property
    def schema(self) -> str:
        """The schema with the view's own rows, which comparisons check: those of its stream, or of the batch layer."""
        return "batch" if self.view.batch_only else "state"

    @property
    def follows_from(self) -> Sequence["Table"]:
        """The tables from which the rows follow. Empty if events are added to the table."""
        return () if self.derivation is None else self.derivation.follows_from

    def require_same_code(self, fingerprint: object, what: str) -> None:
        """Refuse to continue with data that other code made.

        Raises:
            CodeChanged: the message says what to do.
        """
        if fingerprint != self.fingerprint:
            raise CodeChanged(
                f"{self.owner} changed: {what} made by other code. Bump `version` in its file and rebuild, "
                f"or restore the code of version {self.view.version}."
            )

    @cached_property
    def key_columns(self) -> dict[str, str]:
        return {k: sql_type(self.dtypes[k]) for k in self.view.key}

    @cached_property
    def measure_columns(self) -> dict[str, str]:
        return {c: t for n, m in self.view.measures.items() for c, t in m.columns(n, self.dtypes[n]).items()}

    @property
    def stored_columns(self) -> dict[str, str]:
        return {**self.key_columns, **self.measure_columns}

    @property
    def merged(self) -> dict[str, str]:
        """The SQL expression that merges each measure column."""
        return {c: e for n, m in self.view.measures.items() for c, e in m.merged(n, self.dtypes[n]).items()}

    @property
    def shown(self) -> dict[str, str]:
        """The SQL expression of each column that readers see, key columns first."""
        return self.shown_at(self.clock)

    def shown_at(self, clock: str) -> dict[str, str]:
        """Like `shown`, for rows at positions where the log's clock has the value of this SQL."""
        columns = self.shown_values
        if self.view.window is not None:
            columns[STATUS] = self.view.window.status_sql(clock)
        return columns

    @property
    def shown_values(self) -> dict[str, str]:
        """The columns that readers see and that follow from the events alone: not the status, which needs a clock."""
        columns = {k: f'"{k}"' for k in self.view.key}
        shown = {c: e for n, m in self.view.measures.items() for c, e in m.shown(n, self.dtypes[n]).items()}
        if self.shown_if != "true":  # deleted rows are not shown, so an index on a plain column serves readers
            shown = {c: f'"{c}"' for c in shown}
        return columns | shown

    @property
    def shown_if(self) -> str:
        """The SQL condition for the rows that readers see. If a `Latest` is the only measure, a row may be deleted."""
        conditions = [measure.exists_if(name) for name, measure in self.view.measures.items()]
        return conditions[0] if len(conditions) == 1 else "true"

    @property
    def clock(self) -> str:
        """The SQL of the log's clock at the positions of the rows that readers see."""
        version = f"('{self.owner}', {self.view.version})"
        return f"(SELECT time FROM truelog.clock WHERE (view, version) = {version})"  # noqa: S608  the name is checked

    @property
    def age_column(self) -> str | None:
        """The key column that decides when a row expires. None if the view has no `keep`."""
        return self.view.keep and next(k for k, t in self.key_columns.items() if t == "timestamptz")

    def prepared(self, rows: DataFrame) -> DataFrame:
        """Rows as the transform selects them → keys in canonical form, and each row's contribution to the measures."""
        return rows.select(*self._prepared)

    def canonical_key(self, name: str) -> Column:
        """A key column in canonical form. A hostile URL must not be too long for the unique index."""
        value, dtype = clean(F.col(name), self.dtypes[name]), self.dtypes[name]
        if not isinstance(dtype, StringType):
            return value
        return bounded(value, self._text_bytes)

    @property
    def _text_bytes(self) -> int:
        return self.text_bytes or KEY_BYTES // sum(isinstance(self.dtypes[k], StringType) for k in self.view.key)

    def _measured(self, name: str) -> Column:
        """The column that the transform selects for a measure, with short texts where an index contains them."""
        column, dtype = F.col(name), self.dtypes[name]
        for part in sorted(self.matched):
            if isinstance(dtype, StructType) and part in dtype.names and isinstance(dtype[part].dataType, StringType):
                short = bounded(clean(column[part], dtype[part].dataType), self._text_bytes)
                column = column.withField(part, short)
        return column

    def transformed(self, events: Mapping[str, DataFrame]) -> DataFrame:
        """The rows that the transform selects from events, given a frame for each topic."""
        return self.view.contributions(*(events[topic] for topic in self.view.reads))

    def totals_of(self, events: Mapping[str, DataFrame], only: RowFilter = all_rows) -> DataFrame:
        """Events → states, one row for each key that `only` selects.

        The stream, rebuilds and verification all call this method. The batch layer equals the stream because no other
        code turns events into states.
        """
        if self.derivation is not None:
            return only(self.derivation.states(self, lambda table: table.totals_of(events)))
        return self.totals(self.transformed(events), only)

    def totals(self, rows: DataFrame, only: RowFilter = all_rows) -> DataFrame:
        """Rows as the transform selects them → states, one row for each key that `only` selects."""
        return self.added_up(only(self.prepared(rows)))

    def added_up(self, rows: DataFrame) -> DataFrame:
        """Prepared rows → states, one row for each key."""
        view, prepared = self.view, self._without_later_values(rows)
        per_value = [n for n, m in view.measures.items() if m.per_value]
        if not per_value:
            return self._settled(prepared.groupBy(*view.key).agg(*self._totalled))
        # First count per key and value, then collect: a busy key's list then contains values, not events.
        copied = prepared.withColumns({f"_{n}": F.col(n) for n in per_value})
        counts = copied.groupBy(*view.key, *(f"_{n}" for n in per_value)).agg(*self._totalled)
        return self.plus(counts.drop(*(f"_{n}" for n in per_value)))

    def _without_later_values(self, prepared: DataFrame) -> DataFrame:
        """Set to NULL the values that a measure such as `First` cannot keep.

        Spark would otherwise collect all distinct values of a key before it cuts them. A window spills to disk instead.
        """
        for name, measure in self.view.measures.items():
            may_keep = measure.may_keep(name, self.view.key)
            if may_keep is not None:
                prepared = prepared.withColumn(name, F.when(may_keep, F.col(name)))
        return prepared

    def plus(self, states: DataFrame) -> DataFrame:
        """States, several rows for a key → one row for each key."""
        return self._settled(states.groupBy(*self.view.key).agg(*self._summed))

    def stored(self, states: DataFrame, *further: str) -> DataFrame:
        """States → the columns that PostgreSQL stores, after these further columns of the frame."""
        return states.select(*further, *self._stored)

    def hashed(self, states: DataFrame) -> DataFrame:
        """The stored columns with `_row_hash` in front, which shows whether all rows reached the database."""
        return self.stored(states).select(*self._hashed)

    def _settled(self, gathered: DataFrame) -> DataFrame:
        return gathered.select(*self._ordered)

    def with_key(self, column: str, dtype: DataType) -> "Table":
        """The same table with one more key column in front, which separates many cases in one table."""
        view = replace(self.view, key=(column, *self.view.key))
        return replace(self, view=view, dtypes={column: dtype, **self.dtypes})

    # Columns are cached, because each column takes a dozen calls to the JVM, and a batch needs hundreds of columns.

    @cached_property
    def _prepared(self) -> list[Column]:
        keys = [self.canonical_key(k).alias(k) for k in self.view.key]
        return keys + [m.prepare(self._measured(n), self.dtypes[n]).alias(n) for n, m in self.view.measures.items()]

    @cached_property
    def _totalled(self) -> list[Column]:
        return [m.total(F.col(n)).alias(n) for n, m in self.view.measures.items()]

    @cached_property
    def _summed(self) -> list[Column]:
        return [m.plus(F.col(n)).alias(n) for n, m in self.view.measures.items()]

    @cached_property
    def _ordered(self) -> list[Column]:
        keys = [F.col(k) for k in self.view.key]
        return keys + [m.settle(F.col(n)).alias(n) for n, m in self.view.measures.items()]

    @cached_property
    def _stored(self) -> list[Column]:
        columns = {k: F.col(k) for k in self.view.key}
        for name, measure in self.view.measures.items():
            columns |= measure.stored(name, F.col(name), self.dtypes[name])
        return [column.alias(name) for name, column in columns.items()]

    @cached_property
    def _hashed(self) -> list[Column]:
        return [F.xxhash64(*self.stored_columns).alias("_row_hash"), *map(F.col, self.stored_columns)]
