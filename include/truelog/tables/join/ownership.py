"""Ownership: rows of a side that count only if their person is the owner that another side names.

A tweet belongs to the author who posted it first. The side of tweets has a row for each tweet and each person who sent
events about it, and a match counts only the owner's row (`Match.owned`). So the events of other people change nothing.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.tables.compiled_view import CompiledView
from truelog.tables.join.compile import Joined, joined_of, rows_of
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import PLACE
from truelog.tables.tracing.trace import REASON
from truelog.views.join import Match, split


class _Owned(NamedTuple):
    """A side and the person in its key, the side that names the owner and its column, and the columns in common."""

    side: Table
    person: str
    owners: Table
    owner: str
    links: tuple[tuple[str, str], ...]


def owned_columns(compiled: CompiledView) -> dict[str, str]:
    """For each side whose rows have an owner, the column of its key with the person."""
    return {each.side.side: each.person for each in _declared(compiled)}


def refused_events(compiled: CompiledView, added_to: Mapping[str, DataFrame]) -> DataFrame | None:
    """The places of the events whose person is not the owner, each with the reason.

    `added_to` has what each event adds to the sides.
    """
    found = [_refused(each, added_to) for each in _declared(compiled) if each.side.side in added_to]
    return reduce(DataFrame.unionByName, found) if found else None


def _refused(owned: _Owned, added_to: Mapping[str, DataFrame]) -> DataFrame:
    owners = owned.owners
    added = added_to[owners.side].select(*owners.view.key, *owners.view.measures)
    known = rows_of(owners, owners.plus(added)).select(
        *(F.col(name).alias(f"_{name}") for _, name in owned.links), F.col(owned.owner).alias("_owner")
    )
    events = added_to[owned.side.side].join(known, [F.col(name) == F.col(f"_{other}") for name, other in owned.links])
    thing = owned.links[0][0]
    reason = F.concat(F.lit(f"{thing} "), F.col(thing), F.lit(f" belongs to {owned.person} "), F.col("_owner"))
    return events.where(F.col(owned.person) != F.col("_owner")).select(PLACE, reason.alias(REASON))


def _declared(compiled: CompiledView) -> Iterator[_Owned]:
    """What the matches of a Join declare, each side once."""
    matches = [
        (joined_of(table), match)
        for table in compiled.tables
        if isinstance(table.derivation, Joined)
        for match in joined_of(table).counts.values()
    ]
    found = (_owned(joined, match, *pair) for joined, match in matches for pair in match.owned)
    yield from {each.side.side: each for each in found}.values()


def _owned(joined: Joined, match: Match, row: str, named: str) -> _Owned:
    (side, person), (owners, owner) = split(row), split(named)
    links = tuple((mine, split(theirs)[1]) for mine, theirs in match.pairs(side, [owners]) if theirs != named)
    return _Owned(joined.tables[match.table(side)], person, joined.tables[match.table(owners)], owner, links)
