"""A platform of the bench's own: random ports, a home that goes with it, nothing left running."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg import sql

import runtime
from tests.scenes.applications import STARTED
from truelog.database import connect, migrate
from truelog.settings import Settings, default_home

SERVICES = ("postgresql", "kafka", "s3", "ticks")


@contextmanager
def platform() -> Iterator[Settings]:
    """Services that run for as long as the block lasts, and die with this process."""
    jars = os.environ.get("TRUELOG_JARS", str(default_home() / "jars"))
    for name in [name for name in os.environ if name.startswith("TRUELOG_")]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="truelog-bench-"))
    os.environ |= {"TRUELOG_HOME": str(home), "TRUELOG_JARS": jars}
    settings = runtime.set_up(home, random_ports=True)
    try:
        runtime.up(settings, SERVICES, tethered=True)
        migrate(settings)
        yield settings
    finally:
        for application in STARTED:
            application.die()
        runtime.down(settings)
        shutil.rmtree(home)


def forget_views(settings: Settings) -> None:
    """As if no view had ever been: the next stream begins at the beginning of the log."""
    with connect(settings) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('state', 'stage', 'recon')"
        ).fetchall()
        for schema, table in tables:
            connection.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(str(schema), str(table))))
        connection.execute("TRUNCATE truelog.view CASCADE")
