"""The kind of a Group: its rows are folded from the inputs of the groups that a batch touches."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from truelog.storage.database import Connection
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.fold import compiled as folding
from truelog.tables.fold import failing, merge
from truelog.tables.fold.compile import checkpoints_table, compile_folded, inputs_table
from truelog.tables.fold.compiled import checkpoints_of, fold_of, inputs_of
from truelog.tables.fold.repair import repair_groups
from truelog.tables.fold.trace import trace_group
from truelog.tables.kind import Kind, Repair
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table
from truelog.tables.tracing.trace import Trace, Tracing
from truelog.views.group import CHECKPOINTS, INPUTS, Group
from truelog.views.steps import Steps
from truelog.views.view import View

_T = TypeVar("_T")


class Fold(Kind):
    """The rows of touched groups replace the earlier rows of these groups."""

    def is_declared_by(self, view: View) -> bool:
        return isinstance(view, Group)

    def side_tables(self, view: Any) -> Mapping[str, View]:
        inputs = {INPUTS: inputs_table(view)}
        return inputs | {CHECKPOINTS: checkpoints_table(view)} if isinstance(view.fold, Steps) else inputs

    def rows_of_records(self, view: Any) -> Mapping[str, tuple[str, ...]]:
        """The key of an input ends with its own coordinates, so readers identify its group."""
        return {INPUTS: view.by}

    def compile(self, compiling: Compiling) -> Table:
        return compile_folded(compiling) if compiling.side in ("", CHECKPOINTS) else super().compile(compiling)

    def is_kind_of(self, table: Table) -> bool:
        return isinstance(table.derivation, folding.Fold)

    def repair_following(self, repair: Repair) -> int:
        return repair_groups(repair, lambda: repair.compiled)

    def trace(self, tracing: Tracing) -> Trace:
        return trace_group(tracing, tracing.compiled.own)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Let the executors load inputs and checkpoints."""
        for each in filter(None, (inputs_of(compiled), checkpoints_of(compiled))):
            stage.grant(connection, each)

    def leaving_out_failures(
        self,
        compiled: CompiledView,
        states: Callable[[Table], DataFrame],
        attempt: Callable[[CompiledView], _T],
    ) -> _T:
        inputs = fold_of(compiled.own).inputs
        return failing.leaving_out(compiled, lambda: inputs.stored(states(inputs)), attempt)

    def without_expired(self, compiled: CompiledView, limit: datetime | None) -> CompiledView:
        return failing.without_expired(compiled, limit)

    def forget_expired(self, connection: Connection, compiled: CompiledView, limit: datetime) -> None:
        merge.forget_expired(connection, compiled, limit)

    def failed_groups(self, compiled: CompiledView) -> tuple[FailedGroup, ...]:
        return fold_of(compiled.own).failed

    def follow(self, plans: BatchPlans, compiled: CompiledView, staged: Mapping[str, StagedRows]) -> StagedRows:
        return merge.stage_touched(plans, compiled, staged.get(INPUTS, NO_ROWS))

    def add(self, connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
        if INPUTS in staged.sides:
            merge.replace_touched(connection, compiled, schema, staged)
        super().add(connection, compiled, schema, staged)
        if INPUTS in staged.sides and schema == "state":
            merge.record_left_out(connection, compiled, staged)
