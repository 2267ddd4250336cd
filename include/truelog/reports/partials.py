"""The partial report: for each view and calendar day, whether its partials were recomputed, and what followed.

A comparison covers all days of a version, and days are recomputed for the version that the view's file declares. A day
therefore has the verdict of this version's last conclusive comparison, if it ended after the day was recomputed. Before
a version is built, it equals a rebuild of nothing, so such a comparison does not count. If the first one after the
recompute found the version EQUAL and the last one does not, something has changed since, and the recompute is not to
blame.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from truelog.storage.database import Connection


class PartialState(StrEnum):
    """A day's state, as its newest recompute and the comparison after it left it."""

    NEVER = "NEVER"  # never recomputed, as far as the history reaches
    UNFINISHED = "UNFINISHED"
    FAILED = "FAILED"
    RECOMPUTED = "RECOMPUTED"  # no comparison has ended since
    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    CHANGED = "CHANGED"  # first EQUAL, DIFFERENT since


@dataclass(frozen=True)
class PartialDay:
    """A calendar day of a view; `reconciliation` is the comparison that decided the state."""

    view: str
    day: date
    state: PartialState
    recomputed_at: datetime | None = None
    reconciliation: int | None = None


_QUERY = """
    WITH newest AS (
        SELECT DISTINCT ON (view, day) view, day, state, changed_at FROM truelog.recomputation
        WHERE view = ANY(%(views)s) AND day >= %(first)s AND day < %(last)s::date + 1
        ORDER BY view, day, changed_at DESC
    ), days AS (
        SELECT view, (day AT TIME ZONE 'UTC')::date AS day, bool_and(state = 'done') AS done,
            bool_or(state = 'failed') AS failed, min(changed_at) AS at FROM newest GROUP BY 1, 2
    ), declared AS (
        SELECT d.view, coalesce(s.version, d.version) AS version
        FROM truelog.deployed d LEFT JOIN truelog.standing s ON s.view = d.view AND s.declared
        WHERE d.view = ANY(%(views)s)
    ), verdicts AS (
        SELECT r.* FROM declared CROSS JOIN LATERAL (
            SELECT view, version, id, verdict, finished_at FROM truelog.reconciliation
            WHERE (view, version) = (declared.view, declared.version) AND verdict <> 'UNKNOWN' AND positions <> '{}'
            ORDER BY id DESC LIMIT 1
        ) r
    )
    SELECT d.view, d.day, d.done, d.failed, d.at, v.id,
        CASE WHEN f.verdict = 'EQUAL' THEN 'CHANGED' ELSE v.verdict END
    FROM days d LEFT JOIN verdicts v ON v.view = d.view AND v.finished_at > d.at
    LEFT JOIN LATERAL (
        SELECT verdict FROM truelog.reconciliation
        WHERE v.verdict = 'DIFFERENT' AND (view, version) = (v.view, v.version) AND verdict <> 'UNKNOWN'
            AND positions <> '{}' AND finished_at > d.at
        ORDER BY id LIMIT 1
    ) f ON TRUE
"""


def partial_days(connection: Connection, views: Sequence[str], first: date, last: date) -> list[PartialDay]:
    """The days from `first` to `last` on which a view was recomputed. The other days have the state NEVER."""
    parameters = {"views": list(views), "first": f"{first}T00:00:00Z", "last": last}
    return list(_states(connection.execute(_QUERY, parameters).fetchall()))


def days_with_log(connection: Connection, first: date, last: date) -> list[date]:
    """The calendar days from `first` to `last` on which the archive has log days, oldest first."""
    rows = connection.execute(
        "SELECT DISTINCT (to_timestamp(day) AT TIME ZONE 'UTC')::date AS day FROM truelog.log_day "
        "WHERE to_timestamp(day) >= %s::timestamptz AND to_timestamp(day) < %s::timestamptz + interval '1 day' "
        "ORDER BY day",
        (f"{first}T00:00:00Z", f"{last}T00:00:00Z"),
    )
    return [day for (day,) in rows]


def _states(rows: Sequence[tuple[Any, ...]]) -> Iterator[PartialDay]:
    for view, day, done, failed, at, reconciliation, verdict in rows:
        if failed:
            yield PartialDay(view, day, PartialState.FAILED, at)
        elif not done:
            yield PartialDay(view, day, PartialState.UNFINISHED, at)
        elif verdict is None:
            yield PartialDay(view, day, PartialState.RECOMPUTED, at)
        else:
            yield PartialDay(view, day, PartialState(verdict), at, reconciliation)
