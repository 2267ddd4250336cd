"""The searchbook: the versions of searches that a view has counted, and what they have found."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from truelog.lag.time_steps import TimeRange
from truelog.patterns.versions import versions
from truelog.rules import records
from truelog.rules.course import Course, Found, read_course
from truelog.searches.search import read_definition, reader
from truelog.storage.database import Connection, names
from truelog.support import timestamps
from truelog.support.errors import BadInput
from truelog.views.searches import Searches

_COLUMNS = ("search_version", "document", "event_type", "event_time", "logged_at", "snippet")


@dataclass(frozen=True)
class KnownSearch:
    """A version of a search, with the number of its hits.

    begins: when the version's record reached the log.
    ended: when it was changed or retired; None while it is in force.
    """

    search: str
    version: int
    event_type: str
    query: str
    begins: datetime
    ended: datetime | None
    hits: int

    def as_dict(self) -> dict[str, Any]:
        times = {"begins": timestamps.to_text(self.begins), "ended": self.ended and timestamps.to_text(self.ended)}
        return asdict(self) | times | {"in_force": self.ended is None}


def read_searches(
    connection: Connection, name: str, view: Searches, only: Collection[str] | None = None
) -> list[KnownSearch]:
    """All versions that the view has counted, or only those of these searches, by search and version.

    Raises:
        NotMade: no application has created the view's table yet.
    """
    changes = records.read_changes(connection, name, view, only)
    counts = _read_counts(connection, name, only)
    found = []
    for each in versions(changes, reader(view.sources)):
        event_type, query = read_definition(str(each.change.definition)) or ("", "")
        begins = records.time_of(each.change.logged_at)
        ended = None if each.ended_at is None else records.time_of(each.ended_at)
        hits = counts.get((each.rule.name, each.number), 0)
        found.append(KnownSearch(each.rule.name, each.number, event_type, query, begins, ended, hits))
    return sorted(found, key=lambda known: (known.search, known.version))


def of_search(known: Sequence[KnownSearch], search: str) -> list[KnownSearch]:
    """The versions of one search.

    Raises:
        BadInput: there is no such search.
    """
    found = [each for each in known if each.search == search]
    if not found:
        raise BadInput(
            f"there is no search {search}: see `truelog searches list`. It appears when the stream has read it."
        )
    return found


def latest_hits(connection: Connection, name: str, search: str, limit: int) -> list[dict[str, Any]]:
    """The latest hits of a search, the newest first."""
    query = sql.SQL("SELECT {} FROM {} WHERE search = %s ORDER BY logged_at DESC, document LIMIT %s")
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            query.format(names(_COLUMNS), records.table_of(connection, name)), (search, limit)
        ).fetchall()
    return [
        {key: timestamps.to_text(value) if isinstance(value, datetime) else value for key, value in row.items()}
        for row in found
    ]


def hits_over_time(connection: Connection, name: str, search: str, span: TimeRange) -> Course:
    """The number of the search's hits over time, by the time at which their events reached the log."""
    return read_course(connection, Found(records.table_of(connection, name), "search", "logged_at"), search, span)


def _read_counts(connection: Connection, name: str, only: Collection[str] | None) -> Mapping[tuple[str, int], int]:
    query = sql.SQL(
        "SELECT search, search_version, count(*) FROM {} WHERE %(only)s::text[] IS NULL OR search = ANY(%(only)s) "
        "GROUP BY 1, 2"
    ).format(records.table_of(connection, name))
    rows = connection.execute(query, {"only": None if only is None else list(only)}).fetchall()
    return {(str(search), int(version)): int(count) for search, version, count in rows}
