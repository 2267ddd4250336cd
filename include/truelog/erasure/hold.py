"""Views that are held back after a restore from a backup, until the erasures since the backup are performed again.

A restored database does not know that it was restored. Its ledger is therefore compared with the topic of erasures, and
the result belongs to the database and the start of its server for which it was found. `truelog.held` derives the views.
"""

import psycopg

from truelog.storage.database import Connection, read_value
from truelog.support.errors import NotReady

_REFUSED = "TL001"  # by `truelog.refuse`

# A restored dump is another database, and a restored copy of files is another start of the server.
_IS_READ = """
    SELECT EXISTS (
        SELECT FROM truelog.erasure_reading r JOIN pg_database d ON d.oid = r.database
        WHERE d.datname = current_database() AND r.server_started = pg_postmaster_start_time() AND r.lacking = 0
    )
"""
_RECORD = b"""
    INSERT INTO truelog.erasure_reading (database, server_started, lacking)
    SELECT oid, pg_postmaster_start_time(), %s FROM pg_database WHERE datname = current_database()
    ON CONFLICT (one) DO UPDATE SET database = excluded.database, server_started = excluded.server_started,
        lacking = excluded.lacking, read_at = now()
"""


def held_versions(connection: Connection) -> frozenset[tuple[str, int]]:
    """The versions of views that relay and notifier hold back. The API holds them back for one more step."""
    rows = connection.execute("SELECT view, version FROM truelog.held WHERE outputs_too").fetchall()
    return frozenset((str(view), int(str(version))) for view, version in rows)


def held_views(connection: Connection) -> frozenset[str]:
    """The views whose version that readers see is held back by relay and notifier."""
    rows = connection.execute(
        "SELECT view FROM truelog.held JOIN truelog.deployed USING (view, version) WHERE outputs_too"
    ).fetchall()
    return frozenset(str(view) for (view,) in rows)


def refusal(error: psycopg.Error) -> str:
    """The reason if a query was refused because its view is held back, or else an empty text."""
    return (error.diag.message_primary or "") if error.sqlstate == _REFUSED else ""


def require_not_held(connection: Connection, view: str) -> None:
    """Require that no version of the view is held back, before stored texts about its rows are shown.

    Raises:
        NotReady: one is, for the reason in the message.
    """
    held = connection.execute("SELECT reason FROM truelog.held WHERE view = %s LIMIT 1", (view,)).fetchone()
    if held is not None:
        raise NotReady(f"{view} is held back: {held[0]}")


def require_none_held(connection: Connection) -> None:
    """Require that no view is held back, before archived records are shown: the archive may lack the erasures, too.

    Raises:
        NotReady: one is, for the reason in the message.
    """
    held = connection.execute("SELECT reason FROM truelog.held LIMIT 1").fetchone()
    if held is not None:
        raise NotReady(f"the archive is held back: {held[0]}")


def is_read(connection: Connection) -> bool:
    """Whether the ledger was compared with the topic since the server has started with this database, and is complete.

    If it lacks erasures, another comparison is due: the process that adds them may have been faster than the last one.
    """
    return bool(read_value(connection, _IS_READ))


def record_reading(connection: Connection, lacking: int) -> None:
    """Store how many erasures of the topic the ledger lacks."""
    connection.execute(_RECORD, (lacking,))


def lacking(connection: Connection) -> int:
    """How many erasures the ledger lacks, as of the last comparison."""
    return int(read_value(connection, "SELECT coalesce(max(lacking), 0) FROM truelog.erasure_reading"))
