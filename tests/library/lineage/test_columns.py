"""The fields from which columns come: through structs, filters, exploded arrays and unions, never by their names."""

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from truelog import Distinct, Latest, Max, Sum, View, latest
from truelog.lineage.columns import ColumnOrigins, fields_of, origins
from truelog.schema.loading.events import load_events
from truelog.tables.compiled_view import CompiledView
from truelog.views import catalogue

URL, VISITOR = ("click", "url"), ("click", "visitor_id")


def _renamed(click: DataFrame) -> DataFrame:
    """The names of fields and columns are exchanged, so a guess by name would be wrong."""
    kept = click.where(F.col("search_id").isNotNull())
    words = kept.select(F.explode(F.split("url", "/")).alias("word"), "visitor_id", "event_time")
    return words.select(
        F.concat("word", F.lit("!")).alias("visitor_id"),
        F.col("visitor_id").alias("url"),
        F.lit(1).alias("event_time"),
    )


def _united(click: DataFrame, page_view: DataFrame) -> DataFrame:
    clicks = click.select(F.col("url").alias("page"), F.col("visitor_id").alias("people"), F.lit(None).alias("last"))
    viewed = F.col("event_time").alias("last")
    views = page_view.select(F.col("url").alias("page"), F.lit(None).alias("people"), viewed)
    return clicks.unionByName(views)


def _kept(click: DataFrame) -> DataFrame:
    newest = latest("event_time", page=F.upper("url"), person="visitor_id")
    return click.select(F.col("search_id").alias("search"), newest.alias("newest"))


def compiled(lab: Lab, view: View) -> CompiledView:
    return lab.compiled("columns", view)


def found(lab: Lab, view: View) -> ColumnOrigins:
    return origins(lab.spark, compiled(lab, view), lab.types)


def test_a_column_comes_from_what_its_expression_reads(lab: Lab) -> None:
    measures = {"url": Distinct(error=0.02), "event_time": Sum()}
    view = View(reads=("click",), transform=_renamed, key=("visitor_id",), measures=measures)
    known = found(lab, view)
    assert known.columns == {"visitor_id": {URL}, "url": {VISITOR}}, "a constant comes from no field"
    assert ("click", "search_id") in known.filters
    assert VISITOR not in known.filters
    assert known.whole == set()


def test_a_union_has_the_fields_of_its_parts(lab: Lab) -> None:
    measures = {"people": Distinct(error=0.02), "last": Max()}
    view = View(reads=("click", "page_view"), transform=_united, key=("page",), measures=measures)
    assert found(lab, view).columns == {
        "page": {URL, ("page_view", "url")},
        "people": {VISITOR},
        "last": {("page_view", "event_time")},
    }


def test_each_column_of_a_struct_has_its_own_fields(lab: Lab) -> None:
    view = View(reads=("click",), transform=_kept, key=("search",), measures={"newest": Latest()})
    assert found(lab, view).columns == {"search": {("click", "search_id")}, "page": {URL}, "person": {VISITOR}}


def test_a_shown_column_has_its_type_if_readers_see_the_stored_value(lab: Lab) -> None:
    measures = {"url": Distinct(error=0.02), "event_time": Sum()}
    about = {"event_time": "the events"}
    view = View(reads=("click",), transform=_renamed, key=("visitor_id",), measures=measures, columns=about)
    assert fields_of(compiled(lab, view)) == [
        {"name": "visitor_id", "type": "text"},
        {"name": "url"},
        {"name": "event_time", "type": "bigint", "description": "the events"},
    ]


@pytest.mark.parametrize(
    ("name", "field"), [("home_timeline", ("follow", "follower_id")), ("cart", ("cart_event", "verb"))]
)
def test_of_a_join_and_a_group_the_fields_are_known_as_a_whole(lab: Lab, name: str, field: tuple[str, str]) -> None:
    known = origins(lab.spark, lab.compiled(name, catalogue.load_view(name)), load_events())
    assert field in known.whole
    assert (known.columns, known.filters) == ({}, set())
