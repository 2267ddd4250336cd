"""What a plan says: the plan of a frame without rows, and whether a selection depends on more than its rows."""

import random
import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from truelog.log import records
from truelog.schema.loading.events import load_events
from truelog.tables import plan
from truelog.tables.plan import empty_frame

TYPES = load_events()


@pytest.mark.parametrize("topic", TYPES)
def test_it_has_the_plan_of_a_frame_whose_rows_passed_through_python(spark: SparkSession, topic: str) -> None:
    schema = records.schema(TYPES[topic])
    made, usual = empty_frame(spark, schema), spark.createDataFrame([], schema)

    assert made.schema == usual.schema == schema
    assert plan_text(made) == plan_text(usual)
    assert plan.source(made) != plan.source(usual)
    assert made.collect() == []


def plan_text(frame: DataFrame) -> str:
    """The analysed plan without the numbers of its columns, which differ in each run."""
    return re.sub(r"#\d+", "", plan.analyzed(frame).toString())


def _in_python() -> Column:
    return F.udf(lambda: 1, "int")()


UNSTABLE: list[str | Callable[[], Column]] = [
    *("now()", "current_timestamp", "current_date()", "curdate()", "localtimestamp()", "current_time()"),
    *("unix_timestamp()", "date_diff(current_date, date'2026-01-01')", "timestamp'now'"),
    *("cast('now' AS timestamp)", "cast(' Today ' AS date)", "to_date('tomorrow')", "to_timestamp('yesterday')"),
    *("cast(concat('no', 'w') AS timestamp)", "date(lower('TODAY'))", "timestamp(substring('know', 2))"),
    *("transform(array(1), x -> cast('now' AS timestamp))", "coalesce(event_time, to_timestamp('today UTC'))"),
    *(r"cast('\u0001now' AS timestamp)", r"cast('\u001ftoday\t' AS date)", "cast('todayUTC' AS timestamp_ntz)"),
    # Spark completes a text that has only a time with the current day.
    *(
        "cast(url AS timestamp)",
        "to_timestamp(url)",
        "try_to_timestamp(url)",
        "cast('10:00' AS timestamp)",
        "hour(url)",
    ),
    *("event_time > url", "cast(array(url) AS array<timestamp>)", "from_json(url, 'at timestamp')"),
    *("from_csv(url, 'at timestamp')", "variant_get(parse_json(url), '$.at', 'timestamp')"),
    *("cast(parse_json(url) AS timestamp)", "from_json(url, 'ats array<timestamp>', map('mode', 'FAILFAST'))"),
    # Spark calls these deterministic.
    *("aes_encrypt(url, '0000111122223333')", "hex(aes_encrypt(url, '0000111122223333', 'GCM'))"),
    *("aes_encrypt(url, '0000111122223333', 'CBC', 'DEFAULT', '')", "length(aes_encrypt(url, visitor_id, 'CBC'))"),
    "aes_encrypt(url, '0000111122223333', 'GCM', 'DEFAULT', cast(url AS binary))",
    "kll_sketch_merge_bigint(cast(url AS binary), cast(visitor_id AS binary))",
    *("rand()", "randn()", "uuid()", "shuffle(array(1, 2))", "uniform(0, 1000000)", "randstr(9)", "random()"),
    *("monotonically_increasing_id()", "spark_partition_id()", "transform(array(1), x -> rand())"),
    *("input_file_name()", "input_file_block_start()", "version()", "current_user()", "session_user()", "user()"),
    *("current_database()", "current_catalog()", "current_timezone()", "reflect('java.util.UUID', 'randomUUID')"),
    "try_reflect('java.lang.System', 'nanoTime')",
    lambda: F.lit(datetime.now(UTC)),
    lambda: F.lit(random.random()),
    lambda: F.lit(str(uuid.uuid4())),
    _in_python,
]
STABLE: list[str | Callable[[], Column]] = [
    *("cast('2026-01-01' AS date)", "cast('epoch' AS timestamp)", "timestamp'2026-01-01 00:00:00Z'", "'now'"),
    *(
        "cast(url AS date)",
        "cast(url AS timestamp_ntz)",
        "url = 'today'",
        "date'2026-11-25'",
        "to_timestamp(url, 'yyyy')",
        "'tomorrow' || url",
    ),
    *(
        "event_time > '2026-01-01'",
        "cast(NULL AS timestamp)",
        "cast(event_time AS string)",
        "from_json(url, 'at date')",
    ),
    "from_json(url, 'at timestamp', map('timestampFormat', 'yyyy-MM-dd HH:mm:ss'))",
    *("aes_encrypt(url, '0000111122223333', 'ECB')", "aes_decrypt(unhex(url), '0000111122223333')"),
    "aes_encrypt(url, '0000111122223333', 'CBC', 'DEFAULT', cast('0000111122223333' AS binary))",
    lambda: F.lit(date(2026, 1, 1)),
]


def unstable(spark: SparkSession, expression: str | Callable[[], Column]) -> str:
    frame = empty_frame(spark, records.schema(TYPES["page_view"]))

    def select() -> DataFrame:
        return frame.select((F.expr(expression) if isinstance(expression, str) else expression()).alias("value"))

    return plan.unstable(select(), select())


@pytest.mark.parametrize("expression", UNSTABLE)
def test_what_depends_on_the_moment_the_session_the_host_or_chance(
    spark: SparkSession, expression: str | Callable[[], Column]
) -> None:
    assert unstable(spark, expression) != ""


@pytest.mark.parametrize("expression", STABLE)
def test_what_depends_on_the_rows_alone(spark: SparkSession, expression: str | Callable[[], Column]) -> None:
    assert unstable(spark, expression) == ""


def test_every_function_of_spark_was_examined(spark: SparkSession) -> None:
    """Read a new function's code before you list it. If two runs may differ although Spark calls it deterministic, let
    `plan.unstable` refuse it.
    """
    found = {name for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert found ^ set((Path(__file__).parent / "spark_functions.txt").read_text().split()) == set()
