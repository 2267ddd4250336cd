"""PostgreSQL: version, schema, durability, connections, roles and the clock."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from truelog.doctor import transport
from truelog.doctor.clocks import clock
from truelog.doctor.result import Area, Result, has_failed
from truelog.storage import migration
from truelog.storage.database import Connection, connect, read_value
from truelog.support.settings import API_ROLE, CATALOG_ROLE, STAGER, Settings

_OLDEST = 15
_SSL_REQUEST, _WILLING = bytes.fromhex("0000000804d2162f"), b"S"  # of PostgreSQL's protocol
_SPARE_CONNECTIONS = 20
_TOLERATED = timedelta(seconds=2)
# A crash of the server may lose or damage what was committed if one of them is off.
_DURABLE = ("fsync", "full_page_writes", "synchronous_commit")


def _checks(area: Area, settings: Settings) -> Iterator[Result]:
    if settings.database_sslmode != "prefer":
        yield from (reached := list(transport.tls(area, _server(settings))))
        if has_failed(reached):
            return
    with connect(settings, autocommit=True) as connection:
        if settings.database_sslmode == "prefer":
            yield _preferred(area, settings.database_host, is_encrypted=connection.pgconn.ssl_in_use)
        yield _version(area, connection)
        yield _clock(area, connection)
        yield _schema(area, connection)
        yield _namespace(area, connection, settings)
        yield _durability(area, connection)
        with connect(settings, autocommit=True) as other:
            yield _sessions(area, connection, other)
        yield _connections(area, connection)
    yield from _roles(area, settings)


def _server(settings: Settings) -> transport.Server:
    checks_name = settings.database_sslmode == "verify-full"
    given = (settings.database_host, settings.database_port, settings.database_trust, "TRUELOG_DATABASE_CA_FILE")
    return transport.Server(*given, settings.database_trust is not None, checks_name, _ask_for_tls)


def _ask_for_tls(connection: socket.socket) -> None:
    """Ask PostgreSQL for TLS, in plain text, as its protocol requires."""
    connection.sendall(_SSL_REQUEST)
    if connection.recv(1) != _WILLING:
        raise ConnectionError("the server does not offer TLS")


def _preferred(area: Area, host: str, *, is_encrypted: bool) -> Result:
    """The result if the settings leave it to the server whether the connection is encrypted."""
    cure = "Set TRUELOG_DATABASE_SSLMODE=verify-full, and TRUELOG_DATABASE_CA_FILE if the CA is a private one."
    if is_encrypted and not transport.is_this_machine(host):
        return area.warning("encryption", f"TLS to {host}, but clients would also accept none", cure)
    return transport.plain(area, host, cure)


def _version(area: Area, connection: Connection) -> Result:
    found = str(read_value(connection, "SHOW server_version"))
    if int(read_value(connection, "SHOW server_version_num")) >= _OLDEST * 10_000:
        return area.fine("version", found)
    return area.failed("version", found, f"Upgrade to PostgreSQL {_OLDEST} or later.")


def _clock(area: Area, connection: Connection) -> Result:
    before = datetime.now(UTC)
    theirs = read_value(connection, "SELECT clock_timestamp()")
    return clock(area, theirs, before, datetime.now(UTC), _TOLERATED)


def _schema(area: Area, connection: Connection) -> Result:
    missing, unknown = migration.unlike(connection)
    if unknown:
        return area.failed("schema", f"migration {max(unknown)} is of a newer release", "Install that release.")
    if missing:
        cure = "Run `truelog up`, or the migration step of docker-compose.yml, with this release."
        return area.failed("schema", f"{len(missing)} migrations are missing", cure)
    return area.fine("schema", "as this release needs it")


def _namespace(area: Area, connection: Connection, settings: Settings) -> Result:
    """Whether the database belongs to this environment."""
    found = str(read_value(connection, "SELECT coalesce(current_setting('truelog.namespace', true), '')"))
    if found == settings.namespace:
        return area.fine("namespace", found or "none")
    cure = "Set TRUELOG_NAMESPACE or TRUELOG_DATABASE_NAME: each environment has a database of its own."
    return area.failed("namespace", f"{found or 'none'} instead of {settings.namespace or 'none'}", cure)


def _durability(area: Area, connection: Connection) -> Result:
    off = [name for name in _DURABLE if read_value(connection, f"SHOW {name}") == "off"]
    if not off:
        return area.fine("durability", "a commit survives a crash")
    return area.failed("durability", f"{', '.join(off)} is off: a crash may lose commits", "Turn it on.")


def _sessions(area: Area, connection: Connection, other: Connection) -> Result:
    """Leases are locks of a session, so each connection must keep its session.

    A pooler gives a free session to the next client. So the other connection takes one, and keeps it in a transaction.
    """
    before = read_value(connection, "SELECT pg_backend_pid()")
    with other.transaction():
        read_value(other, "SELECT pg_backend_pid()")
        after = read_value(connection, "SELECT pg_backend_pid()")
    if before == after:
        return area.fine("sessions", "each connection keeps its session")
    cure = "Connect to PostgreSQL directly, or use session pooling: leases are locks of a session."
    return area.failed("sessions", "a transaction pooler shares sessions", cure)


def _connections(area: Area, connection: Connection) -> Result:
    query = (
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
        "- coalesce(current_setting('reserved_connections', true), '0')::int "
        "- (SELECT sum(numbackends) FROM pg_stat_database)"
    )
    spare = int(read_value(connection, query))
    if spare >= _SPARE_CONNECTIONS:
        return area.fine("connections", f"{spare} more are possible")
    return area.warning("connections", f"only {spare} more are possible", "Raise max_connections.")


def _roles(area: Area, settings: Settings) -> Iterator[Result]:
    """Sign in as each role with few rights."""
    passwords = {
        STAGER: settings.stager_password,
        CATALOG_ROLE: settings.catalog_password,
        API_ROLE: settings.api_password,
        **settings.process_passwords,
    }
    for duty, password in passwords.items():
        role, setting = settings.names.in_postgresql(duty), f"TRUELOG_{duty.upper()}_PASSWORD"
        if not password:
            yield area.warning(f"role {role}", f"no {setting}", "Create the role: docs/production.md.")
            continue
        given: dict[str, Any] = settings.database() | {"user": role, "password": password.get_secret_value()}
        try:
            psycopg.connect(**given, connect_timeout=10).close()
            yield area.fine(f"role {role}", "signs in")
        except psycopg.OperationalError as error:
            yield area.failed(f"role {role}", str(error).strip(), f"Check {setting}.")


POSTGRESQL = Area(
    "postgresql",
    _checks,
    (psycopg.Error,),
    "Start it, and check TRUELOG_DATABASE_HOST, _PORT, _NAME, _USER and _PASSWORD. See `truelog status`.",
)
