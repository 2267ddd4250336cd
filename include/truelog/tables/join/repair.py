"""Repairs a Join: replaces the differing rows of its sides, and computes again what follows from them.

A row that follows from a wrong row may itself be right or wrong, so it is not changed by the difference.
"""

from truelog.tables.join import merge
from truelog.tables.kind import Repair


def repair_tables(repair: Repair) -> int:
    """Repair each table after the tables that it follows from. Return how many rows changed."""
    connection, compiled, changed = repair.connection, repair.compiled, 0
    for table in merge.in_order(compiled):
        if table.derivation is not None:
            repair.add_keys(table, merge.pending_keys(table))
            merge.discard_pending(connection, table)
            repair.record_before(table)
            merge.replace_counts(connection, compiled, table, repair.keys(table))
            changed += repair.record_after(table)
        elif repair.differs(table):
            with merge.changing(connection, compiled, table, repair.keys(table)):
                changed += repair.replace(table)
    return changed
