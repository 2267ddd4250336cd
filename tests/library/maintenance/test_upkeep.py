"""Object storage upkeep removes old rows and unneeded files, and nothing else."""

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.servers import Environment
from truelog import Sum, View
from truelog.archive.table import open_catalog
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.log.positions import Positions
from truelog.maintenance import upkeep
from truelog.storage import bucket
from truelog.support.errors import CodeChanged
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

DAY = datetime(2026, 3, 1, tzinfo=UTC)
TILE = PartialRange(
    DAY, Positions({"page_view": {0: 0}}, {"page_view": "id"}), Positions({"page_view": {0: 9}}, {"page_view": "id"})
)


def _per_minute(page_view: DataFrame) -> DataFrame:
    return page_view.select(F.date_trunc("minute", "event_time").alias("minute"), F.lit(1).alias("views"))


KEPT = View(reads=("page_view",), transform=_per_minute, key=("minute",), measures={"views": Sum()}, keep="7 days")


@pytest.fixture
def compiled(lab: Lab, s3: Settings) -> CompiledView:
    """A view with a partial that contains three minutes and a NULL minute."""
    made = lab.compiled("kept_up", KEPT)
    minutes = [(DAY + timedelta(minutes=n), 1) for n in range(3)]
    states = made.own.totals(lab.spark.createDataFrame([*minutes, (None, 5)], "minute timestamp, views int"))
    partials.replace(lab.spark, s3, made.own, TILE, states)
    return made


def minutes(lab: Lab, compiled: CompiledView) -> list[int]:
    rows = partials.load_partials(lab.settings, compiled.own).read(lab.spark, [TILE])
    assert rows is not None
    return sorted(-1 if r.minute is None else r.minute.minute for r in rows.collect())


def test_expired_rows_leave_a_partial_and_its_range_stays(lab: Lab, compiled: CompiledView) -> None:
    assert minutes(lab, compiled) == [-1, 0, 1, 2]
    partials.drop_before(lab.spark, lab.settings, compiled.own, DAY + timedelta(minutes=2))
    assert minutes(lab, compiled) == [-1, 2]
    assert partials.load_partials(lab.settings, compiled.own).ranges == [TILE]
    partials.drop_before(lab.spark, lab.settings, lab.compiled("never_recomputed", KEPT).own, DAY)


def test_only_old_uncommitted_files_are_removed(lab: Lab, compiled: CompiledView, environment: Environment) -> None:
    table = f"{partials.NAMESPACE}.{compiled.own.name}"
    with open_catalog(lab.settings) as catalog:
        location = catalog.load_table(table).location()
    old, young = (f"{location}/data/{age}.parquet" for age in ("old", "young"))
    for place in (old, young):
        _put(lab.settings, place)
    long_ago = time.time() - 4 * 86_400
    for path in environment.objects.glob("**/*.*"):  # committed files get the same age but must stay
        if path.name != "young.parquet":
            os.utime(path, (long_ago, long_ago))

    assert upkeep.remove_orphans(lab.spark, table) == 1
    left = bucket.object_sizes(lab.settings, f"{location}/data/")
    assert young in left
    assert old not in left
    assert minutes(lab, compiled) == [-1, 0, 1, 2]


def _put(settings: Settings, address: str) -> None:
    name, key = address.removeprefix("s3://").split("/", 1)
    bucket.s3_client(settings).put_object(Bucket=name, Key=key, Body=b"written by a crashed writer")


def test_partials_of_other_code_are_neither_read_nor_replaced(lab: Lab, compiled: CompiledView) -> None:
    other = replace(compiled.own, fingerprint="2:other")
    with pytest.raises(CodeChanged, match="its partials were made by other code"):
        partials.load_partials(lab.settings, other)
    states = compiled.own.totals(lab.spark.createDataFrame([(DAY, 1)], "minute timestamp, views int"))
    with pytest.raises(CodeChanged, match="its partials were made by other code"):
        partials.replace(lab.spark, lab.settings, other, TILE, states)
    assert minutes(lab, compiled) == [-1, 0, 1, 2]


def test_loading_partials_changes_nothing(lab: Lab, compiled: CompiledView) -> None:
    name = f"{partials.NAMESPACE}.{compiled.own.name}"
    with open_catalog(lab.settings) as catalog:
        before = catalog.load_table(name).metadata_location
        partials.load_partials(lab.settings, compiled.own)
        assert catalog.load_table(name).metadata_location == before


def test_partials_that_another_process_has_changed_are_read(lab: Lab, compiled: CompiledView) -> None:
    assert minutes(lab, compiled) == [-1, 0, 1, 2]  # Spark keeps the table's metadata
    with open_catalog(lab.settings) as catalog:
        catalog.load_table(f"{partials.NAMESPACE}.{compiled.own.name}").delete("covers IS NULL")
    assert minutes(lab, compiled) == []


def test_a_table_that_no_partial_was_written_to_has_none(lab: Lab, s3: Settings) -> None:
    never = lab.compiled("never_written", KEPT).own
    partials._create(
        lab.spark, s3, never, never.totals(lab.spark.createDataFrame([], "minute timestamp, views int")).schema
    )
    assert partials.load_partials(lab.settings, never).ranges == ()
    with open_catalog(lab.settings) as catalog:
        catalog.purge_table(f"{partials.NAMESPACE}.{never.name}")
