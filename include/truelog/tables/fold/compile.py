"""Compiles the fold of a Group: checks it on frames without rows, and finds the types of the columns that it makes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables import plan
from truelog.tables.fingerprint import fold_fingerprint, steps_fingerprint
from truelog.tables.fold import checks as fold_checks
from truelog.tables.fold.compiled import Fold
from truelog.tables.fold.stepped import Stepped
from truelog.tables.plan import empty_frame
from truelog.tables.table import Table
from truelog.views.group import Group
from truelog.views.steps import Steps
from truelog.views.view import View

_STATE = "_state"


@dataclass(frozen=True)
class CompiledFold:
    """The fold of a table, the columns of the table's rows, and the table's fingerprint."""

    fold: Fold
    schema: StructType
    fingerprint: str


def compile_fold(spark: SparkSession, name: str, group: Group, table: View, inputs: Table) -> CompiledFold:
    """Compile a Group's fold, for the Group's own table or for its checkpoints.

    Raises:
        BadDeclaration: the fold does not keep groups apart, or its result depends on more than the order of the inputs.
    """
    columns = StructType([StructField(column, inputs.dtypes[column]) for column in inputs.stored_columns])
    frame = empty_frame(spark, columns)
    if not isinstance(group.fold, Steps):
        rows = group.fold(frame)
        fold_checks.require_local(name, group.by, frame, rows, group.fold(frame))
        fold = Fold(inputs, group.by, partial(_fold_bounded, group.fold, group), lambda folded: folded)
        return CompiledFold(fold, rows.schema, fold_fingerprint(group, rows))
    declared = _declared(spark, name, group, group.fold, columns)
    stepped = Stepped(group.fold, group.by, group.most, _state_type(spark, name, group.fold), _used(declared))
    chosen = stepped.rows if table is group else stepped.checkpoints
    made_by = steps_fingerprint(table, group, group.fold.every, declared)
    schema = chosen(stepped.run(frame)).schema
    return CompiledFold(Fold(inputs, group.by, stepped.run, chosen), schema, made_by)


def _fold_bounded(fold: Callable[[DataFrame], DataFrame], group: Group, inputs: DataFrame) -> DataFrame:
    """The rows of the groups that do not have too many inputs.

    The window also sorts the inputs of each group: a sum that overflows on the way does so in every layer.
    """
    in_order = Window.partitionBy(*group.by).orderBy(*COORDINATES)
    size = F.count(F.lit(1)).over(in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
    return fold(inputs.withColumn("_inputs", size).where(F.col("_inputs") <= group.most).drop("_inputs"))


def _declared(spark: SparkSession, name: str, group: Group, steps: Steps, inputs: StructType) -> DataFrame:
    """A frame without rows that declares the steps: the initial state, and the state after a step."""
    columns = [field for field in inputs if field.name not in group.by]
    state = StructField(_STATE, _state_type(spark, name, steps))
    frame = empty_frame(spark, StructType([state, *columns]))

    def select() -> DataFrame:
        step = steps.step(F.col(_STATE), F.struct(*(field.name for field in columns)))
        return frame.select(steps.initial().alias("initial"), step.alias("stepped"))

    declared = select()
    fold_checks.require_row_wise(name, declared, select())
    initial, stepped = (field.dataType.simpleString() for field in declared.schema)
    if stepped != initial:
        raise BadDeclaration(f"{name}: the initial state is {initial}, but a step makes {stepped}.")
    return declared


def _used(declared: DataFrame) -> tuple[str, ...]:
    """The columns of an input that a step uses."""
    return tuple(column for column in plan.used_columns(declared) if column != _STATE)


def _state_type(spark: SparkSession, name: str, steps: Steps) -> StructType:
    """The type of the state. Any of its fields may be NULL."""
    [initial] = spark.range(0).select(steps.initial()).schema
    dtype = DataType.fromDDL(initial.dataType.simpleString())
    if not isinstance(dtype, StructType):
        raise BadDeclaration(f"{name}: the initial state is not a struct, but {dtype.simpleString()}.")
    return dtype
