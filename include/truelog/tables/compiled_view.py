"""A compiled view: a view checked against its events, with its column types and the fingerprint of its code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from truelog.measures.columns import bounded, clean, sql_type
from truelog.support.errors import CodeChanged
from truelog.tables.dedupe.compile import SEEN
from truelog.tables.fold.compiled import Fold
from truelog.tables.join.compile import Joined
from truelog.views.catalogue import table_name
from truelog.views.group import CHECKPOINTS, Group
from truelog.views.view import View

STATUS = "status"  # the column that says whether a row of a view with a window is open, complete or corrected
_KEY_BYTES = 2_000  # limit for the text in a key: a PostgreSQL B-tree accepts rows of up to 2,704 bytes

RowFilter = Callable[[DataFrame], DataFrame]  # selects rows by their key columns


def all_rows(rows: DataFrame) -> DataFrame:
    return rows


def with_keys(keys: DataFrame) -> RowFilter:
    """A filter that selects the rows that equal one of `keys` in all of its columns; NULL equals NULL."""

    def only(rows: DataFrame) -> DataFrame:
        selected = F.broadcast(keys.toDF(*(f"_{k}" for k in keys.columns)))
        equal = reduce(Column.__and__, (rows[k].eqNullSafe(selected[f"_{k}"]) for k in keys.columns))
        return rows.join(selected, equal, "left_semi")

    return only


@dataclass(frozen=True)
class CompiledView:
    """A view with its name, the types of the columns that its transform selects, and its fingerprint.

    A side table is compiled like a view. It has the name of the view that owns it, and its own name in `side`.
    """

    name: str
    view: View
    dtypes: Mapping[str, DataType]
    fingerprint: str
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)  # of each topic, the columns the view needs
    scans: int = 1  # how often the transform reads its events: a union of two selections reads them twice
    side: str = ""  # the name of a side table; "" for the table that readers query
    sides: tuple["CompiledView", ...] = ()
    fold: Fold | None = None  # makes the rows of a Group, or of a side table, from the inputs
    joined: Joined | None = None  # the matches that a table of a Join counts

    @property
    def table(self) -> str:
        """The name of the view's table, which is the same in every schema."""
        return table_name(self.name, self.view.version, self.side)

    @property
    def relation(self) -> str:
        """The name of what readers see of the table."""
        return f"{self.name}_{self.side}" if self.side else self.name

    @property
    def schema(self) -> str:
        """The schema with the view's own rows, which comparisons check: those of its stream, or of the batch layer."""
        return "batch" if self.view.batch_only else "state"

    @property
    def group(self) -> Group:
        """The declaration of a Group."""
        assert isinstance(self.view, Group)  # noqa: S101
        return self.view

    @property
    def is_derived(self) -> bool:
        """Whether the rows follow from other tables, and not from events."""
        return self.fold is not None or self.joined is not None

    @property
    def inputs(self) -> "CompiledView | None":
        """The side table from which the rows are folded."""
        return None if self.fold is None else self.fold.inputs

    @property
    def folded_tables(self) -> tuple["CompiledView", ...]:
        """The tables of a Group that are folded from its inputs, all by the same fold."""
        return tuple(each for each in self.tables if each.fold is not None)

    @property
    def checkpoints(self) -> "CompiledView | None":
        """The side table with the checkpoints of a Group of steps."""
        return next((each for each in self.sides if each.side == CHECKPOINTS), None)

    @property
    def sources(self) -> tuple["CompiledView", ...]:
        """The view's tables to which events are added."""
        return tuple(each for each in self.tables if not each.is_derived)

    @property
    def seen(self) -> "CompiledView | None":
        """The side table with the ids of events, of a view with `dedupe`."""
        return next((each for each in self.tables if each.side == SEEN), None)

    @property
    def daily(self) -> tuple["CompiledView", ...]:
        """The sources whose states of single log days add up. Those of `seen` expire, so it has no partials."""
        return tuple(each for each in self.sources if each.side != SEEN)

    @property
    def tables(self) -> tuple["CompiledView", ...]:
        """The tables that the view owns: the table that readers query, and the side tables."""
        return self, *self.sides

    def require_same_code(self, fingerprint: object, what: str) -> None:
        """Refuse to continue with data that other code made.

        Raises:
            CodeChanged: the message says what to do.
        """
        if fingerprint != self.fingerprint:
            raise CodeChanged(
                f"{self.name} changed: {what} made by other code. Bump `version` in its file and rebuild, "
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
        version = f"('{self.name}', {self.view.version})"
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
        return bounded(value, _KEY_BYTES // sum(isinstance(self.dtypes[k], StringType) for k in self.view.key))

    def transformed(self, events: Mapping[str, DataFrame]) -> DataFrame:
        """The rows that the transform selects from events, given a frame for each topic."""
        return self.view.contributions(*(events[topic] for topic in self.view.reads))

    def totals_of(self, events: Mapping[str, DataFrame], only: RowFilter = all_rows) -> DataFrame:
        """Events → states, one row for each key that `only` selects.

        The stream, rebuilds and verification all call this method. The batch layer equals the stream because no other
        code turns events into states.
        """
        if self.fold is not None:
            inputs = self.fold.inputs
            return only(self.folded(inputs.stored(inputs.totals_of(events))))
        if self.joined is not None:
            return only(self.joined.rows(self.view.key, lambda table: table.totals_of(events)))
        return self.totals(self.transformed(events), only)

    def folded(self, inputs: DataFrame) -> DataFrame:
        """Whole groups of stored inputs → the states of the table's rows."""
        assert self.fold is not None  # noqa: S101
        return self.rows_of(self.fold.run(inputs))

    def rows_of(self, folded: DataFrame) -> DataFrame:
        """The result of the fold → the states of the table's rows."""
        assert self.fold is not None  # noqa: S101
        return self.prepared(self.fold.rows(folded))

    def totals(self, rows: DataFrame, only: RowFilter = all_rows) -> DataFrame:
        """Rows as the transform selects them → states, one row for each key that `only` selects."""
        view, prepared = self.view, self._without_later_values(only(self.prepared(rows)))
        per_value = [n for n, m in view.measures.items() if m.per_value]
        if not per_value:
            return self._settled(prepared.groupBy(*view.key).agg(*self._totalled))
        # First count per key and value, then collect: a busy key's list then contains values, not events.
        copied = prepared.withColumns({f"_{n}": F.col(n) for n in per_value})
        counts = copied.groupBy(*view.key, *(f"_{n}" for n in per_value)).agg(*self._totalled)
        return self.plus(self._settled(counts.drop(*(f"_{n}" for n in per_value))))

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

    # Columns are cached, because each column takes a dozen calls to the JVM, and a batch needs hundreds of columns.

    @cached_property
    def _prepared(self) -> list[Column]:
        keys = [self.canonical_key(k).alias(k) for k in self.view.key]
        return keys + [m.prepare(F.col(n), self.dtypes[n]).alias(n) for n, m in self.view.measures.items()]

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


def needed_columns(views: Iterable[CompiledView]) -> dict[str, frozenset[str]]:
    """The columns that any of these views needs, by topic."""
    needed: dict[str, frozenset[str]] = {}
    for each in views:
        for topic, columns in each.columns.items():
            needed[topic] = needed.get(topic, frozenset()) | columns
    return needed


def extend_view(compiled: CompiledView, column: str, dtype: DataType) -> CompiledView:
    """The same table with one more key column in front, which separates many cases in one table."""
    view = replace(compiled.view, key=(column, *compiled.view.key))
    joined = compiled.joined and compiled.joined.with_key(column, lambda table: extend_view(table, column, dtype))
    return replace(compiled, view=view, dtypes={column: dtype, **compiled.dtypes}, joined=joined)
