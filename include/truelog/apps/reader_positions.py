"""Stands: up to where each reader of the log has come, the views by PostgreSQL and the archive by its tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from truelog.log import ticks
from truelog.log.positions import Positions
from truelog.storage.database import Connection


@dataclass(frozen=True)
class ReaderPosition:
    """Of a view in the version that readers see, the newest made, or 0 where none was; the archive has no versions.

    A version that has merged nothing yet stands at the beginning of its topics: no partition is named.
    """

    version: int
    positions: Positions


def view_positions(connection: Connection, names: Iterable[str]) -> dict[str, ReaderPosition]:
    """Of each view; one that was never made stands nowhere."""
    rows: Iterable[tuple[Any, ...]] = connection.execute(
        "SELECT view, version, reads, topic, partition, topic_id, next_offset FROM "
        "(SELECT DISTINCT ON (view) view, version, reads FROM truelog.view WHERE view = ANY(%s) "
        "ORDER BY view, version DESC) newest LEFT JOIN truelog.position USING (view, version) "
        "ORDER BY view, topic, partition",
        (asked := list(names),),
    )
    versions = dict.fromkeys(asked, 0)
    offsets: dict[str, dict[str, dict[int, int]]] = {view: {} for view in asked}
    ids: dict[str, dict[str, str]] = {view: {} for view in asked}
    for view, version, reads, topic, partition, topic_id, offset in rows:
        versions[view] = version
        if topic is None:
            offsets[view] = {each: {} for each in reads or ()}
            continue
        offsets[view].setdefault(topic, {})[partition] = offset
        ids[view][topic] = topic_id
    return {view: ReaderPosition(versions[view], Positions(offsets[view], ids[view])) for view in asked}


def last_merge_at(connection: Connection, names: Iterable[str]) -> datetime | None:
    """When one of these views last merged."""
    query = "SELECT max(advanced_at) FROM truelog.position WHERE view = ANY(%s)"
    row: tuple[Any, ...] | None = connection.execute(query, (list(names),)).fetchone()
    return row[0] if row else None


def without_ticks(at: Positions) -> Positions:
    """Without ticks: the clock of the log is always a moment ahead, and nobody waits for it."""
    return at.only(set(at.offsets) - {ticks.TOPIC})
