"""The trace of a row of counts: the events of the sides' rows that take part in it.

A row of a side takes part if one of its versions, deleted or not, can be combined with versions of the other sides to
the row's key. All events of such a row are listed. The conditions of a match play no role here, so the events that make
a row appear and vanish are listed too. A match may depend on a table of counts between the sides and the view: the
events behind these counts are not listed, because they may be many, but the row after each event depends on them.

If rows have an owner, the events of other people about the same thing are listed too, and marked as refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from truelog.tables.join.compile import Joined, combinations, joined_of, versions_of, with_key
from truelog.tables.join.ownership import owned_columns, refused_events
from truelog.tables.row_filter import with_keys
from truelog.tables.table import Table
from truelog.tables.tracing.contributions import added_by_record, prepared_by_record
from truelog.tables.tracing.event_steps import STEP, EventSteps, placed
from truelog.tables.tracing.trace import Trace, TracedTable, Tracing
from truelog.views.join import Match, split

_Keys = tuple[Table, DataFrame]  # a table, and keys of its rows


def trace_join(tracing: Tracing) -> Trace:
    """The trace of a row of counts."""
    compiled = tracing.compiled
    used = _sides(joined_of(compiled.own))
    sides = {each.side: each for each in compiled.sources if each.side in used}
    rows_of_log = tracing.kept(lambda each: prepared_by_record(each, tracing.transformed_rows(each)), sides.values())
    kept = dict(zip(sides, rows_of_log, strict=True))
    search = _Search(tracing, owned_columns(compiled), kept)
    listed = list(search.combined(joined_of(compiled.own), tracing.key))
    counts = ((table, keys) for table, keys in listed if table.derivation is not None)
    behind = [each for table, keys in counts for each in search.sides(joined_of(table), keys)]
    every = _by_side([*listed, *behind])

    def added(name: str) -> DataFrame:
        return placed(sides[name], added_by_record(sides[name], with_keys(every[name])(kept[name])))

    added_to = dict(zip(every, tracing.computed(added, every), strict=True))
    shown = added_to
    if behind:
        own = _by_side(listed)

        def chosen(name: str) -> DataFrame:
            return with_keys(own[name])(added_to[name]) if name in own else added_to[name].limit(0)

        shown = dict(zip(added_to, tracing.computed(chosen, added_to), strict=True))
    traced = [TracedTable(sides[name], added_to[name], shown[name]) for name in sides if name in added_to]

    def rows(steps: EventSteps) -> DataFrame:
        def after(name: str) -> DataFrame:
            return steps.states(with_key(sides[name], STEP, IntegerType()), added_to[name])

        states_of = dict(zip(added_to, tracing.computed(after, added_to), strict=True))

        def states(table: Table) -> DataFrame:
            return states_of[table.side] if table.derivation is None else table.derivation.states(table, states)

        joined = joined_of(compiled.own).with_key(STEP, IntegerType())
        return tracing.only(joined.rows((STEP, *compiled.view.key), states))

    return Trace(traced, rows, refused_events(compiled, added_to))


@dataclass(frozen=True)
class _Search:
    """Searches for the rows of the sides that take part in rows of counts."""

    tracing: Tracing
    owned: Mapping[str, str]
    rows: Mapping[str, DataFrame]  # the prepared rows of each side, each with its record

    def sides(self, joined: Joined, wanted: DataFrame) -> Iterator[_Keys]:
        """The keys of the sides' rows that take part in the rows with the wanted keys."""
        for table, keys in self.combined(joined, wanted):
            if table.derivation is None:
                yield table, keys
            else:
                yield from self.sides(joined_of(table), keys)

    def combined(self, joined: Joined, wanted: DataFrame) -> Iterator[_Keys]:
        """The keys of the rows that are combined to the wanted keys, in each table of each match."""
        matches = joined.counts.values()
        found = self.tracing.computed(lambda match: self._chosen(joined, match, wanted), matches)
        for match, chosen in zip(matches, found, strict=True):
            for name in match.tables:
                keys = chosen.select(f"_{name}.*").drop(self.owned.get(match.table(name), ""))
                yield joined.tables[match.table(name)], keys.distinct()

    def _chosen(self, joined: Joined, match: Match, wanted: DataFrame) -> DataFrame:
        """The combinations with wanted keys, with the key of each combined row."""
        found = self._combinations(joined, match, wanted)
        parts = (
            F.struct(*(F.col(f"{name}.{k}") for k in joined.tables[match.table(name)].view.key)).alias(f"_{name}")
            for name in match.tables
        )
        wanted_keys = (F.col(match.key[k]).alias(k) for k in wanted.columns)
        return with_keys(wanted)(found.select(*wanted_keys, *parts))

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
            return versions_of(table, self.rows[table.side])
        joined = joined_of(table)
        parts = (
            combinations(
                replace(match, where=()), {n: self._versions(joined.tables[match.table(n)]) for n in match.tables}
            ).select(*(F.col(match.key[k]).alias(k) for k in table.view.key))
            for match in joined.counts.values()
        )
        keys = reduce(DataFrame.unionByName, parts).distinct()
        return keys.withColumns({name: F.lit(None).cast("bigint") for name in joined.counts})


def _sides(joined: Joined) -> set[str]:
    """The sides from whose rows these counts follow."""
    tables = joined.tables.values()
    return {each.side for each in tables if each.derivation is None}.union(
        *(_sides(joined_of(each)) for each in tables if each.derivation is not None)
    )


def _by_side(found: Iterable[_Keys]) -> dict[str, DataFrame]:
    """The keys of each side's rows, each once."""
    keys: dict[str, list[DataFrame]] = {}
    for table, some in found:
        if table.derivation is None:
            keys.setdefault(table.side, []).append(some)
    return {side: reduce(DataFrame.unionByName, frames).distinct() for side, frames in keys.items()}
