"""Compiled views: what their module imports, and which of them depend on the order of the log."""

import subprocess
import sys

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.beds.lab import Lab
from tests.library.click_views import ABOVE, ONCE, TIMELINE
from truelog import Latest, Sum, View, latest
from truelog.views import catalogue


def test_compiling_a_view_imports_no_database_driver() -> None:
    code = "import sys, truelog.tables.compiled_view; sys.exit('psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _last(order: str, **values: str) -> View:
    def transform(click: DataFrame) -> DataFrame:
        last = latest(order, deleted=F.col("search_id") == "0", **values).alias("last")
        return click.where("url IS NOT NULL").select("url", last)

    return View(reads=("click",), transform=transform, key=("url",), measures={"last": Latest()})


def _of_two(click: DataFrame) -> DataFrame:
    """Only one half of a union orders by the offset."""
    early, late = (latest(order).alias("last") for order in ("event_time", "offset"))
    one, other = click.where("url < 'm'"), click.where("url > 'm'")
    numbered = one.withColumn("event_time", F.unix_micros("event_time"))
    return numbered.select("url", early).unionByName(other.select("url", late))


def _counted(click: DataFrame) -> DataFrame:
    return click.select("url", F.lit(1).alias("n"))


@pytest.mark.parametrize(
    ("view", "needs_order"),
    [
        (_last("event_time", seen="visitor_id"), False),
        (_last("offset", seen="visitor_id"), True),
        (_last("event_time", seen="offset"), True),
        (View(reads=("click",), transform=_of_two, key=("url",), measures={"last": Latest()}), True),
        (View(reads=("click",), transform=_counted, key=("url",), measures={"n": Sum()}), False),
        (ONCE, True),
        (ABOVE, True),
        (TIMELINE, False),
    ],
)
def test_a_view_that_depends_on_offsets_needs_the_order_of_the_log(lab: Lab, view: View, needs_order: bool) -> None:
    """The offset of a tie does not count."""
    assert lab.compiled_once("ordered", view).needs_order is needs_order


ORDERED = ["also_bought", "cart", "home_timeline", "post", "rate_limits", "sessions", "trends", "wiki_page"]
UNORDERED = ["click_through", "page_views", "people_search", "request_rates"]


def test_the_shipped_views_that_need_the_order_of_the_log(lab: Lab) -> None:
    views = {name: catalogue.load_view(name) for name in [*ORDERED, *UNORDERED]}
    assert [name for name, view in views.items() if lab.compiled_once(name, view).needs_order] == ORDERED
