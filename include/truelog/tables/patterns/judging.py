"""Judging: how rows follow from the inputs of groups and from rules, which are records of the log themselves."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from truelog.patterns.versions import Book, Change, Read, Version
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.fingerprint import declared_parts, of_parts
from truelog.tables.fold.compiled import Fold
from truelog.tables.table import Table
from truelog.views.group import INPUTS

Run = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, kw_only=True)
class Judging(Fold):
    """A fold that also needs rules, which `with_changes` gives it.

    rules: the side table with the records of rules.
    read: what a record declares.
    judge: versions of rules → inputs → rows.
    judge_changed: inputs → rows, the names of rules, and all versions of these rules → inputs → rows, if the other
        rules stay as they are. None: `judge` is called again.
    is_local: whether a row of a version follows from one event, so that the end of a version changes no earlier row.
    """

    rules: Table
    read: Read[Any]
    judge: Callable[[Sequence[Version[Any]]], Run]
    judge_changed: Callable[[Any, Collection[str], Sequence[Version[Any]]], Run] | None = None
    is_local: bool = False

    @property
    def follows_from(self) -> Sequence[Table]:
        return (self.inputs, self.rules)

    def states(self, table: Table, states_of: Callable[[Table], DataFrame]) -> DataFrame:
        known = self.with_changes(collected(self.rules, states_of(self.rules)))
        return known.folded(table, self.inputs.stored(states_of(self.inputs)))

    def book(self, changes: Iterable[Change]) -> Book[Any]:
        return Book[Any]().with_changes(changes, self.read)

    def with_changes(self, changes: Iterable[Change]) -> Fold:
        """The fold for the rules that follow from these records."""
        return self.with_versions(self.book(changes).every())

    def with_versions(self, known: Sequence[Version[Any]]) -> Fold:
        """The fold for these versions of rules."""
        return self._with_run(self.judge(known))

    def with_book(self, book: Book[Any], before: Book[Any], fold: Fold) -> Fold:
        """The fold for the versions in a book that was made from another one, given the fold for that."""
        if self.judge_changed is None:
            return self.with_versions(book.every())
        names = book.changed_since(before)
        return self._with_run(self.judge_changed(fold.run, names, book.of(names)))

    def _with_run(self, run: Run) -> Fold:
        return Fold(self.inputs, self.by, run, self.rows, self.failed, self.since, self.first)


def compile_judged(compiling: Compiling, rows: pa.Schema, judging: Callable[[Any, Table, Table], Judging]) -> Table:
    """Compile the table of a view whose rows have these columns and follow from its inputs and from rules."""
    view = compiling.view
    made_by = of_parts(*declared_parts(view), repr(view.named), f"language {view.language}")
    dtypes = {each.name: each.dataType for each in from_arrow_schema(rows)}
    derivation = judging(view, compiling.side_table(INPUTS), compiling.side_table(view.rules_side))
    return Table(compiling.name, view, dtypes, made_by, scans=0, derivation=derivation)


def judging_of(table: Table) -> Judging:
    """How rows come about that follow from rules."""
    assert isinstance(table.derivation, Judging)  # noqa: S101
    return table.derivation


def columns_of(rules: Table) -> tuple[str, ...]:
    """The columns of a side table of rules, in the order of the fields of `Change`."""
    return (*rules.view.key, *rules.view.measures)


def collected(rules: Table, states: DataFrame) -> list[Change]:
    """The records of rules, given the states of their table."""
    names = columns_of(rules)
    return [Change(*(row[name] for name in names)) for row in rules.stored(states).collect()]


def with_fold(compiled: CompiledView, fold: Fold) -> CompiledView:
    """The view with the fold for known rules."""
    return CompiledView((replace(compiled.own, derivation=fold), *compiled.sides))
