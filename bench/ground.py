"""A separate platform for the benchmarks, with random ports and a temporary home that is removed at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from psycopg import sql

import runtime
from tests.scenes.applications import STARTED
from truelog.measures.registry import sql_functions
from truelog.reports import health
from truelog.storage.database import connect
from truelog.storage.migration import migrate
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings, default_home
from truelog.support.wait import until

SERVICES = ("postgresql", "kafka", "s3", "ticks")

_STARTED_SECONDS = 300  # time for Airflow to start the applications and for the applications to catch up


@contextmanager
def platform(given: Mapping[str, str] | None = None) -> Iterator[Settings]:
    """Run the services with these settings during the block. If this process exits early, the services exit too."""
    jars = os.environ.get("TRUELOG_JARS", str(default_home() / "jars"))
    for name in [name for name in os.environ if name.startswith("TRUELOG_")]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="truelog-bench-"))
    os.environ |= {"TRUELOG_HOME": str(home), "TRUELOG_JARS": jars, **(given or {})}
    settings = runtime.set_up(home, random_ports=True)
    try:
        runtime.up(settings, SERVICES, tethered=True)
        migrate(settings, sql_functions())
        yield settings
    finally:
        for application in STARTED:
            application.die()
        runtime.down(settings)
        shutil.rmtree(home)


def services(settings: Settings) -> dict[str, int]:
    """The root process of each service that a stream uses, by the name in the results."""
    named = {"kafka": "broker", "postgresql": "postgresql", "s3": "s3", "ticks": "ticks"}
    return {named[each.name]: each.pid for each in runtime.status(settings) if each.pid and each.name in named}


def complete(settings: Settings) -> None:
    """Start the rest of the platform, including Airflow, which then starts the archive and the stream."""
    runtime.up(settings, tethered=True)
    until(lambda: _require_caught_up(settings), _STARTED_SECONDS, "Airflow to start the applications")


def _require_caught_up(settings: Settings) -> None:
    waiting = [
        f"{each.application} is {each.state}, {each.lag_events} events behind"
        for each in health.application_health(settings)
        if each.state != "RUNNING" or each.lag_events != 0
    ]
    if waiting:
        raise ServiceDown(", ".join(waiting))


def forget_views(settings: Settings) -> None:
    """Delete all views, so that the next stream starts at the beginning of the log."""
    with connect(settings) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('batch', 'recon', 'stage', 'state')"
        ).fetchall()
        for schema, table in tables:
            connection.execute(sql.SQL("DROP TABLE {} CASCADE").format(sql.Identifier(str(schema), str(table))))
        connection.execute("TRUNCATE truelog.view CASCADE")
