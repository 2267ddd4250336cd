"""A view compiled against its events: the types of its columns, and the fingerprint of its code."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructType

from truelog.schema.event import FUTURE_LIMIT
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration, CodeChanged
from truelog.views.catalogue import table_name
from truelog.views.columns import ColumnTypes, bounded, clean, sql_type
from truelog.views.measures import require_accepted
from truelog.views.view import View

# What a record adds must depend on nothing but the record, so nothing that looks at two rows at once is here.
_ROW_WISE = {"Project", "Filter", "Generate", "Union", "Expand", "LocalRelation", "LogicalRDD", "SubqueryAlias"}
_KEY_BYTES = 2_000  # of text in a key: PostgreSQL's B-tree takes rows of 2,704 bytes
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAME_LENGTH = 63  # PostgreSQL cuts what is longer, without a word
_UNSTEADY = re.compile(r"expressions\.(Current\w+|Now|LocalTimestamp|InputFile\w+|\w*Python\w*)\"")

# To be raised by whoever changes what a record decodes to (`schema.decode`), or what a measure, its hash included,
# makes of it (`truelog.views.measures`): no plan shows that, and tables made before must not be added to.
MEANING = 1

RowFilter = Callable[[DataFrame], DataFrame]  # which rows to look at, told by their key columns


def all_rows(rows: DataFrame) -> DataFrame:
    return rows


@dataclass(frozen=True)
class Compiled:
    """A view with its name, the types that its transform selects, and its fingerprint."""

    name: str
    view: View
    kinds: Mapping[str, DataType]
    fingerprint: str

    @property
    def table(self) -> str:
        """The name of the view's table, in the schema `state` as in `stage`."""
        return table_name(self.name, self.view.version)

    def require_same_code(self, fingerprint: object, what: str) -> None:
        """Refuse to go on with what other code made.

        Raises:
            CodeChanged: with the cure.
        """
        if fingerprint != self.fingerprint:
            raise CodeChanged(
                f"{self.name} changed: {what} made by other code. Bump `version` in its file and rebuild, "
                f"or restore the code of version {self.view.version}."
            )

    @cached_property
    def key_columns(self) -> dict[str, str]:
        return {k: sql_type(self.kinds[k]) for k in self.view.key}

    @cached_property
    def measure_columns(self) -> dict[str, str]:
        return {c: t for n, m in self.view.measures.items() for c, t in m.columns(n, self.kinds[n]).items()}

    @property
    def stored_columns(self) -> dict[str, str]:
        return {**self.key_columns, **self.measure_columns}

    @property
    def merged(self) -> dict[str, str]:
        """SQL of each measure column after a merge."""
        return {c: e for n, m in self.view.measures.items() for c, e in m.merged(n, self.kinds[n]).items()}

    @property
    def shown(self) -> dict[str, str]:
        """SQL of each column that readers see, key first."""
        keys = {k: f'"{k}"' for k in self.view.key}
        return keys | {c: e for n, m in self.view.measures.items() for c, e in m.shown(n, self.kinds[n]).items()}

    @property
    def age_column(self) -> str | None:
        """The key column by which rows leave, where the view has `keep`."""
        return self.view.keep and next(k for k, t in self.key_columns.items() if t == "timestamptz")

    def prepared(self, rows: DataFrame) -> DataFrame:
        """Rows as the transform selects them → keys in canonical form, and each row's share of the measures."""
        return rows.select(*self._prepared)

    def _key(self, name: str) -> Column:
        """A hostile URL must not be too long for the index that keeps keys apart."""
        value, kind = clean(F.col(name), self.kinds[name]), self.kinds[name]
        if not isinstance(kind, StringType):
            return value
        return bounded(value, _KEY_BYTES // sum(isinstance(self.kinds[k], StringType) for k in self.view.key))

    def with_keys(self, keys: DataFrame) -> RowFilter:
        """Only the rows of these keys."""

        def only(rows: DataFrame) -> DataFrame:
            wanted = F.broadcast(keys.toDF(*(f"_{k}" for k in self.view.key)))
            same = reduce(Column.__and__, (rows[k].eqNullSafe(wanted[f"_{k}"]) for k in self.view.key))
            return rows.join(wanted, same, "left_semi")

        return only

    def transformed(self, events: Mapping[str, DataFrame]) -> DataFrame:
        """The rows that the transform selects from events, given a frame for each topic."""
        return self.view.transform(*(events[topic] for topic in self.view.reads))

    def totals_of(self, events: Mapping[str, DataFrame], only: RowFilter = all_rows) -> DataFrame:
        """Events → states, one row for each key that `only` lets through.

        The stream, rebuilds and verification all call this: the batch layer equals the stream because no other code
        turns events into states.
        """
        return self.totals(self.transformed(events), only)

    def totals(self, rows: DataFrame, only: RowFilter = all_rows) -> DataFrame:
        """Rows as the transform selects them → one row for each key that `only` lets through, with states."""
        view, prepared = self.view, only(self.prepared(rows))
        apart = [n for n, m in view.measures.items() if m.apart]
        if not apart:
            return self._settled(prepared.groupBy(*view.key).agg(*self._totalled))
        # Counted once per value and key before they meet in a list: a busy key's list holds values, not events.
        held = prepared.withColumns({f"_{n}": F.col(n) for n in apart})
        finer = held.groupBy(*view.key, *(f"_{n}" for n in apart)).agg(*self._totalled)
        return self.plus(self._settled(finer.drop(*(f"_{n}" for n in apart))))

    def plus(self, states: DataFrame) -> DataFrame:
        """Rows of states, several for a key → one for each key."""
        return self._settled(states.groupBy(*self.view.key).agg(*self._summed))

    def stored(self, states: DataFrame) -> DataFrame:
        """States → the columns that PostgreSQL holds."""
        return states.select(*self._stored)

    def hashed(self, states: DataFrame) -> DataFrame:
        """The same after `row_hash`, by which it is seen whether all of them came to the database."""
        return self.stored(states).select(*self._hashed)

    def _settled(self, gathered: DataFrame) -> DataFrame:
        return gathered.select(*self._ordered)

    # Columns are made once: each is a dozen questions to the JVM, and a batch needs hundreds of them.

    @cached_property
    def _prepared(self) -> list[Column]:
        keys = [self._key(k).alias(k) for k in self.view.key]
        return keys + [m.prepare(F.col(n), self.kinds[n]).alias(n) for n, m in self.view.measures.items()]

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
            columns |= measure.stored(name, F.col(name), self.kinds[name])
        return [column.alias(name) for name, column in columns.items()]

    @cached_property
    def _hashed(self) -> list[Column]:
        return [F.xxhash64(*self.stored_columns).alias("row_hash"), *map(F.col, self.stored_columns)]


def compile_view(spark: SparkSession, name: str, view: View, schemas: Mapping[str, StructType]) -> Compiled:
    """Check a view against the schemas of its events; say what it stores.

    Raises:
        BadDeclaration: the transform is not row-wise, is unsteady, or selects other columns than key and measures;
            or two of these would be one column of the table.
    """
    unknown = [topic for topic in view.reads if topic not in schemas]
    if unknown:
        raise BadDeclaration(f"{name} reads {', '.join(unknown)}: no such file in include/events/.")
    selected = view.transform(*(spark.createDataFrame([], schemas[topic]) for topic in view.reads))
    _require_steady(name, selected)
    _require_columns(name, view, selected.schema)
    kinds = {f.name: f.dataType for f in selected.schema}
    require_accepted(name, view.measures, kinds)
    _require_age(name, view, kinds)
    compiled = Compiled(name, view, kinds, _fingerprint(view, selected, schemas))
    _require_one_owner(compiled)
    _require_plain_names(compiled)
    return compiled


def extend_view(compiled: Compiled, column: str, kind: DataType) -> Compiled:
    """The same view with one more key column in front: many views' worth of cases in one table."""
    view = replace(compiled.view, key=(column, *compiled.view.key))
    return replace(compiled, view=view, kinds={column: kind, **compiled.kinds})


def _require_columns(name: str, view: View, schema: StructType) -> None:
    wanted, got = [*view.key, *view.measures], schema.fieldNames()
    if sorted(wanted) != sorted(got):
        raise BadDeclaration(f"{name}: the transform selects {got}; key and measures are {wanted}.")
    for key in view.key:
        if not isinstance(schema[key].dataType, ColumnTypes.KEY):
            raise BadDeclaration(f"{name}.{key}: {schema[key].dataType.simpleString()} cannot be a key; cast it.")


def _require_one_owner(compiled: Compiled) -> None:
    """Measures may declare columns of other names than their own: of two by one name, one would hide the other."""
    for declared in ("names", "shown"):
        owners = dict.fromkeys(compiled.view.key, "the key")
        for name, measure in compiled.view.measures.items():
            mine = f"the measure {name!r}"
            for column in getattr(measure, declared)(name, compiled.kinds[name]):
                if column in owners:
                    raise BadDeclaration(f"{compiled.name}: {_twice(owners[column], mine, column)} in the transform.")
                owners[column] = mine


def _twice(first: str, second: str, column: str) -> str:
    if first == second:
        return f"{first} makes the column {column!r} for its own order; give the one that it selects another name"
    return f"{first} and {second} both make a column {column!r}; give one of the two another name"


def _require_plain_names(compiled: Compiled) -> None:
    """Names are tables and columns in two engines, and stand in SQL."""
    relations = [f"{compiled.table}_streamed", *(f"{compiled.name}_{each}" for each in compiled.view.present)]
    for name in (*relations, *compiled.stored_columns, *compiled.shown):
        if not _PLAIN_NAME.fullmatch(name) or len(name) > _NAME_LENGTH:
            raise BadDeclaration(
                f"{compiled.name}: {name!r} cannot be a table's or a column's name; "
                f"use a-z, 0-9 and _, beginning with a letter, {_NAME_LENGTH} characters at most."
            )


def _require_age(name: str, view: View, kinds: Mapping[str, DataType]) -> None:
    if view.keep and "timestamptz" not in (sql_type(kinds[k]) for k in view.key):
        raise BadDeclaration(f"{name}: keep={view.keep!r} needs a timestamp among the key columns to tell a row's age.")


def _analyzed(selected: DataFrame) -> Any:
    return selected._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for i in range(children.size()):
        yield from _nodes(children.apply(i))


def _require_steady(name: str, selected: DataFrame) -> None:
    plan = _analyzed(selected)
    strange = sorted({n.nodeName() for n in _nodes(plan)} - _ROW_WISE)
    if strange:
        raise BadDeclaration(
            f"{name}: the transform uses {', '.join(strange)}. It may select, filter, explode and union: what a "
            f"record adds must not depend on other records, or the cut into micro-batches would show."
        )
    unsteady = sorted(set(_UNSTEADY.findall(plan.toJSON())))
    if unsteady or not plan.deterministic():
        raise BadDeclaration(
            f"{name}: the transform asks for {', '.join(unsteady) or 'a random or per-run value'}; a rebuild would "
            f"answer otherwise. Native expressions over the event's own columns only."
        )


def _fingerprint(view: View, selected: DataFrame, schemas: Mapping[str, StructType]) -> str:
    parts = [
        _analyzed(selected).canonicalized().toString(),
        repr(view.key),
        repr(dict(view.measures)),
        repr(view.keep and seconds(view.keep)),
        *(schemas[topic].json() for topic in view.reads),
        f"meaning {MEANING}, future limit {FUTURE_LIMIT}",
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
