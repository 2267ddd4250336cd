"""Join: a view that counts combinations of rows of tables that it owns.

A timeline combines who follows whom with who tweeted what. A Join makes both tables from events, as side tables. Each
is a `View` with one `Latest` measure, so a row exists or is deleted, however often its events arrive.

    VIEW = Join(
        sides={"follows": FOLLOWS, "tweets": TWEETS},
        key=("reader_id", "tweet_id"),
        counts={
            "entries": Match(
                ("tweets", "follows"),
                on=(("tweets.author_id", "follows.followee_id"),),
                key={"reader_id": "follows.follower_id", "tweet_id": "tweets.tweet_id"},
            )
        },
    )

A row of the view has a key and counts, and it exists while one of its counts is not zero. `totals` are further tables
of this kind. They lie between the sides and the view, so that a match can depend on a count.

When a merge changes rows of a table, the matches of the rows as they were are subtracted, and the matches of the rows
as they are now are added. A rebuild matches the rebuilt tables. Matches are declared, and not written as code, because
PostgreSQL computes them in the stream and Spark in a rebuild. If an index could not contain a text that a match
connects or selects, the text is shortened. A hash of the whole text keeps it distinct.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from truelog.measures.measure import Measure
from truelog.measures.sum import Sum
from truelog.support.errors import BadDeclaration
from truelog.views.view import View

OPERATORS = ("<", "<=", "=", ">=", ">")
_NO_EVENTS = "the rows of a Join follow from its tables"


def _refuse_events(*events: DataFrame) -> DataFrame:
    raise NotImplementedError(_NO_EVENTS)


@dataclass(frozen=True)
class Match:
    """Combinations of rows that count. Columns are written "table.column". A NULL matches nothing.

    tables: the combined tables. Each table after the first is connected with earlier ones by `on`. A table that occurs
        twice needs two names: `aliases` maps each additional name to its table.
    key: the column that becomes each key column of the result.
    on: columns that must be equal.
    where: conditions on whole numbers, such as ("authors.followers", "<=", 10_000).
    owned: those pairs in `on` that compare the person of a row, in its key, with the owner in another table. They
        decide as the other pairs do, and `truelog explain` lists the events of other people as refused.
    """

    tables: tuple[str, ...]
    key: Mapping[str, str]
    on: tuple[tuple[str, str], ...] = ()
    where: tuple[tuple[str, str, int], ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    owned: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # changes no row, so no fingerprint

    def __post_init__(self) -> None:
        if unknown := [pair for pair in self.owned if pair not in self.on]:
            raise BadDeclaration(f"`owned` names the pairs {unknown}, which are not in `on`")
        if len(set(self.tables)) < len(self.tables):
            raise BadDeclaration(f"a match names a table twice: {self.tables}; give one of them a name in `aliases`")
        if unused := sorted(self.aliases.keys() - set(self.tables)):
            raise BadDeclaration(f"the aliases {', '.join(unused)} are not among the tables {self.tables}")
        for number, table in enumerate(self.tables[1:], 1):
            if not self.pairs(table, self.tables[:number]):
                raise BadDeclaration(f"the match of {self.tables} does not connect {table!r} with the tables before it")
        for column in (*self._columns(), *(column for column, _, _ in self.where)):
            if column.count(".") != 1 or split(column)[0] not in self.tables:
                raise BadDeclaration(f"{column!r} is not a column of the tables {self.tables}; write 'table.column'")
        for _, operator, _ in self.where:
            if operator not in OPERATORS:
                raise BadDeclaration(f"{operator!r} is not one of the operators {', '.join(OPERATORS)}")

    def table(self, name: str) -> str:
        """The table with a name in `tables`."""
        return self.aliases.get(name, name)

    def names(self, table: str) -> list[str]:
        """The names of a table, in the order of `tables`."""
        return [name for name in self.tables if self.table(name) == table]

    def used(self, table: str) -> list[str]:
        """The columns of a table that the match connects or selects."""
        return list(dict.fromkeys(name for owner, name in map(split, self._columns()) if owner == table))

    def conditions(self, table: str) -> list[tuple[str, str, int]]:
        """The conditions on a table's columns."""
        return [(split(column)[1], sign, value) for column, sign, value in self.where if split(column)[0] == table]

    def pairs(self, table: str, others: Collection[str]) -> list[tuple[str, str]]:
        """The pairs of columns that must be equal: (column of this table, "table.column" of another table)."""
        both = (pair for one, other in self.on for pair in ((one, other), (other, one)))
        return [
            (split(mine)[1], theirs) for mine, theirs in both if split(mine)[0] == table and split(theirs)[0] in others
        ]

    def with_key(self, column: str) -> "Match":
        """The same match with one more key column, in which the combined rows are equal."""
        first, *others = (f"{table}.{column}" for table in self.tables)
        return replace(self, key={column: first, **self.key}, on=(*self.on, *((first, other) for other in others)))

    def _columns(self) -> Iterator[str]:
        yield from self.key.values()
        yield from (column for pair in self.on for column in pair)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """A table of counts between the sides and the view. The fields are those of `Join`."""

    key: tuple[str, ...]
    counts: Mapping[str, Match]
    columns: Mapping[str, str] = field(default_factory=dict)
    indexes: tuple[tuple[str, ...] | str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Join(View):
    """The declaration of a Join. The other fields are those of `View`.

    sides: the tables made from events, by name.
    totals: tables of counts, by name. A table's matches may use the sides and the tables before it.
    counts: the columns of a row beside the key, and the match that each of them counts.
    """

    sides: Mapping[str, View]
    totals: Mapping[str, Totals] = field(default_factory=dict)
    counts: Mapping[str, Match]
    reads: tuple[str, ...] = field(default=(), init=False)
    transform: Callable[..., DataFrame] = field(default=_refuse_events, init=False)
    measures: Mapping[str, Measure] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reads_clock:
            raise BadDeclaration("a Join has no `keep`, no `window` and no clock: its rows depend on its tables alone")
        for name, side in self.sides.items():
            if [each.keeps_one_event for each in side.measures.values()] != [True] or side.topics != side.reads:
                raise BadDeclaration(
                    f"the side {name!r} needs one `Latest` measure and nothing that depends on the clock: its rows "
                    f"exist or are deleted, and other states cannot be subtracted"
                )
            if given := [each for each in ("dedupe", "allowed_lateness") if getattr(side, each) is not None]:
                raise BadDeclaration(f"the side {name!r} has `{given[0]}`; declare it in the Join, for all its sides")
        for key, counts in ((self.key, self.counts), *((each.key, each.counts) for each in self.totals.values())):
            if not counts or any(sorted(match.key) != sorted(key) for match in counts.values()):
                raise BadDeclaration(f"each match must say where the key columns {key} come from")
        for match in (*self.counts.values(), *(m for each in self.totals.values() for m in each.counts.values())):
            for row, owner in match.owned:
                self._require_owned(match, row, owner)
        topics = (topic for side in self.sides.values() for topic in side.reads)
        object.__setattr__(self, "reads", tuple(dict.fromkeys(topics)))
        object.__setattr__(self, "measures", counted(self.counts))

    def _require_owned(self, match: Match, row: str, owner: str) -> None:
        """Require that a side has a row for each thing and person, and that the match finds the owner by the thing."""
        (name, person), (owners, _) = split(row), split(owner)
        side = self.sides.get(match.table(name))
        links = [mine for mine, theirs in match.pairs(name, [owners]) if theirs != owner]
        if side is None or not links or not {person, *links} <= {*side.key}:
            raise BadDeclaration(
                f"`owned` compares {row} with {owner}: {person!r}, and what else the tables have in common, must be in "
                f"the key of the side {name!r}"
            )

    @property
    def may_lose_rows(self) -> bool:
        return True

    @property
    def backfill_cost(self) -> str:
        return (
            "A backfill recomputes the partials of the sides of its days. The comparison that follows reads the sides "
            "of all days and matches them whole: its cost grows with the result, not with the days of the backfill."
        )


def split(column: str) -> tuple[str, str]:
    """A "table.column" as two names."""
    table, _, name = column.partition(".")
    return table, name


def counted(counts: Mapping[str, Match]) -> dict[str, Measure]:
    """The measures of a table of counts."""
    return {name: Sum() for name in counts}
