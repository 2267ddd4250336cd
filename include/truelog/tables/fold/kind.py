"""The kind of a Group: its rows are folded from the inputs of the groups that a batch touches."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView, RowFilter
from truelog.tables.fold import merge
from truelog.tables.fold.inputs import inputs_of
from truelog.tables.fold.repair import repair_groups
from truelog.tables.fold.trace import trace_group
from truelog.tables.kind import Kind, Repair, Source
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.trace import Trace, Tracing
from truelog.views.group import INPUTS


class Fold(Kind):
    """The rows of touched groups replace the earlier rows of these groups."""

    def is_kind_of(self, compiled: CompiledView) -> bool:
        return compiled.fold is not None

    def follows_from(self, compiled: CompiledView) -> Sequence[CompiledView]:
        return (inputs_of(compiled),)

    def states(self, compiled: CompiledView, source: Source, only: RowFilter) -> DataFrame:
        inputs = inputs_of(compiled)
        return only(compiled.folded(inputs.stored(source.states(inputs))))

    def repair_following(self, repair: Repair) -> int:
        return repair_groups(repair)

    def trace(self, tracing: Tracing) -> Trace:
        return trace_group(tracing)

    def create(self, connection: Connection, compiled: CompiledView) -> None:
        """Let the executors load inputs and checkpoints."""
        for each in filter(None, (compiled.inputs, compiled.checkpoints)):
            stage.grant(connection, each)

    def follow(
        self, spark: SparkSession, compiled: CompiledView, settings: Settings, staged: Mapping[str, StagedRows]
    ) -> StagedRows:
        return merge.stage_touched(spark, compiled, settings, staged.get(INPUTS, NO_ROWS))

    def add_batch(self, connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
        super().add_batch(connection, compiled, staged)
        if INPUTS in staged.sides:
            merge.record_oversized(connection, compiled, staged)

    def add(self, connection: Connection, compiled: CompiledView, schema: str, staged: StagedRows) -> None:
        if INPUTS in staged.sides:
            merge.replace_touched(connection, compiled, schema, staged)
        super().add(connection, compiled, schema, staged)
