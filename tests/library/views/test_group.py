"""A Group's fold is refused if it mixes groups, or if its result depends on the order in which events arrive."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Group
from truelog.support.errors import BadDeclaration

ORDER = ("topic", "partition", "offset")


def _transform(click: DataFrame) -> DataFrame:
    return click.select("url", "visitor_id", F.length("search_id").cast("double").alias("weight"))


def _count(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.count("*").alias("clicks"))


COUNTED = Group(
    reads=("click",),
    transform=_transform,
    by=("url",),
    inputs=("visitor_id", "weight"),
    fold=_count,
    key=("url",),
    values=("clicks",),
)


BY_MINUTE = replace(
    COUNTED,
    transform=lambda click: click.select("url", F.date_trunc("minute", "event_time").alias("minute"), "visitor_id"),
    by=("url", "minute"),
    inputs=("visitor_id",),
    fold=lambda inputs: inputs.groupBy("url", "minute").agg(F.count("*").alias("clicks")),
    key=("url", "minute"),
    keep="1 hour",
)


def numbered(inputs: DataFrame) -> DataFrame:
    number = F.row_number().over(Window.partitionBy("url").orderBy(*ORDER))
    return inputs.select("url", number.alias("clicks")).groupBy("url").agg(F.max("clicks").alias("clicks"))


def exploded(inputs: DataFrame) -> DataFrame:
    visits = F.collect_list("visitor_id").over(Window.partitionBy("url").orderBy(*ORDER)).alias("visits")
    each = inputs.select("url", visits).select("url", F.explode("visits"))
    return each.groupBy("url").agg(F.count("*").alias("clicks"))


def largest(inputs: DataFrame) -> DataFrame:
    most = F.max("partition").over(Window.partitionBy("url"))
    return inputs.withColumn("most", most).where("partition = most").groupBy("url").agg(F.count("*").alias("clicks"))


def sliding(inputs: DataFrame) -> DataFrame:
    near = Window.partitionBy("url").orderBy("weight").rangeBetween(-5, Window.currentRow)
    return inputs.select("url", F.count("*").over(near).alias("near")).groupBy("url").agg(F.max("near").alias("clicks"))


def twice(inputs: DataFrame) -> DataFrame:
    return _count(inputs.unionByName(inputs))


def added(inputs: DataFrame) -> DataFrame:
    """A union before a sum."""
    visits, searches = inputs.select("url", F.lit(1).alias("n")), inputs.where("weight > 0").select("url", F.lit(2))
    return visits.union(searches).groupBy("url").agg(F.sum("n").alias("clicks"))


@pytest.mark.parametrize("fold", [_count, numbered, exploded, largest, sliding, twice, added])
def test_a_fold_within_groups_is_accepted(lab: Lab, fold: Callable[[DataFrame], DataFrame]) -> None:
    compiled = lab.compiled("counted", replace(COUNTED, fold=fold))
    assert list(compiled.own.stored_columns) == ["url", "clicks"]
    [inputs] = compiled.sides
    assert list(inputs.stored_columns) == ["url", *ORDER, "visitor_id", "weight"]


def by_visitor(inputs: DataFrame) -> DataFrame:
    return (
        inputs.groupBy("visitor_id").agg(F.first("url").alias("url"), F.count("*").alias("clicks")).drop("visitor_id")
    )


def over_all(inputs: DataFrame) -> DataFrame:
    return inputs.select("url", F.count("*").over(Window.partitionBy("visitor_id")).alias("clicks"))


def renamed(inputs: DataFrame) -> DataFrame:
    return inputs.select(F.lower("url").alias("url")).groupBy("url").agg(F.count("*").alias("clicks"))


def with_ties(inputs: DataFrame) -> DataFrame:
    return inputs.select("url", F.row_number().over(Window.partitionBy("url").orderBy("weight")).alias("clicks"))


def first_of_ties(inputs: DataFrame) -> DataFrame:
    near = Window.partitionBy("url").orderBy("weight").rangeBetween(-5, Window.currentRow)
    return inputs.select("url", F.first("offset").over(near).alias("clicks"))


def mixed_frames(inputs: DataFrame) -> DataFrame:
    url = Window.partitionBy("url").orderBy("weight")
    near, rows = url.rangeBetween(-5, 0), url.rowsBetween(-5, 0)
    return inputs.select("url", (F.count("*").over(near) + F.sum("partition").over(rows)).alias("clicks"))


def any_first(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.first("offset").alias("clicks"))


def a_list(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.size(F.collect_list("offset")).alias("clicks"))


def unordered_window(inputs: DataFrame) -> DataFrame:
    return inputs.select("url", F.first("offset").over(Window.partitionBy("url")).alias("clicks"))


def float_sum(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.sum("weight").cast("bigint").alias("clicks"))


def joined(inputs: DataFrame) -> DataFrame:
    return inputs.join(_count(inputs), "url").select("url", "clicks")


def random(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.count("*").alias("clicks")).where(F.rand() < 1)


def limited(inputs: DataFrame) -> DataFrame:
    return _count(inputs).limit(10)


def of_two_kinds(inputs: DataFrame) -> DataFrame:
    """The second half of a union has another column in the place of `url`."""
    return inputs.select("url").union(inputs.select("visitor_id")).groupBy("url").agg(F.count("*").alias("clicks"))


def with_all(inputs: DataFrame) -> DataFrame:
    return _count(inputs).union(inputs.select(F.lit("all"), F.lit(1).cast("bigint")))


def numbered_twice(inputs: DataFrame) -> DataFrame:
    return numbered(inputs.union(inputs))


def numbered_after_an_explode(inputs: DataFrame) -> DataFrame:
    return numbered(inputs.withColumn("copy", F.explode(F.array(F.lit(1), F.lit(2)))))


def by_a_part_of_the_offset(inputs: DataFrame) -> DataFrame:
    window = Window.partitionBy("url").orderBy("topic", "partition", F.col("offset") % 2)
    return inputs.select("url", F.row_number().over(window).alias("clicks"))


def of_all_groups(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("url").agg(F.max(inputs.agg(F.count("*")).scalar()).alias("clicks"))


def with_subtotals(inputs: DataFrame) -> DataFrame:
    return inputs.rollup("url").agg(F.count("*").alias("clicks"))


@pytest.mark.parametrize(
    ("fold", "reason"),
    [
        (of_two_kinds, "covers several groups"),
        (with_all, "the fold changes url"),
        (numbered_twice, "an order that leaves ties"),
        (numbered_after_an_explode, "an order that leaves ties"),
        (by_a_part_of_the_offset, "an order that leaves ties"),
        (with_subtotals, "covers several groups"),
        (of_all_groups, "the fold uses a subquery"),
        (by_visitor, "covers several groups"),
        (over_all, "covers several groups"),
        (renamed, "covers several groups"),
        (with_ties, "an order that leaves ties. End it with topic, partition, offset"),
        (first_of_ties, "First in the fold depends on the order"),
        (mixed_frames, "an order that leaves ties"),
        (any_first, "First in the fold depends on the order"),
        (a_list, "CollectList in the fold depends on the order"),
        (unordered_window, "First in the fold depends on the order"),
        (float_sum, "adds floats"),
        (joined, "the fold uses Join"),
        (random, "a random or per-run value"),
        (limited, "the fold uses GlobalLimit"),
    ],
)
def test_another_fold_is_refused(lab: Lab, fold: Callable[[DataFrame], DataFrame], reason: str) -> None:
    with pytest.raises(BadDeclaration, match=reason):
        lab.compiled("refused", replace(COUNTED, fold=fold))


def test_the_key_begins_with_the_columns_of_a_group() -> None:
    with pytest.raises(BadDeclaration, match="does not begin with"):
        replace(COUNTED, key=("clicks", "url"))


def test_a_group_expires_by_a_time_in_by(lab: Lab) -> None:
    with pytest.raises(BadDeclaration, match="no clock"):
        replace(COUNTED, present={"late": "SELECT {clock} FROM {view}"})
    with pytest.raises(BadDeclaration, match="needs a timestamp among the key columns"):
        lab.compiled("counted", replace(COUNTED, keep="1 day"))
    compiled = lab.compiled("by_minute", BY_MINUTE)
    assert [each.age_column for each in compiled.tables] == ["minute", "minute"]
    assert all(each.view.topics == ("click", "ticks") for each in compiled.tables)


def test_a_fold_that_changes_by_is_refused(lab: Lab) -> None:
    def changed(inputs: DataFrame) -> DataFrame:
        return _count(inputs).select(F.upper("url").alias("url"), "clicks")

    with pytest.raises(BadDeclaration, match="the fold changes url"):
        lab.compiled("refused", replace(COUNTED, fold=changed))


def test_another_fold_and_another_bound_are_other_code(lab: Lab) -> None:
    declared = (
        COUNTED,
        replace(COUNTED, fold=numbered),
        replace(COUNTED, most=5),
        replace(COUNTED, inputs=("weight",)),
    )
    with pytest.raises(BadDeclaration):  # the transform selects another column than those declared
        lab.compiled("counted", declared[3])
    assert len({lab.compiled("counted", each).fingerprint for each in declared[:3]}) == 3
