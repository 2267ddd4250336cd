"""Fold: how the rows of a table follow from the inputs of a Group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from truelog.tables.compiled_view import CompiledView


@dataclass(frozen=True)
class Fold:
    """A compiled fold. Tables with the same `run` follow from one fold.

    inputs: the side table with the inputs.
    run: inputs → the result of the fold.
    rows: the result of the fold → the rows of the table.
    """

    inputs: "CompiledView"
    run: Callable[[DataFrame], DataFrame]
    rows: Callable[[DataFrame], DataFrame]
