"""Local tasks: they return the rows of Spark's own tasks, begin again each time, and leave nothing behind."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog.spark.session import small_session
from truelog.tables.staging import event_files
from truelog.tables.staging.local_task import LocalTask
from truelog.tables.staging.value_error import FAILURES, is_value_error

SCHEMA = "n bigint, word string, at timestamp"


@pytest.fixture
def small(lab: Lab) -> SparkSession:
    return small_session(lab.spark)


def source(spark: SparkSession, file: Path) -> DataFrame:
    """A frame whose rows are those of the numbers in a file at the time of each execution."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        numbers = [int(each) for each in file.read_text().split()]
        columns = {"n": numbers, "word": [f"w{each % 7}" for each in numbers], "at": numbers}
        types = [pa.int64(), pa.string(), pa.timestamp("us", "UTC")]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, each) for column, each in zip(columns.values(), types, strict=True)], list(columns)
        )

    return spark.range(0, 1, 1, 1).mapInArrow(read, SCHEMA)


def totalled(frame: DataFrame) -> DataFrame:
    return frame.groupBy("word").agg(
        F.sum("n").alias("sum"), F.max("at").alias("last"), F.collect_set("n").alias("all")
    )


def numbered(frame: DataFrame) -> DataFrame:
    number = F.row_number().over(Window.partitionBy("word").orderBy("n"))
    return frame.select("*", number.alias("number"), F.transform(F.array("n"), lambda x: x + 1).alias("next"))


def exploded(frame: DataFrame) -> DataFrame:
    return frame.select("word", F.explode(F.sequence(F.lit(1), F.lit(3))).alias("copy")).where("copy > 1")


SHAPES: list[Callable[[DataFrame], DataFrame]] = [totalled, numbered, exploded]


def rows(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return sorted(str(row) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("shape", SHAPES)
def test_each_execution_has_the_rows_of_a_job(small: SparkSession, tmp_path: Path, shape) -> None:  # type: ignore[no-untyped-def]
    numbers, out = tmp_path / "numbers", tmp_path / "rows"
    frame = shape(source(small, numbers))
    task = LocalTask(shape(source(small, numbers)))  # a sort stays in its plan, which Spark can then send to no task

    @settings(max_examples=15, deadline=None)
    @given(st.lists(st.integers(-50, 50), max_size=40))
    def holds(drawn: list[int]) -> None:
        numbers.write_text(" ".join(map(str, drawn)))
        assert rows(task.rows(out)) == rows(frame.toArrow().to_batches())

    holds()


def test_many_rows_are_in_several_batches(small: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text(" ".join(map(str, range(25_001))))
    batches = list(LocalTask(source(small, tmp_path / "numbers")).rows(tmp_path / "rows"))
    assert len(batches) == 3
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(25_001))


def test_a_failure_is_that_of_a_job_and_the_next_execution_works(small: SparkSession, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    task = LocalTask(source(small, numbers).select((F.lit(12) / F.col("n")).cast("int").alias("share")))
    execute = partial(task.rows, tmp_path / "rows")
    numbers.write_text("1 2 0")
    with pytest.raises(FAILURES) as failed:
        execute()
    assert is_value_error(failed.value)
    numbers.unlink()
    with pytest.raises(FAILURES, match="numbers") as missing:
        execute()
    assert not is_value_error(missing.value)
    numbers.write_text("3 4")
    assert rows(execute()) == ["{'share': 3}", "{'share': 4}"]


def test_nothing_of_an_execution_is_left(small: SparkSession, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    task = LocalTask(
        totalled(source(small, numbers)).select(F.when(F.col("sum") > 9, F.raise_error(F.lit("too many"))))
    )
    numbers.write_text("1 2")
    task.rows(tmp_path / "rows")
    numbers.write_text("100")
    with pytest.raises(FAILURES, match="too many"):
        task.rows(tmp_path / "rows")
    java = small.sparkContext._jvm
    assert java is not None
    assert java.org.apache.spark.SparkEnv.get().memoryManager().executionMemoryUsed() == 0
    assert java.org.apache.spark.TaskContext.get() is None


def test_jobs_still_run_after_a_thousand_local_tasks(small: SparkSession, tmp_path: Path) -> None:
    """Spark keeps the locks of the driver under the number -1024, and removes those of a task when the task ends."""
    task = LocalTask(small.range(0, 1, 1, 1).toDF("n"))
    for _ in range(1_100):
        task.rows(tmp_path / "rows")
    assert small.range(3).join(F.broadcast(small.range(2)), "id").count() == 2


def test_a_plan_of_two_partitions_is_refused(small: SparkSession) -> None:
    with pytest.raises(FAILURES, match="2 partitions"):
        LocalTask(small.range(0, 10, 1, 2).toDF("n"))


def test_java_reads_a_file_as_python_does(small: SparkSession, tmp_path: Path) -> None:
    """A local task reads event files itself; a job of Spark reads the same frame by a function of Python."""
    nested = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    types = [
        *(pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.binary(), pa.date32()),
        *(pa.timestamp("us", "UTC"), pa.decimal128(20, 3), pa.list_(pa.int64())),
        *(pa.map_(pa.string(), pa.int64()), nested),
    ]
    schema = pa.schema([(f"c{number}", each) for number, each in enumerate(types)])
    moment = datetime(2026, 3, 1, 12, 30, 0, 123_456, tzinfo=UTC)
    plain = ["é", -(2**31), 2**62, -0.0, True, b"\0x", date(1969, 12, 31), moment, Decimal("-7.125")]
    row = dict(zip(schema.names, [*plain, [1, None], [("k", 1)], {"a": 1, "b": ["x"]}], strict=True))
    nulls = dict.fromkeys(schema.names)
    file, out = tmp_path / "events.arrow", tmp_path / "rows"
    frame = event_files.frame(small, file, schema)
    task = LocalTask(frame)
    cases: list[list[list[dict[str, Any]]]] = [[[row, nulls], [nulls], [row]], [], [[]], [[row]]]
    for batches in cases:
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for each in batches:
                writer.write_batch(pa.RecordBatch.from_pylist(each, schema))
        assert rows(task.rows(out)) == rows(frame.toArrow().to_batches())
    file.unlink()
    with pytest.raises(FAILURES, match=r"events\.arrow"):
        task.rows(out)
