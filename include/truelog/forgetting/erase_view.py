"""Brings a view to its rebuild without the records that erasures cover, which the archive lacks already.

1. Take the view's merge lock once. A merge that began before the erasure has then ended, and later merges know of it.
2. Compare all tables of the view with a rebuild from raw bytes. No partial and no base decides anything.
3. Repair the keys that differ, under the merge lock, with their changes in the outbox. Compare again. The notifier
   forgets what it keeps of the rows with these keys: a row may have a text of the person and not name the person, such
   as a hit.
4. Delete the copies of rows that comparisons and repairs have kept.

Everything may be repeated: a view that was repaired is EQUAL. Any other key that differs is repaired too, without the
limit of a scheduled comparison, because a comparison does not show why a key differs.
"""

from dataclasses import dataclass, replace

from psycopg import sql

from truelog.batch import base
from truelog.batch.rebuild import Rebuilder
from truelog.forgetting import notification_copies
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.repair import repair
from truelog.storage.database import Connection
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes

_REPAIRS = 3  # the stream may go back, or the table may be changed by hand, while a repair runs


@dataclass(frozen=True)
class ErasedView:
    """How many rows changed, and the last comparison's verdict: the view is erased only if that is EQUAL."""

    view: str
    changed: int
    verdict: str
    reason: str


def erase_view(rebuilder: Rebuilder) -> ErasedView:
    """Bring a view to its rebuild without the erased records.

    Raises: the errors of `repair`. To begin again is safe.
    """
    raw, connection, compiled = replace(rebuilder, from_raw=True), rebuilder.connection, rebuilder.compiled
    row_diff.lock_comparisons(connection, compiled.own.name)  # until the caller closes the connection
    with connection.transaction():
        merge.lock(connection, compiled)  # 1
    base.drop(connection, raw.context.settings, compiled)
    changed, found = 0, compare(raw)  # 2
    for _ in range(_REPAIRS):
        if found.verdict != "DIFFERENT":
            break
        changed += _repair(raw, found.positions)  # 3
        found = compare(raw)
    _forget_copies(connection, compiled)  # 4
    return ErasedView(compiled.name, changed, found.verdict, found.reason)


def _repair(rebuilder: Rebuilder, compared: Positions) -> int:
    """Repair the view, and let the notifier forget how the rows were that differ, also if it reads them meanwhile."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    differing = sql.SQL("{} IN (SELECT _key_json FROM {})").format(
        row_diff.key_json(compiled.own, "noted."), row_diff.diff_table(compiled.own)
    )
    keys = changes.shown_keys(connection, compiled.own, differing) if compiled.view.publish else []
    notification_copies.forget_rows(connection, compiled, keys)
    changed = repair(rebuilder, compared)
    notification_copies.renew_rows(connection, compiled, keys)
    return changed


def _forget_copies(connection: Connection, compiled: CompiledView) -> None:
    """Delete the rows before and after all repairs of the view, and the tables of its last comparison."""
    with connection.transaction():
        connection.execute(
            "DELETE FROM truelog.repair WHERE (view, version) = (%s, %s)", (compiled.name, compiled.view.version)
        )
        for each in compiled.tables:
            for table in (row_diff.streamed_table(each), row_diff.rebuilt_table(each)):
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            row_diff.clear_differences(connection, each)
