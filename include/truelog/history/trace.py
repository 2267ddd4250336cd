"""The trace of a row: the contributions of events from which it follows, and the row after each step.

- View: the contributions with the row's key. They add up to the row.
- Group: the inputs of the row's group. The fold of the inputs so far makes the rows of the group.
- Join: `join_trace`.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog.batch.rebuild import Rebuilder
from truelog.history.row_key import RowKey
from truelog.history.shown_rows import STEP
from truelog.history.steps import EventSteps, contributions, transformed, with_step
from truelog.log.positions import Positions
from truelog.spark.cache import cached
from truelog.tables.compiled_view import CompiledView, with_keys


@dataclass(frozen=True)
class Source:
    """A table to which events add, the contributions from which the row follows, and those of the listed events."""

    table: CompiledView
    added: DataFrame
    listed: DataFrame


@dataclass(frozen=True)
class Trace:
    """The sources of a row, and a function from steps to the states of the row after each of them."""

    sources: Sequence[Source]
    rows: Callable[[EventSteps], DataFrame]


def trace_view(rebuilder: Rebuilder, end: Positions, key: RowKey, cache: ExitStack) -> Trace:
    """The trace of a row that adds up."""
    added = cached(cache, contributions(rebuilder.compiled, transformed(rebuilder, end), key.only))
    table = with_step(rebuilder.compiled)
    return Trace([Source(rebuilder.compiled, added, added)], lambda steps: steps.states(table, added))


def trace_group(rebuilder: Rebuilder, inputs: CompiledView, end: Positions, key: RowKey, cache: ExitStack) -> Trace:
    """The trace of the rows of a group, or of one of them."""
    compiled = rebuilder.compiled
    of_group = with_keys(key.frame.select(*compiled.group.by))
    added = cached(cache, contributions(inputs, transformed(rebuilder.of_table(inputs), end), of_group))

    def rows(steps: EventSteps) -> DataFrame:
        """The fold after each step. A fold may depend on the values of `by`, so it cannot run on all steps at once.

        In one partition, it needs no shuffle.
        """
        stepped = cached(cache, inputs.stored(steps.first_steps(added), STEP).coalesce(1))
        until = ((number, stepped.where(F.col(STEP) <= number).drop(STEP)) for number in steps.numbers)
        folds = [compiled.folded(each).withColumn(STEP, F.lit(number)) for number, each in until]
        return key.only(_union(folds))

    return Trace([Source(inputs, added, added)], rows)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows. Spark analyses a union again in each union above it, so their depth is small."""
    middle = len(frames) // 2
    return _union(frames[:middle]).unionByName(_union(frames[middle:])) if middle else frames[0]
