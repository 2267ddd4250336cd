"""Steps are refused if they use more than a state and an input, or if their states have no common type or order."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tests.beds.lab import Lab
from truelog import Group, Steps
from truelog.support.errors import BadDeclaration
from truelog.tables import plan
from truelog.tables.fold.compiled import fold_of

Step = Callable[[Column, Column], Column]


def _transform(click: DataFrame) -> DataFrame:
    return click.select("visitor_id", "url", F.length("search_id").alias("weight"))


def _none() -> Column:
    return F.struct(F.lit(0).alias("clicks"), F.lit("").alias("urls"))


def _another(state: Column, click: Column) -> Column:
    return F.struct((state["clicks"] + 1).alias("clicks"), F.right(click["url"], F.lit(9)).alias("urls"))


COUNTED = Group(
    reads=("click",),
    transform=_transform,
    by=("visitor_id",),
    inputs=("url", "weight"),
    fold=Steps(_none, _another),
    key=("visitor_id",),
    values=("clicks", "urls"),
)


def test_a_group_of_steps_has_a_row_for_each_group_and_checkpoints(lab: Lab) -> None:
    compiled = lab.compiled("counted", COUNTED)
    assert list(compiled.own.stored_columns) == ["visitor_id", "clicks", "urls"]
    [inputs, checkpoints] = compiled.sides
    placed = ["visitor_id", "topic", "partition", "offset"]
    assert list(inputs.stored_columns) == [*placed, "url", "weight"]
    assert list(checkpoints.stored_columns) == [*placed, "number", "clicks", "urls"]


def test_a_fold_collects_only_the_columns_that_a_step_uses(lab: Lab) -> None:
    compiled = lab.compiled("counted", COUNTED)
    fold = fold_of(compiled.own)
    inputs = fold.inputs
    schema = StructType([StructField(name, inputs.dtypes[name]) for name in inputs.stored_columns])
    folded = fold.run(lab.spark.createDataFrame([], schema))
    collecting = [node for node in plan.nodes(plan.optimized(folded)) if node.nodeName() == "Aggregate"]
    collected = {each.name() for node in collecting for each in plan.items(node.references().toSeq())}
    assert collected & {*inputs.view.measures} == {"url"}


def counted_over(state: Column, click: Column) -> Column:
    number = F.row_number().over(Window.orderBy(click["offset"]))
    return F.struct(number.alias("clicks"), state["urls"].alias("urls"))


def summed(state: Column, click: Column) -> Column:
    return F.struct(F.sum(click["weight"]).cast("int").alias("clicks"), F.lit("").alias("urls"))


def random(state: Column, click: Column) -> Column:
    return F.struct((F.rand() * 9).cast("int").alias("clicks"), state["urls"].alias("urls"))


def in_python(state: Column, click: Column) -> Column:
    longer = F.udf(lambda text: text * 2)
    return F.struct(state["clicks"].alias("clicks"), longer(click["url"]).alias("urls"))


def wider(state: Column, click: Column) -> Column:
    return F.struct((state["clicks"] + F.lit(1).cast("bigint")).alias("clicks"), state["urls"].alias("urls"))


def reordered(state: Column, click: Column) -> Column:
    return F.struct(state["urls"].alias("urls"), state["clicks"].alias("clicks"))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (counted_over, "a step uses Window"),
        (summed, "a step uses Aggregate"),
        (random, "a step uses a random or per-run value"),
        (in_python, "a step uses PythonUDF"),
        (wider, "the initial state is struct<clicks:int,urls:string>, but a step makes struct<clicks:bigint,"),
        (reordered, "but a step makes struct<urls:string,clicks:int>"),
    ],
)
def test_another_step_is_refused(lab: Lab, step: Step, reason: str) -> None:
    with pytest.raises(BadDeclaration, match=reason):
        lab.compiled("refused", replace(COUNTED, fold=Steps(_none, step)))


def test_a_state_is_a_struct_of_the_values(lab: Lab) -> None:
    with pytest.raises(BadDeclaration, match="is not a struct, but int"):
        lab.compiled("refused", replace(COUNTED, fold=Steps(lambda: F.lit(0), lambda state, click: state)))
    with pytest.raises(BadDeclaration, match="the key and the measures are"):
        lab.compiled("refused", replace(COUNTED, values=("clicks",)))


def test_steps_need_one_row_one_order_and_whole_checkpoints() -> None:
    with pytest.raises(BadDeclaration, match="one row for each group"):
        replace(COUNTED, key=("visitor_id", "clicks"))
    with pytest.raises(BadDeclaration, match="have none in common"):
        replace(COUNTED, reads=("click", "search"))
    with pytest.raises(BadDeclaration, match="not a multiple of every=3"):
        replace(COUNTED, fold=Steps(_none, _another, every=3))
    with pytest.raises(BadDeclaration, match="already has the column number"):
        replace(COUNTED, values=("clicks", "number"))
    with pytest.raises(BadDeclaration, match="the refusal 'why' is not among the values"):
        replace(COUNTED, refusal="why")


def test_other_steps_and_other_checkpoints_are_other_code(lab: Lab) -> None:
    other = Steps(lambda: F.struct(F.lit(1).alias("clicks"), F.lit("").alias("urls")), _another)
    declared = COUNTED, replace(COUNTED, fold=other), replace(COUNTED, fold=Steps(_none, _another, every=10))
    assert len({lab.compiled("counted", each).fingerprint for each in (*declared, replace(COUNTED, most=2_000))}) == 4
    assert lab.compiled("counted", COUNTED).fingerprint == lab.compiled("other", replace(COUNTED)).fingerprint
