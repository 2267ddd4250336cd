"""Compiles the tables of a Group: checks its fold on frames without rows, and finds the types of its columns."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from truelog.measures.measure import require_accepted
from truelog.measures.value import Value
from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration
from truelog.tables import plan
from truelog.tables.added.compile import require_columns
from truelog.tables.compiled_view import Compiling
from truelog.tables.fingerprint import declared_parts, of_parts, plan_parts
from truelog.tables.fold import checks as fold_checks
from truelog.tables.fold.compiled import Fold
from truelog.tables.fold.stepped import Stepped
from truelog.tables.plan import empty_frame
from truelog.tables.provenance_frame import ProvenanceFrame
from truelog.tables.table import Table
from truelog.views.group import INPUTS, Group
from truelog.views.steps import NUMBER, Steps
from truelog.views.view import View

_STATE = "_state"
_Compiled = tuple[Fold, StructType, str]  # with the columns of its rows, and the fingerprint


def inputs_table(group: Group) -> View:
    """The inputs of each group. The key ends with the coordinates of the record."""
    return View(
        reads=group.reads,
        transform=partial(_with_coordinates, group),
        key=(*group.by, *COORDINATES),
        measures={name: Value() for name in group.inputs},
        allowed_lateness=group.allowed_lateness,
        keep=group.keep,
    )


def checkpoints_table(group: Group) -> View:
    """The states of each group after some of its inputs. The key is that of the last of these inputs."""
    return View(
        reads=group.reads,
        transform=group.transform,
        key=(*group.by, *COORDINATES),
        measures={NUMBER: Value(), **group.measures},
        columns={NUMBER: "how many inputs of the group are before the checkpoint"},
        keep=group.keep,
    )


def _with_coordinates(group: Group, *events: Any) -> Any:
    """The inputs of the groups, each with the coordinates of its record."""
    frames: list[Any] = [ProvenanceFrame(each, COORDINATES) for each in events]
    transformed: Any = group.transform(*frames)
    selected = transformed.frame
    return selected.where(reduce(Column.__and__, (F.col(name).isNotNull() for name in group.by)))


def compile_folded(compiling: Compiling) -> Table:
    """Compile a table with rows that follow from the inputs of a Group: its own table, or its checkpoints.

    Raises:
        BadDeclaration: the fold does not keep groups apart, or its result depends on more than the order of the inputs.
    """
    name, group, table, inputs = compiling.name, compiling.view, compiling.table, compiling.side_table(INPUTS)
    fold, schema, made_by = _compile_fold(compiling.spark, name, group, table, inputs)
    require_columns(name, table, schema)
    dtypes = {field.name: field.dataType for field in schema}
    require_accepted(name, table.measures, dtypes)
    compiled = Table(name, table, dtypes, made_by, scans=0, derivation=fold)
    if _texts(compiled) > _texts(inputs):
        raise BadDeclaration(
            f"{name}: the key has {_texts(compiled)} text columns, so a long text of {group.by} is shorter than in "
            f"the inputs. Move a text to the values."
        )
    return compiled


def _texts(table: Table) -> int:
    return sum(isinstance(table.dtypes[k], StringType) for k in table.view.key)


def _compile_fold(spark: SparkSession, name: str, group: Group, table: View, inputs: Table) -> _Compiled:
    columns = StructType([StructField(column, inputs.dtypes[column]) for column in inputs.stored_columns])
    frame = empty_frame(spark, columns)
    if not isinstance(group.fold, Steps):
        rows = group.fold(frame)
        fold_checks.require_local(name, group.by, frame, rows, group.fold(frame))
        fold = Fold(inputs, group.by, partial(_fold_bounded, group.fold, group), lambda folded: folded)
        return fold, rows.schema, _made_by(rows, group, group.by, group.most)
    declared = _declared(spark, name, group, group.fold, columns)
    stepped = Stepped(group.fold, group.by, group.most, _state_type(spark, name, group.fold), _used(declared))
    chosen = stepped.rows if table is group else stepped.checkpoints
    made_by = _made_by(declared, table, group.by, group.most, group.fold.every)
    schema = chosen(stepped.run(frame)).schema
    return Fold(inputs, group.by, stepped.run, chosen), schema, made_by


def _made_by(frame: DataFrame, table: View, *numbers: object) -> str:
    """The fingerprint of a table, given a frame that declares what makes its rows, and what else decides."""
    return of_parts(*plan_parts(frame), *declared_parts(table), repr(numbers))


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
