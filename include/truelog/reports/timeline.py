"""The on-call timeline: what people and the platform did, and which alerts and wrong comparisons there were.

The timeline answers the first question of an incident: what changed before it?
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from truelog.storage.database import Connection

MOST = 2000  # entries; a timeline with more is not readable

# Silences come from their table, which knows when they end. The list also has the operation that ended one early.
_OCCURRENCES = """
    SELECT * FROM (
        SELECT at AS begins, at AS ends, kind, subject, doer, about FROM truelog.operation WHERE kind <> 'silence'
        UNION ALL
        SELECT opened_at, resolved_at, 'alert', kind || '/' || subject, coalesce(acknowledged_by, ''), cause
        FROM truelog.alert WHERE opened_at IS NOT NULL
        UNION ALL
        SELECT made_at, until, 'silence', pattern, made_by, why FROM truelog.silence
        UNION ALL
        SELECT finished_at, finished_at, lower(verdict), view, coalesce(run, ''), id::text
        FROM truelog.reconciliation WHERE verdict <> 'EQUAL'
    ) every WHERE coalesce(ends, now()) > coalesce(%(until)s, now()) - %(span)s
        AND begins <= coalesce(%(until)s, now()) AND (%(kinds)s::text[] IS NULL OR kind = ANY(%(kinds)s::text[]))
        ORDER BY begins DESC LIMIT %(limit)s
"""


# What may explain a bend in a chart.
CHANGES = ("release", "rejudge", "launch", "restart", "stop", "start", "repair", "backfill")


@dataclass(frozen=True)
class Occurrence:
    """One entry. `ends` equals `begins` for a moment, and is None if the entry has not ended.

    `kind` is the kind of an operation, `alert`, `silence`, or the verdict of a comparison that was not EQUAL. For a
    comparison, `about` is its id.
    """

    begins: datetime
    ends: datetime | None
    kind: str
    subject: str
    by: str
    about: str


def occurrences(
    connection: Connection,
    span: timedelta,
    until: datetime | None = None,
    kinds: Sequence[str] | None = None,
    limit: int = MOST,
) -> list[Occurrence]:
    """What happened, or lasted, within the `span` before a time, by default now; the newest first.

    With `kinds`, the `limit` counts only entries of these kinds.
    """
    chosen = {"span": span, "until": until, "kinds": None if kinds is None else list(kinds), "limit": limit}
    return [Occurrence(*row) for row in connection.execute(_OCCURRENCES, chosen).fetchall()]
