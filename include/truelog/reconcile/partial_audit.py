"""Audit of partials: compares some partials in each run with the raw bytes that they were computed from.

A rebuild trusts the partials of closed days. If the stream and the rebuild both used a wrong partial, comparing them
cannot reveal the error. Therefore a reconcile with an audit parses the raw bytes of some days again, starting with the
days that were audited longest ago. At 24 runs a day, every partial is audited once a day, and each run parses a
twenty-fourth of the raw bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from truelog.batch import base, partials
from truelog.batch.partial_selection import PartialRange, select_partials
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock
from truelog.log.positions import Positions
from truelog.tables import kinds, table_hash

_RUNS_A_DAY = 24


@dataclass(frozen=True)
class PartialAudit:
    """The audited days, and the days with a wrong partial that was replaced."""

    days: Sequence[datetime] = ()
    wrong: Sequence[datetime] = ()


def audit_partials(rebuilder: Rebuilder, *, every: bool = False) -> PartialAudit:
    """Compare the view's due partials, or every partial, with the raw bytes, and replace the wrong partials."""
    stored = replace(rebuilder, from_raw=False)  # a rebuild from raw bytes has no partials
    known = [stored.partials(each) for each in kinds.daily(rebuilder.compiled)]
    due = known[0].ranges if every else _due(rebuilder, known[0].ranges)
    right = {tile.day: [_verify(rebuilder, each, tile.day) for each in known] for tile in due}
    wrong = [day for day, tables in right.items() if not all(tables)]
    if wrong:
        base.forget(rebuilder.connection, rebuilder.compiled)  # it may have been made of these partials
    with rebuilder.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.proof (view, version, day) VALUES (%s, %s, %s) "
            "ON CONFLICT (view, version, day) DO UPDATE SET proved_at = now()",
            [(rebuilder.compiled.name, rebuilder.compiled.view.version, tile.day) for tile in due],
        )
    return PartialAudit([tile.day for tile in due], wrong)


def oldest_proof(rebuilder: Rebuilder, positions: Positions) -> datetime | None:
    """When the oldest partial that a rebuild at `positions` uses was last compared with raw bytes.

    None if one of them never was, or if the rebuild uses no partials.
    """
    proved, times = _proofs(rebuilder), list[datetime | None]()
    for table in kinds.daily(rebuilder.compiled):
        known = rebuilder.partials(table)
        selected = select_partials(known.ranges, positions.only(table.view.topics)).partials
        times += [proved.get(each.day) for each in selected]
    found = [time for time in times if time is not None]
    return min(found) if times and len(found) == len(times) else None


def _proofs(rebuilder: Rebuilder) -> dict[datetime, datetime]:
    """When each partial was last compared with raw bytes, by log day."""
    rows: list[Any] = rebuilder.connection.execute(
        "SELECT day, proved_at FROM truelog.proof WHERE view = %s AND version = %s",
        (rebuilder.compiled.name, rebuilder.compiled.view.version),
    ).fetchall()
    return dict(rows)


def _due(rebuilder: Rebuilder, tiles: Sequence[PartialRange]) -> list[PartialRange]:
    audited_at, never = _proofs(rebuilder), datetime.min.replace(tzinfo=UTC)
    oldest_first = sorted(tiles, key=lambda tile: (audited_at.get(tile.day, never), tile.day))
    return oldest_first[: math.ceil(len(tiles) / _RUNS_A_DAY)]


def _verify(rebuilder: Rebuilder, known: partials.Partials, day: datetime) -> bool:
    """Return whether a table's partial of a day matches the raw bytes. If it does not, replace it."""
    tile = next((each for each in known.ranges if each.day == day), None)
    if tile is None:  # a crash has left a side table without this partial, and a rebuild reads the records instead
        return True
    table = known.table
    states = replace(rebuilder, from_raw=True).states_between(table, tile.begin, tile.end)
    partial = known.read(rebuilder.context.spark, [tile])
    assert partial is not None  # noqa: S101
    current = (clock.rows_since(table, each, known.trimmed) for each in (partial, states))
    if not table_hash.unequal_buckets(*(table_hash.hash_frame(table, table.stored(each)) for each in current)):
        return True
    partials.replace(rebuilder.context.spark, rebuilder.context.settings, table, tile, states)
    return False
