"""The kind of views whose rows follow from rules, which are patterns or searches: a Group with a fold that needs rules.

If a batch contains records of rules, the versions of rules before and after the batch differ. Then the groups are
folded again that have events which these versions judge, or matches of these versions.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from truelog.storage.database import Connection, connect
from truelog.support import faults
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView, Compiling
from truelog.tables.fold import failing, merge
from truelog.tables.fold.compile import inputs_table
from truelog.tables.fold.kind import Fold
from truelog.tables.fold.repair import repair_groups
from truelog.tables.fold.trace import trace_group
from truelog.tables.kind import Repair
from truelog.tables.patterns import matching, rules
from truelog.tables.patterns.judging import Judging, collected, compile_judged, judging_of, with_fold
from truelog.tables.row_filter import all_rows
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging.batch_plans import BatchPlans
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import contributions
from truelog.tables.tracing.trace import Trace, Tracing
from truelog.views import patterns
from truelog.views.group import INPUTS
from truelog.views.view import View

_T = TypeVar("_T")


class Judged(Fold):
    """What both kinds share. The rows of touched groups replace the earlier rows of these groups."""

    def side_tables(self, view: Any) -> Mapping[str, View]:
        return {INPUTS: view.inputs_table(inputs_table(view)), view.rules_side: view.rules_table()}

    def is_kind_of(self, table: Table) -> bool:
        return isinstance(table.derivation, Judging) and self.is_declared_by(table.view)

    def repair_following(self, repair: Repair) -> int:
        def known() -> CompiledView:
            return with_fold(repair.compiled, rules.stored(repair.connection, repair.compiled).fold)

        return repair_groups(repair, known)

    def trace(self, tracing: Tracing) -> Trace:
        judging = judging_of(tracing.compiled.own)
        table = judging.rules
        changes = collected(table, contributions(table, tracing.transformed_rows(table), all_rows))
        return trace_group(tracing, with_fold(tracing.compiled, judging.with_changes(changes)).own)

    def leaving_out_failures(
        self,
        compiled: CompiledView,
        states: Callable[[Table], DataFrame],
        attempt: Callable[[CompiledView], _T],
    ) -> _T:
        judging = judging_of(compiled.own)

        def known() -> CompiledView:
            return with_fold(compiled, judging.with_changes(collected(judging.rules, states(judging.rules))))

        inputs = judging.inputs
        return failing.leaving_out(compiled, lambda: inputs.stored(states(inputs)), attempt, known)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Let the executors load inputs, and find the groups with matches of a version."""
        super().create(connection, compiled)
        stage.grant(connection, compiled.own)

    def follow(self, plans: BatchPlans, compiled: CompiledView, staged: Mapping[str, StagedRows]) -> StagedRows:
        """Fold for the rules as they are. Without rules, no event can fit one, so there is nothing to fold."""
        judging = judging_of(compiled.own)
        inputs, changes = staged.get(INPUTS, NO_ROWS), staged.get(judging.rules.side, NO_ROWS)
        if not inputs.attempts and not changes.attempts:
            return NO_ROWS
        with connect(plans.settings, autocommit=True) as connection:
            before = rules.stored(connection, compiled)
            if not changes.attempts:
                if not any(before.book.versions.values()):
                    return NO_ROWS
                return merge.stage_touched(plans, with_fold(compiled, before.fold), inputs)
            after = before.with_changes(judging, rules.staged_changes(connection, compiled, changes))
        touched = rules.touched_groups(compiled, before.book, after.book)
        fresh = BatchPlans(plans.spark, plans.settings)  # these groups are loaded by another query
        return merge.stage_touched(fresh, with_fold(compiled, after.fold), inputs, touched)

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        judging = judging_of(compiled.own)
        changes = staged.sides.get(judging.rules.side, NO_ROWS)
        if changes.attempts:
            before = rules.stored(connection, compiled)
            after = before.with_changes(judging, rules.staged_changes(connection, compiled, changes))
            rules.delete_touched(connection, compiled, before.book, after.book)
        super().add_batch(connection, compiled, staged)
        if staged.attempts:
            faults.reach(f"judged.{compiled.name}")


class Patterns(Judged):
    """The rows are matches of patterns."""

    def is_declared_by(self, view: View) -> bool:
        return isinstance(view, patterns.Patterns)

    def compile(self, compiling: Compiling) -> Table:
        if compiling.side:
            return super().compile(compiling)
        return compile_judged(compiling, matching.ROWS, matching.compile_matching)
