"""A view's rows as of an earlier time of the log, rebuilt from the archive.

The log's clock is at a time T at the last tick that is not later than T. The rows are those at the positions of this
tick, as the view's present code computes them. The rebuild is in temporary tables, which only its own session sees.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from truelog.archive.reader import ScanCost, Wanted, scan_cost
from truelog.archive.table import archived_positions
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.exports import rows as row_export
from truelog.exports.query import RowQuery
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support import timestamps
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.tables import deploy as table
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import readable

_SCHEMA = "pg_temp"  # PostgreSQL's name for the temporary tables of a session


@dataclass(frozen=True)
class PastView:
    """A view at the positions of a tick. Its rows can be read until the block that opened it ends.

    partials: the log days that were read as partials, over all of the view's tables.
    cost: the other records that were read, and their files.
    """

    compiled: CompiledView
    tick_time: datetime
    positions: Positions
    partials: int
    cost: ScanCost
    seconds: float
    connection: Connection

    def rows(self, query: RowQuery, seconds: int | None = None) -> Iterator[str]:
        """The rows of the view, or of a further relation that it presents, as JSON objects.

        `seconds` is the time limit for each 2,000 rows.
        """
        with self.connection.transaction():
            past = replace(query, schema=_SCHEMA)
            yield from row_export.json_lines(row_export.stream_rows(self.connection, past, seconds))

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts and pages, without the rows."""
        return {
            "view": self.compiled.name,
            "version": self.compiled.view.version,
            "tick": timestamps.to_text(self.tick_time),
            "positions": self.positions.plain(),
            "cost": {"partials": self.partials, **asdict(self.cost), "seconds": round(self.seconds, 3)},
        }


@contextmanager
def open_past(context: BatchContext, compiled: CompiledView, at: datetime) -> Iterator[PastView]:
    """Rebuild a view as it was at this time of the log.

    Raises:
        BadInput: the time is before the first tick.
        ArchiveBehind: the archive has not reached the time yet.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
        NotMade, CodeChanged, MeaningChanged: the view has no table yet, or other code made it.
    """
    began = time.monotonic()
    with connect(context.settings, autocommit=True) as connection:
        table.require_same_code(connection, compiled)
        rebuilder = Rebuilder(context, connection, compiled)
        rebuilder.require_reading()
        tick, positions = positions_at(rebuilder, at)
        _rebuild(rebuilder, positions)
        partials, cost = _cost(rebuilder, positions)
        yield PastView(compiled, tick.time, positions, partials, cost, time.monotonic() - began, connection)


def positions_at(rebuilder: Rebuilder, at: datetime | None) -> tuple[clock.Tick, Positions]:
    """The last archived tick that is not later than `at`, and the view's positions there; the last tick if None.

    Raises:
        BadInput: the time is before the first tick.
        ArchiveBehind: the archive has not reached the time yet.
        CatalogBehind: the database was restored from a backup. Run `truelog archive adopt` first.
    """
    reads, settings = rebuilder.compiled.view.reads, rebuilder.context.settings
    archived = archived_positions(settings, (*reads, clock.TOPIC))
    archived.require_same_topics(merge.positions(rebuilder.connection, rebuilder.compiled))
    end, read = archived.at(clock.TOPIC, 0), rebuilder.source.ticks(archived)
    later = end if at is None else clock.first_later(read, end, at)
    tick = clock.last_before(read, end if later is None else later)
    if later is None:
        known = f"knows the log up to {timestamps.to_text(tick.time)}" if tick else "has no tick yet"
        raise ArchiveBehind(f"the archive {known}. Choose an earlier time, or repeat the query in a minute.")
    if tick is None:
        begins = f"begins after {timestamps.to_text(at)}. Choose a later time" if at else "has not begun yet"
        raise BadInput(f"the log's clock {begins}.")
    ends = tick.ends.only(reads).offsets
    positions = Positions({**ends, clock.TOPIC: {0: tick.offset + 1}}, archived.ids)
    if behind := archived.records_to(positions):
        raise ArchiveBehind(
            f"the archive lacks {behind} records that were in the log at {timestamps.to_text(at or tick.time)}. "
            f"Choose an earlier time, or repeat the query in a minute."
        )
    return tick, positions


def _rebuild(rebuilder: Rebuilder, positions: Positions) -> None:
    """Create the view's tables at these positions, and what readers see of them, in the session's own schema."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    now = rebuilder.now(positions)
    staged = rebuilder.exclude_and_retry(
        positions,
        lambda: rebuilder.countable_events(merge.positions(connection, compiled), positions),
        lambda: rebuilder.stage_rows(positions),
    )
    with connection.transaction():
        rebuilder.create_tables(_SCHEMA, staged)
        merge.drop_expired_at(connection, compiled, _SCHEMA, now)
        readable.create_readable_copy(connection, compiled, _SCHEMA, now)


def _cost(rebuilder: Rebuilder, positions: Positions) -> tuple[int, ScanCost]:
    """The partials and the records from which the view's tables were rebuilt."""
    selections = [rebuilder.selection(each, positions)[1] for each in kinds.daily(rebuilder.compiled)]
    costs = [scan_cost(rebuilder.context.settings, Wanted(each.records, positions.ids)) for each in selections]
    total = ScanCost(*(sum(values) for values in zip(*((c.records, c.files, c.bytes) for c in costs), strict=True)))
    return sum(len(each.partials) for each in selections), total
