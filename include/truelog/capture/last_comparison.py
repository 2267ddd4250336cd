"""The last comparison of each captured table with its view."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from truelog.capture import comparison, epochs
from truelog.capture.comparison import DIFFERENT, EQUAL, UNKNOWN, SourceComparison
from truelog.schema.event import EventType
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

_LONGEST = timedelta(days=2)  # without EQUAL: a daily comparison failed, and the next one too


@dataclass(frozen=True)
class LastComparison:
    """The times of comparisons are None before the first.

    `since` is when the table's epoch began, but not before the upgrade to the first release that compares every day.
    """

    since: datetime
    verdict: str | None = None
    reason: str | None = None
    compared_at: datetime | None = None
    equal_at: datetime | None = None


def compare(settings: Settings, event_type: EventType) -> SourceComparison:
    """Compare the view of a captured table with the table, and record the result."""
    found = comparison.compare(settings, event_type.name, event_type)
    with connect(settings, autocommit=True) as connection:
        record(connection, event_type.name, found)
    return found


def record(connection: Connection, event_type: str, found: SourceComparison) -> None:
    """Record the result of a comparison. UNKNOWN says nothing against DIFFERENT, so it does not replace it."""
    epochs.begin(connection, event_type)
    connection.execute(
        "UPDATE truelog.capture SET compared_at = now(), comparison = %(verdict)s, comparison_reason = %(reason)s, "
        "equal_at = CASE WHEN %(verdict)s = %(equal)s THEN now() ELSE equal_at END "
        "WHERE event_type = %(name)s AND (%(verdict)s <> %(unknown)s OR comparison IS DISTINCT FROM %(different)s)",
        {"verdict": found.verdict, "reason": summary(found), "name": event_type}
        | {"equal": EQUAL, "unknown": UNKNOWN, "different": DIFFERENT},
    )


def load(connection: Connection, names: Iterable[str]) -> dict[str, LastComparison]:
    """The last comparison of each of these tables, except tables that were never captured."""
    query = (
        "SELECT event_type, greatest(since, compared_from), comparison, comparison_reason, compared_at, equal_at "
        "FROM truelog.capture WHERE event_type = ANY(%s)"
    )
    return {name: LastComparison(*values) for name, *values in connection.execute(query, (list(names),)).fetchall()}


def problem(last: LastComparison, now: datetime) -> str | None:
    """Why the view may not equal the table, or None.

    1. The last comparison with a result found them DIFFERENT.
    2. No comparison has found them EQUAL for two days.
    """
    if last.verdict == DIFFERENT:  # 1
        return f"DIFFERENT: {last.reason}"
    if now - max(last.since, last.equal_at or last.since) > _LONGEST:  # 2
        result = f"{last.verdict or 'none'} {last.reason or ''}".strip()
        return f"not found EQUAL for {_LONGEST.days} days. Last comparison: {result}"
    return None


def summary(found: SourceComparison) -> str:
    """The result without the keys of rows."""
    counts = f"{found.missing:,} rows missing, {found.extra:,} extra, {found.different:,} different; "
    return f"{counts if found.verdict == DIFFERENT else ''}{found.reason}"
