"""Leaves out the copies among the inputs of a Group: events that a client sent again, with the same id."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from truelog.schema.names import COORDINATES


def once(inputs: DataFrame, *by: str, order: Sequence[str] = COORDINATES) -> DataFrame:
    """The inputs of a fold without copies: an earlier input of the same group has the same topic and `event_id`.

    `by` are the columns of a group, and `order` decides which input is the earlier one. The Group has `event_id` among
    its inputs, and the result has a further column, `copy`.
    """
    copies = Window.partitionBy(*by, "topic", "event_id").orderBy(*order)
    return inputs.select("*", F.row_number().over(copies).alias("copy")).where("copy = 1")
