"""Applications with their launches and leases, and the operations in the audit trail."""

from datetime import datetime, timedelta

from psycopg import sql

from tests.builders.rows import NO_TIME, before_now, insert
from tests.deadline import until
from truelog.control.application import load_status
from truelog.control.lease import Lease
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown


def an_application(connection: Connection, application: str, *, wish: str | None = None) -> None:
    """A declared application, perhaps with a request to restart it."""
    insert(connection, "application", application=application, wish=wish)


def forget_requests(connection: Connection) -> None:
    """No application is asked to restart, as after its restart."""
    connection.execute("UPDATE truelog.application SET wish = NULL")


def a_launch(
    connection: Connection, application: str, reason: str = "down", *, ago: timedelta = NO_TIME, wish: str | None = None
) -> None:
    launched = before_now(ago)
    insert(connection, "launch", application=application, reason=reason, wish=wish, launched_at=launched)


def a_lease(
    connection: Connection,
    application: str,
    *,
    epoch: int = 1,
    host: str = "elsewhere",
    pid: int = 1,
    code: str | None = None,
    process_at: float | None = None,
    taken: timedelta = NO_TIME,
    batch: timedelta | None = None,
) -> None:
    """A lease that was taken some time ago, whose holder ended its last batch some time ago. Nothing holds its lock."""
    insert(
        connection,
        "lease",
        application=application,
        epoch=epoch,
        host=host,
        pid=pid,
        code=code,
        process_at=process_at,
        taken_at=before_now(taken),
        batch_at=None if batch is None else before_now(batch),
    )


def last_batch(connection: Connection, application: str, *, ago: timedelta = NO_TIME) -> None:
    """Change when the holder of the lease ended its last batch. It took the lease before."""
    query = (
        "UPDATE truelog.lease SET batch_at = now() - %(ago)s, taken_at = least(taken_at, now() - %(ago)s) "
        "WHERE application = %(application)s"
    )
    connection.execute(query, {"ago": ago, "application": application})


def took_lease(connection: Connection, application: str, *, ago: timedelta) -> None:
    """Change when the holder took the lease."""
    connection.execute("UPDATE truelog.lease SET taken_at = now() - %s WHERE application = %s", (ago, application))


def end_lease(connection: Connection, lease: Lease) -> None:
    """End the session that holds the lease. PostgreSQL releases the session's lock a moment later."""

    def released() -> None:
        if load_status(connection, lease.holder.application).alive:
            raise ServiceDown("the lock is held")

    lease.release()
    until(released, 10, "the release of the lock")


def runs_on(connection: Connection, application: str, host: str) -> None:
    """Change on which machine the holder of the lease runs."""
    connection.execute("UPDATE truelog.lease SET host = %s WHERE application = %s", (host, application))


def forget_application(connection: Connection, application: str) -> None:
    """Delete the application, the states that it has reported, and its operations."""
    for table in ("standing", "launch", "lease", "application"):
        query = sql.SQL("DELETE FROM {} WHERE application = %s").format(sql.Identifier("truelog", table))
        connection.execute(query, (application,))
    connection.execute("DELETE FROM truelog.operation WHERE subject = %s", (application,))


def an_operation(connection: Connection, about: str, *, ago: timedelta = NO_TIME) -> None:
    insert(connection, "operation", kind="launch", subject="stream", doer="oncall", about=about, at=before_now(ago))


def many_operations(connection: Connection, subject: str, number: int, *, at: datetime) -> None:
    """So many releases of one application. `forget_application` deletes them."""
    query = (
        "INSERT INTO truelog.operation (kind, at, subject, doer, about) "
        "SELECT 'release', %s, %s, '', '' FROM generate_series(1, %s)"
    )
    connection.execute(query, (at, subject, number))


def a_database_of(connection: Connection, age: timedelta) -> None:
    """The database was created this long ago."""
    connection.execute("UPDATE truelog.migration SET applied_at = now() - %s", (age,))
