"""Proof: partials held against the raw bytes that they came from, a share of them at a time.

A rebuild trusts the partials of closed days, and a comparison of stream and rebuild cannot see what both got wrong
from them. So each reconcile that is asked to prove also parses the raw bytes of some days again, those proved longest
ago first: with 24 runs a day every partial is proved once a day, at a twenty-fourth of the cost of parsing all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock, merge
from truelog.reconcile import table_hash

_RUNS_A_DAY = 24


@dataclass(frozen=True)
class PartialAudit:
    """The days that were looked at, and those whose partial was wrong; these have been made anew."""

    days: Sequence[datetime] = ()
    wrong: Sequence[datetime] = ()


def audit_partials(rebuilder: Rebuilder, *, every: bool = False) -> PartialAudit:
    """Hold the view's partials, or the share of them that is due, against raw bytes; replace those that differ."""
    known = partials.load(rebuilder.context.settings, rebuilder.compiled)
    due = known.ranges if every else _due(rebuilder, known.ranges)
    wrong = [tile.day for tile in due if not _holds(rebuilder, known, tile)]
    with rebuilder.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.proof (view, version, day) VALUES (%s, %s, %s) "
            "ON CONFLICT (view, version, day) DO UPDATE SET proved_at = now()",
            [(rebuilder.compiled.name, rebuilder.compiled.view.version, tile.day) for tile in due],
        )
    return PartialAudit([tile.day for tile in due], wrong)


def _due(rebuilder: Rebuilder, tiles: Sequence[PartialRange]) -> list[PartialRange]:
    found = rebuilder.connection.execute(
        "SELECT day, proved_at FROM truelog.proof WHERE view = %s AND version = %s",
        (rebuilder.compiled.name, rebuilder.compiled.view.version),
    ).fetchall()
    proved = {day: str(at) for day, at in found}
    oldest_first = sorted(tiles, key=lambda tile: (proved.get(tile.day, ""), tile.day))
    return oldest_first[: math.ceil(len(tiles) / _RUNS_A_DAY)]


def _holds(rebuilder: Rebuilder, known: partials.Partials, tile: PartialRange) -> bool:
    compiled, from_raw = rebuilder.compiled, replace(rebuilder, from_raw=True)
    states = from_raw.states_between(tile.begin, tile.end)
    kept = known.read(rebuilder.context.spark, [tile])
    assert kept is not None  # noqa: S101
    now = merge.positions(rebuilder.connection, compiled)  # what is outlived here has perhaps left the partial
    lasting = (clock.without_expired(rebuilder.connection, compiled, each, now) for each in (kept, states))
    if not table_hash.unequal_buckets(*(table_hash.hash_frame(compiled, compiled.stored(each)) for each in lasting)):
        return True
    partials.replace(rebuilder.context.spark, rebuilder.context.settings, compiled, tile, states)
    return False
