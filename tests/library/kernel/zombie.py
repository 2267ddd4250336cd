"""A process that merges ten events under a lease: `zombie.py APPLICATION VIEW DISARMED…`. Tests suspend it.

The process behaves as a stream's view worker does: after an error it connects again, reads the view's
positions and merges what is missing. It has no Spark session, because the protections against zombies are in
PostgreSQL and in the lease.
"""

import logging
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql.types import IntegerType, StringType

from truelog import Sum, View
from truelog.control import lease
from truelog.control.lease import LEASE_LOST, Holder
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.storage import database
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import Fenced, Stale
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table

EVENTS = 10
READY = "zombie.ready"  # the batch is staged, and the process has not begun its merge
IDLE = "zombie.idle"  # the merge is committed
WORKED_ON = 3  # the exit code of a process that has done all its rounds of other work
_ROUNDS = 100

log = logging.getLogger("truelog.zombie")


def counter(name: str, version: int = 1) -> CompiledView:
    """A view that counts each event under its own id."""
    view = View(
        reads=("page_view",),
        transform=lambda page_view: page_view,
        key=("event_id",),
        measures={"n": Sum()},
        version=version,
    )
    return CompiledView((Table(name, view, {"event_id": StringType(), "n": IntegerType()}, "counter"),))


def at(offset: int) -> Positions:
    return Positions({"page_view": {0: offset}}, {"page_view": "an-id"})


def stage_events(connection: Connection, compiled: CompiledView, begin: int) -> StagedRows:
    attempt = str(uuid.uuid4())
    connection.execute(
        sql.SQL(
            "INSERT INTO {} (_attempt, _row_hash, event_id, n) "
            "SELECT %s, o, 'e' || o, 1 FROM generate_series(%s::int, %s::int) AS o"
        ).format(stage.table(compiled.own)),
        (attempt, begin, EVENTS - 1),
    )
    return StagedRows((attempt,), EVENTS - begin, sum(range(begin, EVENTS)))


def merge_events(connection: Connection, compiled: CompiledView, holder: Holder) -> None:
    """Merge the events that the view lacks."""
    begin = merge.positions(connection, compiled).at("page_view", 0)
    if begin < EVENTS:
        staged = stage_events(connection, compiled, begin)
        faults.reach(READY)
        merge.apply(connection, compiled, Merge(at(begin), at(EVENTS), staged), holder)


def work_on(settings: Settings) -> None:
    """Do rounds of work that checks no lease. Meanwhile, the lease looks for its lock every second."""
    for _ in range(_ROUNDS):
        with database.connect(settings, autocommit=True) as connection:
            connection.execute("SELECT 1")
        threading.Event().wait(0.05)


def _replace(module: Any, name: str, function: Callable[..., Any]) -> None:
    assert hasattr(module, name), f"{name} has another name now: the planted defect would be none"
    setattr(module, name, function)


DISARM: dict[str, Callable[[], None]] = {
    "positions": lambda: _replace(merge, "require_at", lambda connection, of, _: merge.positions(connection, of)),
    "epoch": lambda: _replace(lease, "require_lease", lambda *_: None),
    "exit": lambda: _replace(lease.Lease, "hold", lambda _: None),
    "sessions": lambda: _replace(database, "session_name", lambda writer: f"zombie of {writer}"),
}


def main(application: str, view: str, *disarmed: str) -> int:
    for each in disarmed:
        DISARM[each]()
    settings, compiled = Settings(), counter(view)
    held = lease.take_lease(settings, application)
    while True:
        try:
            with database.connect(settings, autocommit=True, writer=application) as connection:
                merge_events(connection, compiled, held.holder)
                break
        except Fenced as fenced:
            log.warning("refused: %s", fenced)
            return LEASE_LOST
        except (psycopg.OperationalError, Stale) as error:
            log.warning("failed: %s: %s", type(error).__name__, error)
    log.warning("done")
    faults.reach(IDLE)
    work_on(settings)
    return WORKED_ON


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
