"""Fingerprints: what changes a fingerprint, what does not, and that every process computes the same one."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from truelog import First, Latest, Max, Sum, View, latest
from truelog.log import records
from truelog.schema.loading.events import load_events
from truelog.spark.session import small_session
from truelog.tables.compiled_view import CompiledView
from truelog.tables.compiler import compile_view
from truelog.views import catalogue

Transform = Callable[..., DataFrame]

COORDINATES: dict[str, DataType] = {"topic": StringType(), "partition": IntegerType(), "offset": LongType()}
VIEWED = {**COORDINATES, "at": TimestampType(), "url": StringType(), "ip": StringType(), "bytes": LongType()}
VIEWED |= {"status": LongType(), "tags": ArrayType(StringType())}
CLICKED = {**COORDINATES, "at": TimestampType(), "url": StringType(), "by": StringType(), "cost": LongType()}


def schema(fields: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, dtype) for name, dtype in fields.items()])


def counted(viewed: DataFrame) -> DataFrame:
    return viewed.select("url", F.col("bytes").alias("sent"), F.col("status").alias("seen"))


def starred(viewed: DataFrame) -> DataFrame:
    """Carry all columns, and compute a further column that does not reach the result."""
    wide = viewed.withColumn("size", F.col("bytes") + 1).withColumn("dead", F.upper("ip")).alias("wide")
    return (
        wide.select("*", F.lit(1).alias("seen"))
        .where(F.col("size") > 0)
        .select("url", F.col("size").alias("sent"), "seen")
    )


def exploded(viewed: DataFrame) -> DataFrame:
    tagged = viewed.select("*", F.explode("tags").alias("tag"))
    return tagged.select(F.col("tag").alias("url"), F.col("bytes").alias("sent"), F.lit(1).alias("seen"))


def nested(viewed: DataFrame) -> DataFrame:
    packed = viewed.withColumn("all", F.struct("url", "bytes")).withColumn("rest", F.struct("*"))
    return packed.select("all.url", F.col("all.bytes").alias("sent"), F.lit(1).alias("seen"))


def lifted(viewed: DataFrame) -> DataFrame:
    upper = F.array_join(F.transform("tags", lambda tag: F.upper(F.trim(tag))), ",")
    return viewed.select(
        upper.alias("url"), (F.col("bytes") + F.col("status") * 2).alias("sent"), F.lit(1).alias("seen")
    )


def encoded(viewed: DataFrame) -> DataFrame:
    """Spark sorts the operands of such a comparison by hashes that differ between processes."""
    equal = F.url_encode("url") == F.concat("ip", F.url_decode("url"))
    return viewed.select(F.col("ip").alias("url"), equal.cast("int").alias("sent"), F.lit(1).alias("seen"))


def united(viewed: DataFrame, clicked: DataFrame) -> DataFrame:
    sent = viewed.select("url", F.col("bytes").alias("sent"), F.lit(0).cast("bigint").alias("seen"))
    return sent.union(clicked.select("url", F.lit(0).cast("bigint"), F.col("cost")))


def twice(viewed: DataFrame) -> DataFrame:
    first = viewed.select("url", F.col("bytes").alias("sent"), F.col("status").alias("seen"))
    return first.union(viewed.select("ip", "status", "bytes"))


MEASURES = {"sent": Sum(), "seen": Sum()}
ONE_TOPIC = {each.__name__: each for each in (counted, starred, exploded, nested, lifted, encoded, twice)}


def printed(spark: SparkSession, transform: Transform, *fields: dict[str, DataType], **changes: Any) -> str:
    """The fingerprint of a view of events with these fields."""
    return compiled(spark, transform, *fields, **changes).fingerprint


def compiled(spark: SparkSession, transform: Transform, *fields: dict[str, DataType], **changes: Any) -> CompiledView:
    reads = ("viewed", "clicked")[: len(fields)]
    view = View(reads=reads, transform=transform, key=("url",), measures=MEASURES)
    schemas = dict(zip(reads, map(schema, fields), strict=True))
    return compile_view(spark, "printed", replace(view, **changes), schemas)


@pytest.fixture(params=ONE_TOPIC, ids=list(ONE_TOPIC))
def transform(request: pytest.FixtureRequest) -> Transform:
    return ONE_TOPIC[request.param]


USED = {
    "counted": {"url", "bytes", "status"},
    "starred": {"url", "bytes", "ip"},  # `ip` does not reach the result, but the transform fails without it
    "exploded": {"tags", "bytes"},
    "nested": {"url", "bytes"},
    "lifted": {"tags", "bytes", "status"},
    "encoded": {"url", "ip"},
    "twice": {"url", "bytes", "status", "ip"},
}


def test_only_fields_that_the_view_uses_change_its_fingerprint(spark: SparkSession, transform: Transform) -> None:
    before, used = printed(spark, transform, VIEWED), USED[transform.__name__]
    assert printed(spark, transform, VIEWED) == before
    assert printed(spark, transform, VIEWED | {"country": StringType()}) == before
    assert printed(spark, transform, {"country": StringType(), **dict(reversed(VIEWED.items()))}) == before
    for name in VIEWED.keys() - used:
        fewer = {each: dtype for each, dtype in VIEWED.items() if each != name}
        assert printed(spark, transform, fewer) == before, name


def test_a_view_needs_the_columns_that_determine_its_fingerprint(spark: SparkSession, transform: Transform) -> None:
    view = compiled(spark, transform, VIEWED)
    assert view.columns == {"viewed": USED[transform.__name__]}
    assert view.scans == (2 if transform is twice else 1)


def test_the_type_of_a_used_field_changes_the_fingerprint(spark: SparkSession) -> None:
    narrow = VIEWED | {"bytes": IntegerType()}
    assert printed(spark, counted, narrow) != printed(spark, counted, VIEWED)
    assert printed(spark, nested, narrow) != printed(spark, nested, VIEWED)
    assert printed(spark, counted, VIEWED | {"at": StringType()}) == printed(spark, counted, VIEWED)


def test_swapped_names_change_the_fingerprint(spark: SparkSession) -> None:
    def swapped(viewed: DataFrame) -> DataFrame:
        return viewed.select("url", F.col("bytes").alias("seen"), F.col("status").alias("sent"))

    def crossed(viewed: DataFrame) -> DataFrame:
        return viewed.select("url", F.col("status").alias("sent"), F.col("bytes").alias("seen"))

    def other_key(viewed: DataFrame) -> DataFrame:
        return viewed.select(F.col("ip").alias("url"), F.col("bytes").alias("sent"), F.col("status").alias("seen"))

    found = {printed(spark, each, VIEWED) for each in (counted, swapped, crossed, other_key)}
    assert len(found) == 4


def test_swapped_fields_of_a_struct_change_the_fingerprint(spark: SparkSession) -> None:
    def first(one: str, other: str) -> str:
        def select(viewed: DataFrame) -> DataFrame:
            return viewed.select("url", F.struct(F.col("ip").alias(one), F.col("bytes").alias(other)).alias("seen"))

        return printed(spark, select, VIEWED, measures={"seen": First(3)})

    def newest(one: str, other: str) -> str:
        def select(viewed: DataFrame) -> DataFrame:
            columns: dict[str, Any] = {one: "bytes", other: "status"}
            return viewed.select("url", latest("at", **columns).alias("seen"))

        return printed(spark, select, VIEWED, measures={"seen": Latest()})

    assert first("who", "what") == first("who", "what") != first("what", "who")
    assert newest("who", "what") == newest("who", "what") != newest("what", "who")


def test_each_part_of_the_declaration_changes_the_fingerprint(spark: SparkSession) -> None:
    swapped_measures = {"seen": Sum(), "sent": Max()}
    found = [
        printed(spark, counted, VIEWED),
        printed(spark, counted, VIEWED, measures={"sent": Sum(), "seen": Max()}),
        printed(spark, counted, VIEWED, measures=swapped_measures),
        printed(spark, counted, VIEWED, key=("url", "sent"), measures={"seen": Sum()}),
        printed(spark, lambda v: counted(v).where("sent > 1"), VIEWED),
        printed(spark, lambda v: counted(v).where("sent > 2"), VIEWED),
        printed(spark, lambda v: counted(v.where(F.col("url") != "item#7")), VIEWED),
        printed(spark, lambda v: counted(v.where(F.col("url") != "item#8")), VIEWED),
    ]
    identified = {**VIEWED, "event_id": StringType(), "broker_time": TimestampType()}
    found += [printed(spark, counted, identified, dedupe=each) for each in ("1 hour", "2 hours")]
    assert len(set(found)) == len(found)
    assert printed(spark, counted, identified, dedupe="60 minutes") == found[-2]


def test_a_renamed_field_changes_the_fingerprint(spark: SparkSession) -> None:
    def renamed(viewed: DataFrame) -> DataFrame:
        return viewed.select("url", F.col("volume").alias("sent"), F.col("status").alias("seen"))

    fields = {name.replace("bytes", "volume"): dtype for name, dtype in VIEWED.items()}
    assert printed(spark, renamed, fields) != printed(spark, counted, VIEWED)


def test_bytes_in_a_transform_count_and_their_place_in_memory_does_not(spark: SparkSession) -> None:
    def holding(text: str) -> Transform:
        found = F.hex(F.expr(f"X'{text}'"))
        return lambda viewed: viewed.select("url", F.length(found).alias("sent"), F.lit(1).alias("seen"))

    before = printed(spark, holding("00ff"), VIEWED)
    assert printed(spark, holding("00ff"), VIEWED) == before
    assert printed(spark, holding("00fe"), VIEWED) != before


def test_a_name_within_the_transform_changes_nothing(spark: SparkSession) -> None:
    def helped(name: str) -> Transform:
        return lambda v: v.withColumn(name, F.col("bytes") + 1).select(
            "url", F.col(name).alias("sent"), F.col("status").alias("seen")
        )

    assert printed(spark, helped("one"), VIEWED) == printed(spark, helped("other"), VIEWED)


def test_a_union_keeps_the_fields_of_two_topics_apart(spark: SparkSession) -> None:
    before = printed(spark, united, VIEWED, CLICKED)
    assert printed(spark, united, VIEWED | {"cost": LongType()}, CLICKED | {"bytes": LongType()}) == before
    assert printed(spark, united, VIEWED, CLICKED | {"cost": IntegerType()}) != before
    assert printed(spark, united, VIEWED | {"cost": IntegerType()}, CLICKED) == before
    assert printed(spark, united, CLICKED | {"bytes": LongType()}, CLICKED) == before


def test_a_transform_that_asks_for_its_columns_uses_all_of_them(spark: SparkSession) -> None:
    def measured(viewed: DataFrame) -> DataFrame:
        return viewed.select("url", F.lit(len(viewed.columns)).alias("sent"), F.lit(1).alias("seen"))

    def by_place(viewed: DataFrame) -> DataFrame:
        return viewed.select(F.col(viewed.columns[4]).alias("url"), F.lit(1).alias("sent"), F.lit(1).alias("seen"))

    def optional(viewed: DataFrame) -> DataFrame:
        spare = F.col("spare") if "spare" in viewed.columns else F.lit(None).cast("bigint")
        return viewed.select("url", spare.alias("sent"), F.lit(1).alias("seen"))

    assert printed(spark, measured, VIEWED) != printed(spark, measured, VIEWED | {"country": StringType()})
    assert printed(spark, by_place, VIEWED) == printed(spark, by_place, VIEWED)
    assert printed(spark, by_place, VIEWED) != printed(spark, by_place, {"country": StringType(), **VIEWED})
    assert printed(spark, optional, VIEWED) == printed(spark, optional, VIEWED | {"country": StringType()})
    assert printed(spark, optional, VIEWED) != printed(spark, optional, VIEWED | {"spare": LongType()})


ALL = catalogue.load_all_views()
# A view of each kind, and a Group of steps. `make nightly` compiles all views.
SOME = ["page_views", "sessions", "document", "home_timeline", "matches", "search_hits"]
VIEWS = [pytest.param(SOME, id="some"), pytest.param([*ALL], id="all", marks=pytest.mark.nightly)]


def every_fingerprint(spark: SparkSession, views: Iterable[str]) -> dict[str, str]:
    types = {topic: records.schema(each) for topic, each in load_events().items()}
    found = {name: compile_view(spark, name, ALL[name], types).fingerprint for name in views}
    found |= {name: printed(spark, each, VIEWED) for name, each in ONE_TOPIC.items()}
    return found | {"united": printed(spark, united, VIEWED, CLICKED)}


def write_every_fingerprint(views: Iterable[str]) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.debug.maxToStringFields": "100000"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    sys.stdout.write(json.dumps(every_fingerprint(builder.getOrCreate(), views)) + "\n")


# `tests/laws/test_golden_certificates.py` has the fingerprints of all views, which other processes have computed.
@pytest.mark.nightly
@pytest.mark.parametrize("views", [[*ALL]], ids=["all"])
def test_every_process_computes_the_same_fingerprints(spark: SparkSession, views: list[str]) -> None:
    code = f"from tests.library.tables import test_fingerprint; test_fingerprint.write_every_fingerprint({views})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        mine = every_fingerprint(spark, views)
        printed_there, _ = child.communicate()
    assert child.returncode == 0
    assert json.loads(printed_there.splitlines()[-1]) == mine


def test_a_session_that_does_not_describe_its_plans_changes_no_fingerprint(spark: SparkSession) -> None:
    types = {topic: records.schema(each) for topic, each in load_events().items()}
    view = catalogue.load_view("activity_enriched")
    before = compile_view(spark, "v", view, types).fingerprint
    brief = small_session(spark, {"spark.sql.debug.maxToStringFields": "1", "spark.sql.maxPlanStringLength": "0"})
    brief.createDataFrame([(1,)], "n int").collect()
    assert compile_view(spark, "v", view, types).fingerprint == before


@pytest.mark.parametrize("views", VIEWS)
def test_no_view_depends_on_fields_that_it_does_not_use(spark: SparkSession, views: list[str]) -> None:
    """With a new optional field in every event type."""
    types = {topic: records.schema(each) for topic, each in load_events().items()}
    wider = {topic: StructType([StructField("added", LongType()), *reversed(each)]) for topic, each in types.items()}
    for name in views:
        before, after = (compile_view(spark, name, ALL[name], each) for each in (types, wider))
        assert before.fingerprint == after.fingerprint, name
