"""Repairs a Group: folds the groups again that have a difference in any table, and replaces their rows.

The stream may have changed further rows of these groups since the comparison, so these count as differing too.
"""

from collections.abc import Callable

from psycopg import sql

from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import merge
from truelog.tables.fold.compiled import folded_tables, inputs_of
from truelog.tables.fold.inputs import GroupText, as_text
from truelog.tables.kind import Repair
from truelog.tables.staging.batch_plans import BatchPlans


def repair_groups(repair: Repair, known: Callable[[], CompiledView]) -> int:
    """Fold the differing groups from their repaired inputs. Return how many rows changed.

    `known` returns the view with its fold. It is called when the repair holds the lock.
    """
    connection, compiled = repair.connection, repair.compiled
    tables = folded_tables(compiled)
    by = as_text(compiled)
    selects = (
        sql.SQL("SELECT {} FROM ({}) AS d").format(by, repair.keys(each)) for each in (inputs_of(compiled), *tables)
    )
    found: list[GroupText] = connection.execute(sql.SQL(" UNION ").join(selects)).fetchall()
    if not found:
        return 0
    stage.hold(connection, compiled)
    with repair.locked():
        staged = merge.stage_groups(BatchPlans(repair.spark, repair.settings), known(), found)
        for table in tables:
            repair.add_keys(table, merge.changed_keys(compiled, table, found, staged))
            repair.record_before(table)
        merge.delete_groups(connection, compiled, found)
        repair.merge(staged)
        merge.record_repaired(connection, compiled, found, staged)
        return sum(repair.record_after(table) for table in tables)
