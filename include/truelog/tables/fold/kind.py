"""The kind of a Group: its rows are folded from the inputs of the groups that a batch touches."""

from collections.abc import Mapping

from truelog.storage.database import Connection
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import compiled as folding
from truelog.tables.fold import merge
from truelog.tables.fold.compiled import checkpoints_of, inputs_of
from truelog.tables.fold.repair import repair_groups
from truelog.tables.fold.trace import trace_group
from truelog.tables.kind import Kind, Repair
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.table import Table
from truelog.tables.tracing.trace import Trace, Tracing
from truelog.views.group import INPUTS


class Fold(Kind):
    """The rows of touched groups replace the earlier rows of these groups."""

    def is_kind_of(self, table: Table) -> bool:
        return isinstance(table.derivation, folding.Fold)

    def repair_following(self, repair: Repair) -> int:
        return repair_groups(repair)

    def trace(self, tracing: Tracing) -> Trace:
        return trace_group(tracing)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Let the executors load inputs and checkpoints."""
        for each in filter(None, (inputs_of(compiled), checkpoints_of(compiled))):
            stage.grant(connection, each)

    def follow(self, plans: BatchPlans, compiled: CompiledView, staged: Mapping[str, StagedRows]) -> StagedRows:
        return merge.stage_touched(plans, compiled, staged.get(INPUTS, NO_ROWS))

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        super().add_batch(connection, compiled, staged)
        if INPUTS in staged.sides:
            merge.record_oversized(connection, compiled, staged)

    def add(self, connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
        if INPUTS in staged.sides:
            merge.replace_touched(connection, compiled, schema, staged)
        super().add(connection, compiled, schema, staged)
