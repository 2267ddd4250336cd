"""Examples of batches: what a view counts, and which records are excluded.

The merge's protocol needs no Spark: see `tests/library/kernel/test_merge.py`.
"""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.laws.bench import PER_MINUTE, Bench, make_bench, shaped, starting
from truelog import Sum, View
from truelog.kernel import bad_records
from truelog.kernel.apply_batch import EventRange
from truelog.support.errors import BadDeclaration


def test_each_view_merges_only_the_records_that_it_lacks(lab: Lab) -> None:
    """A batch begins at the lowest position of several views, so it overlaps records that other views have merged."""
    bench = make_bench(lab, PER_MINUTE)
    bench.apply(0, 60)

    batch = EventRange(bench.events(20, 100), bench.at(20), bench.at(100))
    bench.applier.apply(bench.lab.connection, bench.compiled, batch, bench.at(60))

    assert (bench.counted(), bench.offset()) == (100, 100)


def test_a_record_on_which_the_transform_fails_is_excluded_and_the_rest_is_merged(lab: Lab) -> None:
    def divides(page_view: DataFrame) -> DataFrame:
        return page_view.select("url", (F.lit(100) / (F.col("offset") - 7)).cast("int").alias("share"))

    bench = make_bench(lab, View(reads=("page_view",), transform=divides, key=("url",), measures={"share": Sum()}))
    bench.apply_batch(0, 20)

    assert bench.offset() == 20
    rows = lab.connection.execute(
        'SELECT "offset", error FROM truelog.exclusion WHERE view = %s', (bench.compiled.name,)
    ).fetchall()
    assert [offset for offset, _ in rows] == [7]
    assert "DIVIDE_BY_ZERO" in str(rows[0][1])
    failing, fine, missing = (("page_view", 0, offset) for offset in (7, 8, 99))
    events, places = bench.events(0, 20), [failing, fine, missing]
    assert bad_records.unfounded_exclusions(bench.compiled, events, places) == [fine, missing]


@pytest.mark.parametrize(
    ("hostile", "fine"),
    [
        ("timestamp_millis(-1000000000000000)", "timestamp_millis(0)"),
        ("date_from_unix_date(-3000000)", "date_from_unix_date(0)"),
        ("date_from_unix_date(2147483647)", "date_from_unix_date(0)"),
    ],
    ids=["an early instant", "an early date", "a late date"],
)
def test_a_time_that_postgresql_cannot_store_is_excluded(lab: Lab, hostile: str, fine: str) -> None:
    bench = make_bench(lab, starting(f"CASE WHEN offset = 7 THEN {hostile} ELSE {fine} END"))
    bench.apply_batch(0, 20)

    assert (bench.counted(), bench.excluded()) == (19, [7])
    events = bench.events(0, 20)
    assert bad_records.unfounded_exclusions(bench.compiled, events, [("page_view", 0, 7)]) == []


@pytest.mark.parametrize("scale", [0, 10, 20])
def test_decimals_that_would_overflow_a_sum_are_excluded(lab: Lab, scale: int) -> None:
    """The sum of two such decimals may have more than 38 digits, so a batch with both of them could not be merged."""
    text = F.when(F.col("offset").isin(3, 7), "9" * (38 - scale)).otherwise("9" * (28 - scale))
    bench = make_bench(lab, _summed(text.cast(f"decimal(38,{scale})")))
    bench.apply_batch(0, 20)

    assert (bench.offset(), bench.excluded()) == (20, [3, 7])


def test_a_type_whose_sum_would_overflow_by_few_values_is_refused(lab: Lab) -> None:
    """With 21 digits after the point, a sum of 38 digits has 17 before it, so 10**9 values of 8 digits overflow it."""
    with pytest.raises(BadDeclaration, match=r"cannot aggregate decimal\(29,21\); cast it in the transform"):
        lab.compiled("refused", _summed(F.lit(1).cast("decimal(29,21)")))
    for short in ("decimal(29,20)", "decimal(28,28)"):
        assert lab.compiled("accepted", _summed(F.lit("0.5").cast(short)))


def _summed(amount: Column) -> View:
    def transform(page_view: DataFrame) -> DataFrame:
        return page_view.select(F.lit("all").alias("key"), amount.alias("views"))

    return View(reads=("page_view",), transform=transform, key=("key",), measures={"views": Sum()})


@pytest.mark.parametrize(
    "limit",
    [
        "timestamp_micros(-210866803200000000)",
        "timestamp_micros(9223372036854775807)",
        "date_from_unix_date(-2440588)",
        "date_from_unix_date(2145042905)",
    ],
    ids=["the first instant", "the last instant", "the first date", "the last date"],
)
def test_the_first_and_last_times_that_postgresql_stores_are_counted(lab: Lab, limit: str) -> None:
    bench = make_bench(lab, starting(limit))
    bench.apply(0, 20)
    assert bench.counted() == 20


@pytest.fixture
def failing(lab: Lab) -> Bench:
    """A view whose transform fails on each record with an odd number of bytes."""
    is_odd = F.col("bytes") % 2 == 1
    return make_bench(lab, starting(F.when(is_odd, F.raise_error(F.lit("odd"))).otherwise("even")))


def _with_bad(bench: Bench, size: int, bad: Column, reads: Path) -> EventRange:
    """Records with these bad offsets. Each task that reads them leaves a file in `reads`."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (reads / uuid.uuid4().hex).touch()
        yield from batches

    numbers = bench.lab.spark.range(0, size, numPartitions=1).mapInArrow(read, "id bigint")
    columns = {"offset": F.col("id"), "partition": F.lit(0), "topic": F.lit("page_view")}
    columns["bytes"] = F.when(bad, 1).otherwise(2)
    events = {"page_view": shaped(bench.lab, numbers, "page_view", columns)}
    return EventRange(events, bench.at(0), bench.at(size))


def test_bad_records_are_found_in_few_probes_of_a_portion_that_is_read_once(
    lab: Lab, failing: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """33 bad records, less than one percent. A stream persists its portion, so a second read would read Kafka again."""
    size, bad = 4_000, [5, *range(300, 332)]
    probes: list[object] = []
    probe = bad_records._failure

    def counted(*given: Any) -> str | None:
        probes.append(given)
        return probe(*given)

    monkeypatch.setattr(bad_records, "_failure", counted)
    portion = _with_bad(failing, size, F.col("id").isin(bad), tmp_path)
    portion.events["page_view"].persist()
    failing.applier.apply(lab.connection, failing.compiled, portion, portion.begin)
    portion.events["page_view"].unpersist()

    assert (failing.counted(), failing.excluded()) == (size - len(bad), bad)
    assert len(list(tmp_path.iterdir())) == 1
    assert len(probes) <= 4 * len(bad)  # most of them are neighbours


@pytest.fixture
def at_most_three_or_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_records, "_MAX_BAD_RECORDS", 3)


@pytest.mark.parametrize(
    ("size", "bad", "is_excluded"), [(100, 3, True), (100, 4, False), (400, 4, True), (20, 20, False)]
)
@pytest.mark.usefixtures("at_most_three_or_one_percent")
def test_a_broken_transform_is_not_mistaken_for_bad_records(
    failing: Bench, tmp_path: Path, size: int, bad: int, is_excluded: bool
) -> None:
    """Above both bounds, nothing is excluded. Below either, all bad records are excluded."""
    lab = failing.lab
    portion = _with_bad(failing, size, F.col("id") < bad, tmp_path)
    if is_excluded:
        failing.applier.apply(lab.connection, failing.compiled, portion, portion.begin)
    else:
        with pytest.raises(SparkRuntimeException, match="odd"):
            failing.applier.apply(lab.connection, failing.compiled, portion, portion.begin)
    assert failing.excluded() == (list(range(bad)) if is_excluded else [])
