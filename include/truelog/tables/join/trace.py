"""The trace of a row of counts: the events of the sides' rows that take part in it.

A row of a side takes part if one of its versions, deleted or not, can be combined with versions of the other sides to
the row's key. All events of such a row are listed. The conditions of a match play no role here, so the events that make
a row appear and vanish are listed too. A match may depend on a table of counts between the sides and the view: the
events behind these counts are not listed, because they may be many, but the row after each event depends on them.

If rows have an owner, the events of other people about the same thing are listed too, and marked as refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from truelog.tables.join.compile import Joined, combinations, joined_of, versions_of
from truelog.tables.join.ownership import owned_columns, refused_events
from truelog.tables.row_filter import with_keys
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import STEP, EventSteps, contributions
from truelog.tables.tracing.trace import Trace, TracedTable, Tracing
from truelog.views.join import Match, split

_Keys = tuple[Table, DataFrame]  # a table, and keys of its rows


def trace_join(tracing: Tracing) -> Trace:
    """The trace of a row of counts."""
    compiled = tracing.compiled
    search = _Search(tracing, owned_columns(compiled))
    listed = list(search.combined(joined_of(compiled.own), tracing.key))
    counts = ((table, keys) for table, keys in listed if table.derivation is not None)
    behind = [each for table, keys in counts for each in search.sides(joined_of(table), keys)]
    traced = []
    for side in compiled.sources:
        own = _union(keys for table, keys in listed if table.side == side.side)
        every = _union(keys for table, keys in (*listed, *behind) if table.side == side.side)
        if every is not None:
            added = tracing.computed(contributions(side, search.side_rows(side), with_keys(every)))
            traced.append(TracedTable(side, added, added.limit(0) if own is None else with_keys(own)(added)))
    added_to = {each.table.side: each.added for each in traced}

    def rows(steps: EventSteps) -> DataFrame:
        def states(table: Table) -> DataFrame:
            if table.derivation is not None:
                return table.derivation.states(table, states)
            return tracing.computed(steps.states(table, added_to[table.side]))

        by_step = joined_of(compiled.own).with_key(STEP, IntegerType())
        return tracing.only(by_step.rows((STEP, *compiled.view.key), states))

    return Trace(traced, rows, refused_events(compiled, added_to))


@dataclass(frozen=True)
class _Search:
    """Searches for the rows of the sides that take part in rows of counts."""

    tracing: Tracing
    owned: Mapping[str, str]
    _transformed: dict[str, DataFrame] = field(default_factory=dict)

    def side_rows(self, side: Table) -> DataFrame:
        """The transform's rows of a side, each with its record."""
        if side.side not in self._transformed:
            self._transformed[side.side] = self.tracing.transformed_rows(side)
        return self._transformed[side.side]

    def sides(self, joined: Joined, wanted: DataFrame) -> Iterator[_Keys]:
        """The keys of the sides' rows that take part in the rows with the wanted keys."""
        for table, keys in self.combined(joined, wanted):
            if table.derivation is None:
                yield table, keys
            else:
                yield from self.sides(joined_of(table), keys)

    def combined(self, joined: Joined, wanted: DataFrame) -> Iterator[_Keys]:
        """The keys of the rows that are combined to the wanted keys, in each table of each match."""
        for match in joined.counts.values():
            found = self._combinations(joined, match, wanted)
            parts = (
                F.struct(*(F.col(f"{name}.{k}") for k in joined.tables[match.table(name)].view.key)).alias(f"_{name}")
                for name in match.tables
            )
            wanted_keys = (F.col(match.key[k]).alias(k) for k in wanted.columns)
            chosen = self.tracing.computed(with_keys(wanted)(found.select(*wanted_keys, *parts)))
            for name in match.tables:
                keys = chosen.select(f"_{name}.*").drop(self.owned.get(match.table(name), ""))
                yield joined.tables[match.table(name)], keys.distinct()

    def _combinations(self, joined: Joined, match: Match, wanted: DataFrame) -> DataFrame:
        """The combinations of versions with wanted keys, and some others: each table is narrowed by itself."""
        found = {}
        for name in match.tables:
            versions = self._versions(joined.tables[match.table(name)])
            bound = [F.col(k).alias(split(match.key[k])[1]) for k in wanted.columns if split(match.key[k])[0] == name]
            found[name] = with_keys(wanted.select(*bound).distinct())(versions) if bound else versions
        return combinations(replace(match, where=()), found)

    def _versions(self, table: Table) -> DataFrame:
        """The columns of a table that a match may use, in each version of each row. Counts have no versions."""
        if table.derivation is None:
            return versions_of(table, table.prepared(self.side_rows(table)))
        joined = joined_of(table)
        parts = (
            combinations(
                replace(match, where=()), {n: self._versions(joined.tables[match.table(n)]) for n in match.tables}
            ).select(*(F.col(match.key[k]).alias(k) for k in table.view.key))
            for match in joined.counts.values()
        )
        keys = reduce(DataFrame.unionByName, parts).distinct()
        return keys.withColumns({name: F.lit(None).cast("bigint") for name in joined.counts})


def _union(frames: Iterator[DataFrame]) -> DataFrame | None:
    found = list(frames)
    return reduce(DataFrame.unionByName, found).distinct() if found else None
