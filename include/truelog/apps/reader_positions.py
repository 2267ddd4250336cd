"""Positions of the views' own rows, from PostgreSQL. `archive.archive_table` has the archive's positions."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from truelog.log.positions import Positions
from truelog.schema.names import TICKS
from truelog.storage.database import Connection, read_value


@dataclass(frozen=True)
class ReaderPosition:
    """A reader's positions and a view's deployed version, which is 0 for a view without a table and for the archive.

    A version that has merged nothing is at the beginning of its topics, and its positions contain no partition.
    """

    version: int
    positions: Positions


def view_positions(connection: Connection, names: Iterable[str]) -> dict[str, ReaderPosition]:
    """The positions of each view; those of a view without a table contain no topic."""
    rows = connection.execute(
        "SELECT view, version, reads, topic, partition, topic_id, next_offset FROM "
        "(SELECT view, version, reads FROM truelog.deployed WHERE view = ANY(%s)) deployed "
        "LEFT JOIN truelog.view_position USING (view, version) "
        "ORDER BY view, topic, partition",
        (views := list(names),),
    )
    versions = dict.fromkeys(views, 0)
    offsets: dict[str, dict[str, dict[int, int]]] = {view: {} for view in views}
    ids: dict[str, dict[str, str]] = {view: {} for view in views}
    for view, version, reads, topic, partition, topic_id, offset in rows:
        versions[view] = version
        if topic is None:
            offsets[view] = {each: {} for each in reads or ()}
            continue
        offsets[view].setdefault(topic, {})[partition] = offset
        ids[view][topic] = topic_id
    return {view: ReaderPosition(versions[view], Positions(offsets[view], ids[view])) for view in views}


def last_merge_at(connection: Connection, names: Iterable[str]) -> datetime | None:
    """The time at which any of these views was merged last."""
    query = "SELECT max(advanced_at) FROM truelog.position WHERE view = ANY(%s)"
    last: datetime | None = read_value(connection, query, (list(names),))
    return last


def without_ticks(at: Positions) -> Positions:
    """The positions without the `ticks` topic, which always has newer records and is not part of the lag."""
    return at.only(set(at.offsets) - {TICKS})
