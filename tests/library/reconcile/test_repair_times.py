"""Rows are repaired although their keys are times that Python does not have: before the year 1, and after 9999."""

from dataclasses import replace

import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.archived import new_archive
from tests.beds.lab import Lab
from truelog import Group, Sum, View
from truelog.batch import base
from truelog.reconcile.reconcile import reconcile
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.support.settings import Settings

HOURLY = ReconcileRequest(repair=True, audit=True, incremental=True)
TIMES = ["-70000000000000", "0", "300000000000000"]  # in milliseconds


def _at(click: DataFrame) -> DataFrame:
    return click.select(F.timestamp_millis(F.col("search_id").cast("bigint")).alias("at"), F.lit(1).alias("n"))


def _counted(inputs: DataFrame) -> DataFrame:
    return inputs.groupBy("at").agg(F.sum("n").alias("clicks"))


SUMS = View(reads=("click",), transform=_at, key=("at",), measures={"n": Sum()})
VIEWS = {
    "a view": SUMS,
    "a view with a base": replace(SUMS, keep="1 hour"),
    "a group": Group(
        reads=("click",), transform=_at, by=("at",), inputs=("n",), fold=_counted, key=("at",), values=("clicks",)
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_rows_with_a_time_that_python_has_not(lab: Lab, s3: Settings, name: str) -> None:
    ground = new_archive(lab, s3, VIEWS[name])
    lab.settings = lab.settings.model_copy(update={"base_rows": 1})
    ground.click(0, [("a", time, 1) for time in TIMES])
    ground.stream()
    assert reconcile(lab.context, ground.compiled, HOURLY).verdict == "EQUAL"
    assert (base.load(lab.connection, ground.compiled) is not None) is (name != "a group")
    for each in ground.compiled.tables:
        lab.connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("state", each.name)))
    found = reconcile(lab.context, ground.compiled, HOURLY)
    assert (found.verdict, found.repaired) == ("EQUAL", 3 * len(ground.compiled.tables))
    ground.click(0, [("a", time, 2) for time in TIMES])
    ground.stream()
    assert reconcile(lab.context, ground.compiled, HOURLY).verdict == "EQUAL"
