"""The trace of a Group: the inputs of the row's group. The fold of the inputs so far makes the rows of the group."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.tables.compiled_view import with_keys
from truelog.tables.event_steps import STEP, EventSteps, contributions
from truelog.tables.fold.inputs import inputs_of
from truelog.tables.trace import Trace, TracedTable, Tracing


def trace_group(tracing: Tracing) -> Trace:
    """The trace of the rows of a group, or of one of them."""
    compiled = tracing.compiled
    inputs, of_group = inputs_of(compiled), with_keys(tracing.key.select(*compiled.group.by))
    added = tracing.cached(contributions(inputs, tracing.transformed_rows(inputs), of_group))

    def rows(steps: EventSteps) -> DataFrame:
        """The fold after each step. A fold may depend on the values of `by`, so it cannot run on all steps at once.

        In one partition, it needs no shuffle.
        """
        stepped = tracing.cached(inputs.stored(steps.first_steps(added), STEP).coalesce(1))
        until = ((number, stepped.where(F.col(STEP) <= number).drop(STEP)) for number in steps.numbers)
        folds = [compiled.folded(each).withColumn(STEP, F.lit(number)) for number, each in until]
        return tracing.only(_union(folds))

    return Trace([TracedTable(inputs, added, added)], rows)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows. Spark analyses a union again in each union above it, so their depth is small."""
    middle = len(frames) // 2
    return _union(frames[:middle]).unionByName(_union(frames[middle:])) if middle else frames[0]
