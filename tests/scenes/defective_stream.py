"""A stream application with a planted defect or a slow view: `defective_stream.py WHICH APPLICATION [FILE]`.

Each scene must detect the defect that it tests for, so the scene must fail if the defect is planted.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from psycopg import sql

from truelog.control import lease
from truelog.kernel import merge
from truelog.storage import database
from truelog.streaming.stream import Stream
from truelog.support.settings import Settings
from truelog.tables import kinds, stage

_add, _stage_batch = stage.add, kinds.stage_batch


def unprotected() -> None:
    """No protection against zombies is left. `tests/library/kernel/test_merge_zombies.py` disarms each alone."""
    merge.require_at = lambda connection, compiled, begin: merge.positions(connection, compiled)
    lease.require_lease = lambda *_: None
    lease.Lease.hold = lambda _: None  # type: ignore[method-assign,assignment]
    database.session_name = lambda writer: f"zombie of {writer}"


def applied_twice() -> None:
    def add(*arguments: Any) -> None:
        _add(*arguments)
        _add(*arguments)

    stage.add = add  # type: ignore[assignment]


def staging_not_cleared() -> None:
    """Rows remain in the staging table after their merge, and the next merge adds them again."""

    def add(connection: Any, target: Any, schema: str, staged: Any) -> None:
        rows = connection.execute(sql.SQL("SELECT DISTINCT _attempt FROM {}").format(stage.table(target))).fetchall()
        for (attempt,) in rows:
            _add(connection, target, schema, replace(staged, attempts=(attempt,)))

    stage.add = add
    stage.clear = lambda *_: None


def slow_view() -> None:
    """Not a defect: the `slow` view stages its batches only when a file exists, whose path is the third argument."""
    released = Path(sys.argv[3])

    def stage_batch(connection: Any, compiled: Any, plans: Any, batch: Any) -> Any:
        while compiled.name == "slow" and not released.exists():
            threading.Event().wait(0.1)
        return _stage_batch(connection, compiled, plans, batch)

    kinds.stage_batch = stage_batch


DEFECTS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (unprotected, applied_twice, staging_not_cleared)
}

if __name__ == "__main__":
    (DEFECTS | {"slow_view": slow_view})[sys.argv[1]]()
    Stream(Settings(), sys.argv[2], threading.Event()).run()
