"""Steps: a fold of a Group that changes a state by one input after another, and continues from checkpoints.

A document is the result of 100,000 small edits. To fold all of them for each further edit would be too slow. A Group
may therefore declare steps instead of a function of all inputs:

    fold=Steps(initial, step)

The rows of the Group are then the states, one row for each group. After every 1,000th input of a group, its state is
kept in the side table `checkpoints`. When a batch touches the group, the fold continues from the last checkpoint before
the batch's first input. A checkpoint lies at the same inputs however the log was cut into batches, so a rebuild makes
the same checkpoints.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column

NUMBER = "number"  # the column of a checkpoint that says how many inputs of its group are before it


@dataclass(frozen=True)
class Steps:
    """How a state follows from the inputs of a group, in the order of their offsets.

    initial: the state before the first input: a struct with the fields `values` of the Group.
    step: the state and an input → the next state, with the same fields. An input is a struct of the `inputs` of the
        Group and the coordinates. A step uses native expressions without aggregates and windows. It must not fail on
        any input, and it must limit the size of the state.
    every: the number of inputs between two checkpoints.
    """

    initial: Callable[[], Column]
    step: Callable[[Column, Column], Column]
    every: int = 1_000
