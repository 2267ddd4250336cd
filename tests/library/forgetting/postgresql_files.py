"""PostgreSQL's own files: data, statistics, statements and WAL, searched for texts and rewritten.

Pages keep rows that are gone, and the WAL what was written, until PostgreSQL writes over them, which `rewrite` causes.
A value of more than about 2 kB may be compressed, and is not found.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import sql

from runtime import postgresql
from tests.library.forgetting.byte_search import forms
from truelog.support.settings import Settings

# Other catalogs than the statistics have no values of rows. While they are written again, no session could work.
_TABLES = """
    SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
    UNION ALL SELECT 'pg_catalog', 'pg_statistic'
"""


@contextmanager
def deleted_wal(settings: Settings) -> Iterator[None]:
    """Let PostgreSQL delete WAL that it no longer needs, instead of keeping the files for later WAL."""
    with postgresql.admin(settings) as connection:
        connection.execute("ALTER SYSTEM SET wal_recycle = off")
        connection.execute("SELECT pg_reload_conf()")
        yield
        connection.execute("ALTER SYSTEM RESET wal_recycle")


def files_with(settings: Settings, wanted: Iterable[str]) -> list[str]:
    """The files in the data folder that have any of the texts."""
    with postgresql.admin(settings) as connection:
        [folder] = connection.execute("SHOW data_directory").fetchone() or ("",)
    needles, found = forms(wanted), list[str]()
    for path in sorted(Path(folder).rglob("*")):
        with suppress(FileNotFoundError):  # deleted meanwhile
            if path.is_file() and _has_any(path.read_bytes(), needles):
                found.append(str(path.relative_to(folder)))
    return found


def _has_any(content: bytes, needles: Iterable[bytes]) -> bool:
    return any(each in content for each in needles)


def rewrite(settings: Settings) -> None:
    """Write all tables and statistics again, with their live rows alone, and delete the WAL before."""
    with postgresql.admin(settings, settings.database_name) as connection:
        for schema, name in connection.execute(_TABLES).fetchall():
            with suppress(psycopg.errors.UndefinedTable):  # dropped meanwhile
                connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier(schema, name)))
        connection.execute("SELECT pg_switch_wal()")
        connection.execute("CHECKPOINT")
