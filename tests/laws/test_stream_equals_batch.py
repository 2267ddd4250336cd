"""Law 1: cut the log anywhere, interleave its partitions anyhow; the streamed table is the rebuilt one."""

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType

from tests.laws.lab import Lab, cases
from truelog import Distinct, First, Latest, Max, Min, Quantiles, Sum, View, catalogue, latest
from truelog.compiled import extended


def _every_measure(page_view: DataFrame) -> DataFrame:
    return page_view.select(
        F.window("event_time", "1 minute").start.alias("minute"),
        "browser",
        F.lit(1).alias("views"),
        F.col("bytes").alias("total"),
        (F.col("bytes") % 1000 / F.lit(100).cast("decimal(3,0)")).cast("decimal(12,2)").alias("cents"),
        F.col("url").alias("first_url"),
        F.col("response_ms").alias("slowest"),
        F.col("visitor_id").alias("visitors"),
        F.col("response_ms").alias("response"),
        F.col("status").alias("statuses"),
        F.struct(F.col("event_time").alias("came_at"), F.col("language").alias("came_in")).alias("came"),
        latest("event_time", deleted=F.col("status") == 100, last_url="url", last_language="language").alias("last"),
    )


EVERY_MEASURE = View(
    reads=("page_view",),
    transform=_every_measure,
    key=("minute", "browser"),
    measures={
        "views": Sum(),
        "total": Sum(),
        "cents": Sum(),
        "first_url": Min(),
        "slowest": Max(),
        "visitors": Distinct(),
        "response": Quantiles(),
        "statuses": Quantiles(error=0.1),
        "came": First(2),
        "last": Latest(),
    },
)

VIEWS = {"every_measure": EVERY_MEASURE, **catalogue.load_all()}


@pytest.mark.parametrize("name", VIEWS)
def test_streamed_equals_rebuilt(lab: Lab, name: str) -> None:
    drawn = cases(lab.types, VIEWS[name].reads)

    result = lab.compare_all(name, VIEWS[name], drawn)

    assert result.rows > len(drawn), "the cases hold too little to tell the two apart"
    assert (result.missing, result.extra, result.different) == (0, 0, 0)


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.keep])
def test_old_rows_leave_the_stream_and_the_rebuild_alike(lab: Lab, name: str) -> None:
    drawn, view = cases(lab.types, VIEWS[name].reads), VIEWS[name]

    kept_for_ever = lab.compare_all(f"{name}_for_ever", replace(view, keep=None), drawn)
    kept = lab.compare_all(name, view, drawn)

    assert len(drawn) < kept.rows < kept_for_ever.rows, "the clock lets too few rows leave, or too many"
    assert kept.unequal == 0


class _Overwritten(Sum):
    """A sum that forgets what stands: the classic defect, which the first example never shows."""

    def merged(self, name: str, kind: DataType) -> dict[str, str]:
        return {name: f"excluded.{name}"}


def test_the_law_catches_a_merge_that_overwrites(lab: Lab) -> None:
    planted = replace(EVERY_MEASURE, measures={**EVERY_MEASURE.measures, "views": _Overwritten()})

    result = lab.compare_all("planted", planted, cases(lab.types, planted.reads, number=50))

    assert result.different > 0


def test_states_add_up_in_spark_as_they_do_in_postgresql(lab: Lab) -> None:
    """Partials of a log day are states; a rebuild adds them up in Spark."""
    compiled = lab.compiled("partials", EVERY_MEASURE)
    by_case = extended(compiled, "case_id", IntegerType())
    by_cut = extended(by_case, "cut", IntegerType())
    rows = lab.transformed(EVERY_MEASURE, cases(lab.types, EVERY_MEASURE.reads)).persist()

    at_once = by_case.stored(by_case.totals(rows))
    in_parts = by_case.stored(by_case.plus(by_cut.totals(rows).drop("cut")))

    assert at_once.count() > 0
    assert at_once.exceptAll(in_parts).union(in_parts.exceptAll(at_once)).take(3) == []
