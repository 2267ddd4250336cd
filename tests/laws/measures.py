"""The measures in the laws: each measure of the registry, with what it aggregates of a page view.

Every law of `views.VIEWS` runs on `every_measure`, so one entry here gives all of them to a measure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from truelog import Bloom, Distinct, First, FirstSeen, Latest, Max, Min, Quantiles, Sum, Value, View, latest
from truelog.measures.measure import Measure
from truelog.measures.registry import homes


@dataclass(frozen=True)
class Measured:
    """A measure, and the column of a page view that it aggregates."""

    measure: Measure
    column: Callable[[], Column]


def _cents() -> Column:
    return (F.col("bytes") % 1000 / F.lit(100).cast("decimal(3,0)")).cast("decimal(12,2)")


def _came() -> Column:
    return F.struct(F.col("event_time").alias("from"), F.col("language").alias("to"))


def _seen() -> Column:
    language, since = F.col("language").alias("spoken"), F.col("event_time").alias("since")
    return F.struct(language, since, F.col("status").alias("check"))


def _last() -> Column:
    return latest("event_time", deleted=F.col("status") == 100, when="url", then="language")


# By the name of the column. Most names are SQL keywords.
MEASURED = {
    "views": Measured(Sum(), lambda: F.lit(1)),
    "end": Measured(Sum(), lambda: F.col("bytes")),
    "user": Measured(Sum(), _cents),
    "order": Measured(Min(), lambda: F.col("url")),
    "select": Measured(Max(), lambda: F.col("response_ms")),
    "group": Measured(Distinct(), lambda: F.col("visitor_id")),
    "table": Measured(Quantiles(), lambda: F.col("response_ms")),
    "primary": Measured(Quantiles(error=0.1), lambda: F.col("status")),
    "came": Measured(First(2), _came),
    "seen": Measured(FirstSeen(3, seen="check"), _seen),
    "last": Measured(Latest(), _last),
    "where": Measured(Bloom(capacity=20, error=0.02), lambda: F.col("visitor_id")),
    "default": Measured(Value(), lambda: F.col("status")),
}


_MINUTE_AND_BROWSER = {
    "minute": lambda: F.window("event_time", "1 minute").start,
    "browser": lambda: F.col("browser"),
}


def view_of(measured: Mapping[str, Measured], key: Mapping[str, Callable[[], Column]] = _MINUTE_AND_BROWSER) -> View:
    """The view of page views with these measures and this key."""

    def transform(page_view: DataFrame) -> DataFrame:
        selected = {**key, **{name: each.column for name, each in measured.items()}}
        return page_view.select(*(column().alias(name) for name, column in selected.items()))

    return View(
        reads=("page_view",),
        transform=transform,
        key=tuple(key),
        measures={name: each.measure for name, each in measured.items()},
    )


def registered() -> list[type[Measure]]:
    return [getattr(import_module(module), name) for name, module in homes().items()]


def without_law(measured: Mapping[str, Measured]) -> set[type[Measure]]:
    """The measures of the registry that no law runs on."""
    return {*registered()} - {type(each.measure) for each in measured.values()}
