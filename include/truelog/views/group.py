"""Group: a view whose rows are a function of all events with the same key, in their order.

A cart, a session or a document depends on the order of its events, which no measure can express. A Group therefore
keeps its inputs: one row for each event, in the side table `inputs`. When a batch touches a group, `fold` runs on all
inputs of the group, and its result replaces the group's rows.

    VIEW = Group(reads=("cart_event",), transform=transform, by=("cart_id",), inputs=("verb", "product", "quantity"),
                 fold=fold, key=("cart_id", "product"), values=("quantity",))

`transform` selects the columns in `by` and `inputs`. `fold` gets these columns, and the coordinates `topic`,
`partition` and `offset`, which make the order of the inputs total. It selects the columns in `key` and `values`. It may
filter, explode, aggregate and use windows, always within a group: the fold of two groups is the union of their folds.

If a group has many inputs, and each input changes a state, `fold` may be `Steps` instead of a function.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from truelog.measures.measure import Measure
from truelog.measures.value import Value
from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.views.steps import NUMBER, Steps
from truelog.views.view import View

INPUTS, CHECKPOINTS = "inputs", "checkpoints"  # the names of the side tables


@dataclass(frozen=True, kw_only=True)
class Group(View):
    """The declaration of a Group. The other fields are those of `View`.

    by: the columns that the rows of a group share. `key` begins with them. An event with a NULL among them belongs to
        no group.
    inputs: the further columns that `transform` selects.
    fold: the inputs of some groups → their rows; or `Steps`.
    values: the columns of a row beside the key.
    refusal: the column of a state of `Steps` that says why the last input was refused, if it was. `truelog explain`
        shows the reason with the event.
    most: a group with more inputs has no rows, in the stream and in every rebuild.
    keep: how long a group stays after the time in the first timestamp column of `by`, by the log's clock. Its inputs
        and its rows expire at once.
    """

    by: tuple[str, ...]
    inputs: tuple[str, ...]
    fold: Callable[[DataFrame], DataFrame] | Steps
    values: tuple[str, ...]
    refusal: str | None = None
    most: int = 10_000
    measures: Mapping[str, Measure] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key[: len(self.by)] != self.by:
            raise BadDeclaration(f"the key {self.key} does not begin with {self.by}, the columns of a group")
        self._require_no_clock()
        if taken := {*COORDINATES} & {*self.by, *self.inputs}:
            raise BadDeclaration(f"an input already has the column {', '.join(sorted(taken))}; rename the column")
        if isinstance(self.fold, Steps):
            self._require_one_state(self.fold)
        elif self.refusal is not None:
            raise BadDeclaration("`refusal` is a column of the state of `Steps`: other folds judge no single input")
        object.__setattr__(self, "measures", {name: Value() for name in self.values})

    @property
    def is_stateful(self) -> bool:
        return True

    @property
    def partition_columns(self) -> tuple[str, ...] | None:
        """The columns of a group of steps. Otherwise an event could come before a checkpoint at any time."""
        return self.by if isinstance(self.fold, Steps) else None

    @property
    def question_columns(self) -> tuple[str, ...]:
        return self.by

    @property
    def may_lose_rows(self) -> bool:
        return True

    @property
    def backfill_cost(self) -> str:
        return (
            "A backfill recomputes the partials of the inputs of its days. The comparison that follows reads the "
            "inputs of all days and folds all groups: its cost grows with all inputs, not with the days of the "
            "backfill."
        )

    def _require_no_clock(self) -> None:
        if self.window is not None or (self.reads_clock and self.keep is None):
            raise BadDeclaration("a Group has no `window` and no clock: its rows depend on its inputs alone")

    def _require_one_state(self, steps: Steps) -> None:
        if self.refusal is not None and self.refusal not in self.values:
            raise BadDeclaration(f"the refusal {self.refusal!r} is not among the values {self.values}")
        if self.key != self.by:
            raise BadDeclaration(f"the key {self.key} is not {self.by}: steps make one row for each group")
        if len(self.reads) != 1:
            raise BadDeclaration(f"steps need one order, but the events of {self.reads} have none in common")
        if steps.every < 1 or self.most % steps.every:
            raise BadDeclaration(f"most={self.most} is not a multiple of every={steps.every}")
        if taken := {NUMBER, *COORDINATES} & {*self.by, *self.values}:
            raise BadDeclaration(f"a checkpoint already has the column {', '.join(sorted(taken))}; rename the column")
