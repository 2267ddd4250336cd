"""Few records, which the process itself reads: they are the records that Spark reads."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pyspark.sql import DataFrame

from tests.beds.archived import LATER, Archived
from tests.library.restored_catalog import restored
from truelog.archive import reader
from truelog.archive.reader import Wanted
from truelog.log.positions import Positions
from truelog.support.errors import CatalogBehind


def filled(ground: Archived) -> None:
    for number in range(2):
        for partition in (0, 1):
            ground.click(partition, [(f"u{each}", str(each), 60 * number) for each in range(6)])
    ground.click_in_order([(0, "late", "7", 1), (1, "late", "no number", 2)])
    ground.click(0, [("invalid", "", 3)])


pytestmark = pytest.mark.ground(filled=filled)


def rows(records: DataFrame) -> list[str]:
    return sorted(str(each.asDict(recursive=True)) for each in records.collect())


@pytest.mark.parametrize("from_raw", [False, True])
def test_the_records_are_those_that_spark_reads(ground: Archived, from_raw: bool) -> None:
    types = {"click": ground.lab.types["click"]}

    def wanted(begin: dict[int, int], end: dict[int, int], since: datetime | None = None) -> Wanted:
        between = Wanted.between(*(Positions({"click": each}, ground.ids) for each in (begin, end)))
        return replace(between, since=since)

    ends = ground.ends["click"]
    for asked, number in (
        (wanted({}, ends), sum(ends.values())),
        (wanted({0: 3, 1: 1}, {0: 8, 1: 7}), 11),
        (wanted({}, ends, LATER + timedelta(seconds=1)), 2),
        (wanted(ends, ends), 0),
    ):
        by_spark, at_once = (
            rows(reader.read_records(ground.lab.spark, ground.lab.settings, types, each, from_raw=from_raw))
            for each in (asked, replace(asked, are_few=True))
        )
        assert at_once == by_spark
        assert len(at_once) == number


@pytest.mark.parametrize("are_few", [False, True])
def test_a_catalog_that_was_restored_is_not_read(ground: Archived, are_few: bool) -> None:
    """Explanations, queries of the past and jobs read so. Its files may have people who were forgotten since."""
    end = Positions({"click": dict(ground.ends["click"])}, ground.ids)
    wanted = replace(Wanted.between(Positions(), end), are_few=are_few)
    with restored(ground.lab.settings):
        ground.click(0, [("later", "", 4)])
    with pytest.raises(CatalogBehind, match="truelog archive adopt"):
        reader.read_records(ground.lab.spark, ground.lab.settings, {"click": ground.lab.types["click"]}, wanted)
