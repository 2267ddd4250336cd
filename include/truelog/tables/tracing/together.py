"""Together: the rows of several frames, computed by one plan. For few rows, a plan costs more than its rows."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_FRAME = "_frame"  # column with the number of the frame to which a row belongs


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows. Spark analyses a union again in each union above it, so their depth is small."""
    middle = len(frames) // 2
    if not middle:
        return frames[0]
    return united(frames[:middle]).unionByName(united(frames[middle:]), allowMissingColumns=True)


def packed(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames in one, each as the struct of its frame; the structs of other frames are NULL."""
    return united(
        [frame.select(F.lit(n).alias(_FRAME), F.struct("*").alias(_struct(n))) for n, frame in enumerate(frames)]
    )


def unpacked(rows: DataFrame, number: int) -> list[DataFrame]:
    """The frames of packed rows, given their number."""
    return [rows.where(F.col(_FRAME) == each).select(f"{_struct(each)}.*") for each in range(number)]


def collected(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """The rows of each frame, in this process."""
    rows = packed(frames)
    # Arrow has no NULL struct of a field that is never NULL.
    nullable = F.struct("*").cast(rows.schema.toNullable()).alias("_packed")
    found = rows.select(nullable).select("_packed.*").toArrow()
    return [_collected(found, number) for number in range(len(frames))]


def _collected(rows: pa.Table, number: int) -> pa.Table:
    chosen = rows.filter(pc.equal(rows[_FRAME], number))
    return pa.Table.from_struct_array(chosen[_struct(number)].combine_chunks())


def _struct(number: int) -> str:
    return f"_rows_{number}"
