"""The steps of a Group in Spark: its inputs, in chunks between two checkpoints → its states.

1. number the inputs of each group; the seed, a checkpoint from which the fold continues, has its own number
2. collect the inputs of each chunk, in order
3. go through the chunks of each group in order: the state after a chunk is the state before the next one

The state after a chunk gets the form that PostgreSQL stores, so it makes no difference whether the fold continues from
the state itself or from a checkpoint.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType, StructField, StructType

from truelog.measures.value import Value
from truelog.schema.names import COORDINATES
from truelog.views.steps import NUMBER, Steps

SEED = "_seed"  # column of the seed: its number and its state. It is NULL in the row of an input
_COUNT, _CHUNK = "_count", "_chunk"
_TYPES = (StringType(), IntegerType(), LongType())
_COORDINATES = StructType([StructField(name, dtype) for name, dtype in zip(COORDINATES, _TYPES, strict=True)])


@dataclass(frozen=True)
class Stepped:
    """The steps of a Group.

    by, most: the columns of a group, and the number of inputs that it may have.
    state: the type of the state.
    used: the columns of an input that `step` uses.
    """

    steps: Steps
    by: tuple[str, ...]
    most: int
    state: StructType
    used: tuple[str, ...]

    def run(self, inputs: DataFrame) -> DataFrame:
        """The states of each group, at its new checkpoints and after its last input. Seeds are among the inputs.

        A group with too many inputs has states for the first `most` of them, and then one more.
        """
        by = self.by
        if SEED not in inputs.columns:
            inputs = inputs.withColumn(SEED, F.lit(None).cast(self.seed))
        in_order = F.sort_array(F.collect_list(_CHUNK))  # by number
        states = F.aggregate(in_order, self._before_the_first, self._after_another)
        folded = self._chunks(inputs).groupBy(*by).agg(F.max(f"{_CHUNK}.number").alias("_total"), states.alias("_all"))
        return folded.select(*by, "_total", F.explode("_all").alias("_at")).where("_at.number > 0")

    def rows(self, states: DataFrame) -> DataFrame:
        """The state of each group after its last input."""
        is_last = (F.col("_at.number") == F.col("_total")) & (F.col("_total") <= self.most)
        return states.where(is_last).select(*self.by, "_at.state.*")

    def checkpoints(self, states: DataFrame) -> DataFrame:
        """The new checkpoints, each with the coordinates of the last input before it."""
        number = F.col("_at.number")
        is_new = ~F.col("_at.is_seed") & (number % self.steps.every == 0) & (number <= self.most)
        return states.where(is_new).select(*self.by, "_at.last.*", number.alias(NUMBER), "_at.state.*")

    @property
    def seed(self) -> StructType:
        """The type of a seed."""
        return StructType([StructField("number", LongType()), StructField("state", self.state)])

    def _chunks(self, inputs: DataFrame) -> DataFrame:
        """The inputs of each chunk in order. A seed is the only row of its chunk."""
        count = F.coalesce(F.col(SEED)["number"], F.lit(1))
        in_order = Window.partitionBy(*self.by).orderBy(*COORDINATES)
        running = F.sum(count).over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        counted = inputs.withColumn(_COUNT, running).where(F.col(_COUNT) <= self.most + 1)
        # The topic is the same for all inputs, so the order is the order of partition and offset.
        each = F.when(F.col(SEED).isNull(), F.struct(*dict.fromkeys((*COORDINATES[1:], *self.used))))
        columns = {
            "number": F.max(_COUNT),
            "last": F.max(F.struct(*COORDINATES)),
            "seed": F.first(F.col(SEED)["state"], ignorenulls=True),
            "inputs": F.sort_array(F.collect_list(each)),
        }
        numbered = counted.groupBy(*self.by, F.expr(f"({_COUNT} - 1) DIV {self.steps.every}").alias("_place"))
        chunk = F.struct(*(column.alias(name) for name, column in columns.items())).alias(_CHUNK)
        return numbered.agg(chunk).drop("_place")

    @property
    def _before_the_first(self) -> Column:
        """The list of states before the first chunk: the initial state."""
        fields = {"number": LongType(), "last": _COORDINATES, "is_seed": BooleanType(), "state": self.state}
        listed = ArrayType(StructType([StructField(name, dtype) for name, dtype in fields.items()]))
        return F.array(F.struct(F.lit(0), F.lit(None), F.lit(False), self.steps.initial())).cast(listed)

    def _after_another(self, states: Column, chunk: Column) -> Column:
        """The list of states after another chunk. Each expression occurs once, because Spark computes a copy again."""
        before = F.element_at(states, -1)["state"]
        folded = F.aggregate(chunk["inputs"], before, self.steps.step, self._as_stored)
        columns = {
            "number": chunk["number"],
            "last": chunk["last"],
            "is_seed": chunk["seed"].isNotNull(),
            "state": F.coalesce(chunk["seed"], folded),
        }
        return F.concat(states, F.array(F.struct(*(column.alias(name) for name, column in columns.items()))))

    def _as_stored(self, state: Column) -> Column:
        fields = (Value().prepare(state[field.name], field.dataType).alias(field.name) for field in self.state)
        return F.struct(*fields)
