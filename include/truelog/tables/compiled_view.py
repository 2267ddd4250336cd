"""A compiled view: a view checked against its events, as the list of its tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from truelog.tables.table import Table
from truelog.views.view import View


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
