"""Backups of the database, and their restoration by the steps of docs/restore.md."""

import os
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

import runtime
from runtime import postgresql
from tests.deadline import deadline
from truelog.support.settings import Settings


def back_up(settings: Settings, backup: Path) -> None:
    """Back up the database while the platform is running."""
    database_tool(settings, "pg_dump", "--dbname={}", "--format=custom", f"--file={backup}")


def database_tool(settings: Settings, program: str, *arguments: str) -> None:
    """Run a PostgreSQL client program as the administrator."""
    address = f"host={settings.database_host} port={settings.database_port} user={settings.postgres_user} dbname={{}}"
    words = [word.format(address.format(settings.database_name)) for word in arguments]
    password = {"PGPASSWORD": settings.postgres_password.get_secret_value()}
    command = [str(postgresql._programs(postgresql._folder(settings)) / program), *words]
    subprocess.run(command, env=os.environ | password, check=True, timeout=deadline(120))


def restore(settings: Settings, backup: Path) -> None:
    """Replace the database by its backup."""
    load(settings, backup)
    runtime.up(settings, ["postgresql"], tethered=True)  # the roles' rights to the database


def load(settings: Settings, backup: Path) -> None:
    """Replace the database by its backup, as the backup has it."""
    with psycopg.connect(
        host=settings.database_host,
        port=settings.database_port,
        user=settings.postgres_user,
        password=settings.postgres_password.get_secret_value(),
        dbname="postgres",
        autocommit=True,
    ) as connection:
        names = {"name": sql.Identifier(settings.database_name), "owner": sql.Identifier(settings.database_user)}
        connection.execute(sql.SQL("DROP DATABASE {name} WITH (FORCE)").format(**names))
        connection.execute(sql.SQL("CREATE DATABASE {name} OWNER {owner}").format(**names))
    database_tool(settings, "pg_restore", "--dbname={}", "--exit-on-error", str(backup))
