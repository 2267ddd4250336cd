"""Partials that an erasure has touched are not used, and are deleted with all objects that have their rows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.builders.erasures import an_erasure, forget_erasures
from truelog import Sum, View
from truelog.archive.table import open_catalog
from truelog.batch import partials
from truelog.batch.partial_selection import PartialRange
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import CoveredDay, Step
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ERASURE = Erasure(
    UUID(int=1),
    frozenset({Subject.of(b"secret", "visitor_id", "ann")}),
    {"page_view": ("visitor_id",)},
    Positions({"page_view": {0: 100}}, {"page_view": "id"}),
)


def _per_url(page_view: DataFrame) -> DataFrame:
    return page_view.select("url", F.lit(1).alias("views"))


PER_URL = View(reads=("page_view",), transform=_per_url, key=("url",), measures={"views": Sum()})


def tile(number: int) -> PartialRange:
    begin, end = (Positions({"page_view": {0: 10 * n}}, {"page_view": "id"}) for n in (number, number + 1))
    return PartialRange(DAY + timedelta(days=number), begin, end)


def store(lab: Lab, settings: Settings, compiled: CompiledView, covered: PartialRange) -> None:
    rows = lab.spark.createDataFrame([(f"ann-{covered.day:%d}", 1)], "url string, views int")
    partials.replace(lab.spark, settings, compiled.own, covered, compiled.own.totals(rows))


@pytest.fixture
def compiled(lab: Lab, s3: Settings) -> Iterator[CompiledView]:
    """A view with partials of three days; an erasure covers records of the second day."""
    made = lab.compiled("erased_days", PER_URL)
    for number in range(3):
        store(lab, s3, made, tile(number))
    an_erasure(lab.connection, ERASURE, Step.COUNTED, CoveredDay("page_view", 0, tile(1).day, 4))
    yield made
    forget_erasures(lab.connection)


def loaded(settings: Settings, compiled: CompiledView) -> list[datetime]:
    return sorted(each.day for each in partials.load_partials(settings, compiled.own).ranges)


def objects_that_name(settings: Settings, compiled: CompiledView, person: str) -> int:
    client = bucket.s3_client(settings)
    with open_catalog(settings) as catalog:
        location = catalog.load_table(f"{partials.NAMESPACE}.{compiled.own.name}").location()
    contents = (
        client.get_object(Bucket=place, Key=key)["Body"].read()
        for place, key in (a.removeprefix("s3://").split("/", 1) for a in bucket.object_sizes(settings, location))
    )
    return sum(person.encode() in content for content in contents)


def test_a_touched_partial_is_not_used_until_it_is_made_again(lab: Lab, s3: Settings, compiled: CompiledView) -> None:
    assert loaded(s3, compiled) == [tile(0).day, tile(2).day]
    too_early = partials.touched_days(s3, compiled.own).erasures(tile(1).day, rewritten=True)
    store(lab, s3, compiled, replace(tile(1), erasures=too_early))  # of the archive as it was
    assert loaded(s3, compiled) == [tile(0).day, tile(2).day]
    finish(lab.connection)
    known = partials.touched_days(s3, compiled.own).erasures(tile(1).day, rewritten=True)
    store(lab, s3, compiled, replace(tile(1), erasures=known))
    assert loaded(s3, compiled) == [tile(number).day for number in range(3)]
    assert [e.erasures for e in partials.load_partials(s3, compiled.own).ranges if e.day == tile(1).day] == [known]


def test_a_dropped_partial_leaves_no_object(lab: Lab, s3: Settings, compiled: CompiledView) -> None:
    assert objects_that_name(s3, compiled, "ann-02") > 0  # also in snapshots of the test before
    finish(lab.connection)
    assert partials.drop_touched(s3, compiled.own) == 1
    assert partials.drop_touched(s3, compiled.own) == 0
    assert objects_that_name(s3, compiled, "ann-02") == 0
    assert objects_that_name(s3, compiled, "ann-01") == objects_that_name(s3, compiled, "ann-03") == 1
    assert loaded(s3, compiled) == [tile(0).day, tile(2).day]


def finish(connection: Connection) -> None:
    ledger.finish(connection, ERASURE, Step.REWRITTEN)
