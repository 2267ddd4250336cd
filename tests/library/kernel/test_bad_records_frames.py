"""What the search for bad records asks of Spark: the spans of the events, and whether a span fails."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog.kernel import bad_records
from truelog.kernel.bad_records import _Span

Record = tuple[str, int, int, str]  # topic, partition, offset and a text that should be a number
RECORDS: list[Record] = [
    ("click", 0, 5, "1"),
    ("click", 0, 7, "none"),
    ("click", 0, 9, "2"),
    ("click", 1, 6, "4"),
    ("search", 0, 7, "8"),
    ("other", 0, 1, "16"),  # the view does not read it
]
READS = ("click", "search")


class Numbers:
    """A table whose transform makes numbers of the texts. `fails` is an error of the machine."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    def transformed(self, events: dict[str, DataFrame]) -> DataFrame:
        if self.fails:
            raise PySparkException("an executor was lost")
        return events["click"].unionByName(events["search"])

    def prepared(self, rows: DataFrame) -> DataFrame:
        return rows.select(F.col("text").cast("int"))


def view(*tables: Numbers) -> Any:
    return SimpleNamespace(sources=tables, view=SimpleNamespace(reads=READS))


@pytest.fixture
def events(lab: Lab) -> dict[str, DataFrame]:
    schema = "topic string, partition int, offset bigint, text string"
    every = lab.spark.createDataFrame(RECORDS, schema)
    return {topic: every.where(F.col("topic") == topic) for topic in (*READS, "other")}


def test_the_spans_are_the_ends_of_each_partition_that_the_view_reads(events: dict[str, DataFrame]) -> None:
    found = sorted(bad_records._spans(view(), events), key=lambda each: (each.topic, each.partition))
    assert found == [_Span("click", 0, 5, 9, 3), _Span("click", 1, 6, 6, 1), _Span("search", 0, 7, 7, 1)]


@pytest.mark.parametrize(
    ("span", "fails"),
    [
        (_Span("click", 0, 5, 9), True),
        (_Span("click", 0, 7, 7), True),
        (_Span("click", 0, 5, 6), False),
        (_Span("click", 0, 8, 9), False),
        (_Span("click", 1, 5, 9), False),
        (_Span("search", 0, 5, 9), False),
    ],
)
def test_only_the_records_of_a_span_are_tried(events: dict[str, DataFrame], span: _Span, *, fails: bool) -> None:
    found = bad_records._failure(view(Numbers()), events, span)
    assert (found or "").startswith("CAST_INVALID_INPUT") == fails


def test_each_table_of_the_view_is_tried(events: dict[str, DataFrame]) -> None:
    with pytest.raises(PySparkException, match="an executor was lost"):
        bad_records._failure(view(Numbers(), Numbers(fails=True)), events, _Span("click", 1, 6, 6))
