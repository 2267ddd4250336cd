"""Audit of partials: compares some partials in each run with the raw bytes that they were computed from.

A rebuild trusts the partials of closed days. If the stream and the rebuild both used a wrong partial, comparing them
cannot reveal the error. Therefore a reconcile with an audit parses the raw bytes of some days again, starting with the
days that were audited longest ago. At 24 runs a day, every partial is audited once a day, and each run parses a
twenty-fourth of the raw bytes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from truelog.batch import base, partials
from truelog.batch.partial_selection import PartialRange, select_partials
from truelog.batch.partials import Partials
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
    """Compare the view's due partials, or every partial, with the raw bytes, and replace the wrong partials.

    A proof names the partials that were compared. Another partial of the day, which a recomputation may have made
    meanwhile, is not proved by it.
    """
    known = _known(replace(rebuilder, from_raw=False))  # a rebuild from raw bytes has no partials
    due = known[0].ranges if every else _due(rebuilder, known)
    right = {tile.day: [_verify(rebuilder, each, tile.day) for each in known] for tile in due}
    wrong = [day for day, tables in right.items() if not all(each.is_right for each in tables)]
    if wrong:
        base.forget(rebuilder.connection, rebuilder.compiled)  # it may have been made of these partials
    name, version = rebuilder.compiled.name, rebuilder.compiled.view.version
    with rebuilder.connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.proof (view, version, day, partials) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (view, version, day) DO UPDATE SET (partials, proved_at) = (excluded.partials, now())",
            [(name, version, day, _joined(each.partial for each in tables)) for day, tables in right.items()],
        )
    return PartialAudit([tile.day for tile in due], wrong)


def oldest_proof(rebuilder: Rebuilder, positions: Positions) -> datetime | None:
    """When the oldest partial that a rebuild at `positions` uses was last compared with raw bytes.

    None if one of them never was, or if the rebuild uses no partials.
    """
    known, times = _known(rebuilder), list[datetime | None]()
    proved = _proofs(rebuilder, known)
    for each in known:
        selected = select_partials(each.ranges, positions.only(each.table.view.topics)).partials
        times += [proved.get(tile.day) for tile in selected]
    found = [time for time in times if time is not None]
    return min(found) if times and len(found) == len(times) else None


def _known(rebuilder: Rebuilder) -> list[Partials]:
    """The partials of each table that has any."""
    return [rebuilder.partials(each) for each in kinds.daily(rebuilder.compiled)]


def _proofs(rebuilder: Rebuilder, known: Sequence[Partials]) -> dict[datetime, datetime]:
    """When the partials of each log day were last compared with raw bytes. Proofs of former partials do not count."""
    rows: list[Any] = rebuilder.connection.execute(
        "SELECT day, proved_at, partials FROM truelog.proof WHERE view = %s AND version = %s",
        (rebuilder.compiled.name, rebuilder.compiled.view.version),
    ).fetchall()
    ids = [{tile.day: tile.id for tile in each.ranges} for each in known]
    return {day: at for day, at, compared in rows if compared == _joined(each.get(day, "") for each in ids)}


def _joined(ids: Iterable[str]) -> str:
    """The ids of a day's partials. Those of an early release have none, like the proofs of that release."""
    return " ".join(filter(None, ids))


def _due(rebuilder: Rebuilder, known: Sequence[Partials]) -> list[PartialRange]:
    tiles, audited_at, never = known[0].ranges, _proofs(rebuilder, known), datetime.min.replace(tzinfo=UTC)
    oldest_first = sorted(tiles, key=lambda tile: (audited_at.get(tile.day, never), tile.day))
    return oldest_first[: math.ceil(len(tiles) / _RUNS_A_DAY)]


@dataclass(frozen=True)
class _Verified:
    """Whether a table's partial of a day was right, and the id of the right one; "" if the table has none."""

    is_right: bool
    partial: str


def _verify(rebuilder: Rebuilder, known: Partials, day: datetime) -> _Verified:
    """Compare a table's partial of a day with the raw bytes. If it differs, replace it."""
    tile = next((each for each in known.ranges if each.day == day), None)
    if tile is None:  # a crash has left a side table without this partial, and a rebuild reads the records instead
        return _Verified(True, "")
    table = known.table
    states = replace(rebuilder, from_raw=True).states_between(table, tile.begin, tile.end)
    partial = known.read(rebuilder.context.spark, [tile])
    assert partial is not None  # noqa: S101
    current = (clock.rows_since(table, each, known.trimmed) for each in (partial, states))
    if not table_hash.unequal_buckets(*(table_hash.hash_frame(table, table.stored(each)) for each in current)):
        return _Verified(True, tile.id)
    mended = replace(tile, id=uuid4().hex)
    partials.replace(rebuilder.context.spark, rebuilder.context.settings, table, mended, states)
    return _Verified(False, mended.id)
