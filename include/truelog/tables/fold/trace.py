"""The trace of a Group: the inputs of the row's group. The fold of the inputs so far makes the rows of the group."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.tables.fold.compiled import fold_of, group_of
from truelog.tables.row_filter import with_keys
from truelog.tables.table import Table
from truelog.tables.tracing.event_steps import STEP, EventSteps, contributions
from truelog.tables.tracing.together import united
from truelog.tables.tracing.trace import Trace, TracedTable, Tracing


def trace_group(tracing: Tracing, own: Table) -> Trace:
    """The trace of the rows of a group, or of one of them. `own` is the view's own table, with its fold."""
    of_group = with_keys(tracing.key.select(*group_of(tracing.compiled).by))
    fold, inputs = fold_of(own), fold_of(own).inputs
    [added] = tracing.computed(lambda each: contributions(each, tracing.transformed_rows(each), of_group), [inputs])

    def rows(steps: EventSteps) -> DataFrame:
        """The fold after each step. A fold may depend on the values of `by`, so it cannot run on all steps at once.

        In one partition, it needs no shuffle.
        """
        [stepped] = tracing.computed(lambda each: inputs.stored(steps.first_steps(each), STEP).coalesce(1), [added])
        until = ((number, stepped.where(F.col(STEP) <= number).drop(STEP)) for number in steps.numbers)
        folds = [fold.folded(own, each).withColumn(STEP, F.lit(number)) for number, each in until]
        return tracing.only(united(folds))

    return Trace([TracedTable(inputs, added, added)], rows, refusal=group_of(tracing.compiled).refusal)
