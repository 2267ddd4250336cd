"""A compiled view: a view checked against its events, as the list of its tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from truelog.tables.table import Table
from truelog.views.view import View


@dataclass(frozen=True)
class Compiling:
    """A table that a view's kind compiles.

    name, view: the name and the declaration of the view, which is of the kind that compiles it.
    schemas: those of the registered event types.
    table: the declaration of the table, which is `view` for the table that readers query.
    side: the name of the side table, or "".
    earlier: the compiled tables before this one. All side tables come before the table that readers query.
    """

    spark: SparkSession
    name: str
    view: Any
    schemas: Mapping[str, StructType]
    table: View
    side: str
    earlier: tuple[Table, ...]

    def side_table(self, side: str) -> Table:
        """The compiled side table with this name."""
        return next(each for each in self.earlier if each.side == side)


@dataclass(frozen=True)
class CompiledView:
    """A view's tables: the table that readers query, and then the side tables."""

    tables: tuple[Table, ...]

    @property
    def own(self) -> Table:
        """The table that readers query."""
        return self.tables[0]

    @property
    def sides(self) -> tuple[Table, ...]:
        return self.tables[1:]

    @property
    def sources(self) -> tuple[Table, ...]:
        """The tables to which events are added."""
        return tuple(each for each in self.tables if each.derivation is None)

    @property
    def name(self) -> str:
        return self.own.owner

    @property
    def view(self) -> View:
        """The declaration."""
        return self.own.view

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the code of all tables."""
        return self.own.fingerprint

    @property
    def needs_order(self) -> bool:
        """Whether the rows depend on the order of a key's events in the log."""
        return self.view.is_stateful or any(each.reads_offsets for each in self.tables)

    @cached_property
    def columns(self) -> dict[str, frozenset[str]]:
        """The columns of each topic that any of the tables needs."""
        return needed_columns(self.tables)

    @property
    def scans(self) -> int:
        """How often the transforms read the events."""
        return sum(each.scans for each in self.tables)


def needed_columns(parts: Iterable[CompiledView | Table]) -> dict[str, frozenset[str]]:
    """The columns that any of these views or tables needs, by topic."""
    needed: dict[str, frozenset[str]] = {}
    for each in parts:
        for topic, columns in each.columns.items():
            needed[topic] = needed.get(topic, frozenset()) | columns
    return needed
