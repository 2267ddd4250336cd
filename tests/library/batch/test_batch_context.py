"""The session for few records, and the jobs that read in it."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.beds.archived import Archived
from truelog.batch import batch_context, recompute
from truelog.batch.batch_context import SMALL_RECORDS, BatchContext, for_records
from truelog.batch.recomputation import Recomputation
from truelog.control.view_loader import LoadedViews
from truelog.reconcile import reconcile
from truelog.reconcile.reconcile_result import COMPARE_ONLY
from truelog.support.settings import Settings

CONFIGURED = "spark.sql.codegen.factoryMode", "spark.sql.maxPlanStringLength"


def configured(spark: SparkSession) -> list[str | None]:
    return [spark.conf.get(each) for each in CONFIGURED]


def active(spark: SparkSession) -> Any:
    return spark._get_j_spark_session_class(spark._jvm).getActiveSession().get()


def test_few_records_are_read_without_generated_code(spark: SparkSession) -> None:
    context, before = BatchContext(spark, Settings(), {}), configured(spark)
    with for_records(context, SMALL_RECORDS) as within:
        assert (within.is_small, configured(within.spark)) == (True, ["NO_CODEGEN", "0"])
        assert within.compiling is spark
        within.spark.range(1).collect()
        with for_records(within, 1) as further:
            assert further.compiling is spark
    assert active(spark) == spark._jsparkSession, "the thread keeps the session for few records"
    assert (context.is_small, context.compiling, configured(spark)) == (False, spark, before)


def test_many_records_are_read_with_generated_code(spark: SparkSession) -> None:
    context = BatchContext(spark, Settings(), {})
    with for_records(context, SMALL_RECORDS + 1) as within:
        assert within is context


def compared(context: BatchContext) -> None:
    reconcile.reconcile_views(context, COMPARE_ONLY)


def recomputed(context: BatchContext) -> None:
    recompute.recompute_views(context, Recomputation.by_hand(context.settings), [], print, unfinished=False)


@pytest.mark.ground
@pytest.mark.parametrize(
    ("work", "module", "name"), [(compared, reconcile, "reconcile"), (recomputed, recompute, "each_alone")]
)
def test_work_on_several_views_reads_few_records_so(
    ground: Archived, work: Callable[[BatchContext], None], module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[BatchContext]()

    def see(context: BatchContext, *_: Any) -> Any:
        seen.append(context)
        raise ValueError("seen")

    context = BatchContext(ground.lab.spark, ground.lab.settings, {}, LoadedViews([ground.compiled]))
    monkeypatch.setattr(module, name, see)
    for records, is_small in ((SMALL_RECORDS, True), (-1, False)):
        monkeypatch.setattr(batch_context, "SMALL_RECORDS", records)
        with suppress(ValueError):
            work(context)
        assert seen.pop().is_small is is_small
