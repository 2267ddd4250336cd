"""The views that the law tests use: the catalogue, a view with every measure, and a view of extreme values."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tests.laws.measures import MEASURED, Measured, view_of
from tests.nightly_cases import nightly_except
from truelog import (
    Bloom,
    Distinct,
    First,
    FirstSeen,
    Group,
    Latest,
    Max,
    Min,
    Quantiles,
    Steps,
    Sum,
    Value,
    View,
    latest,
)
from truelog.views import catalogue

EVERY_MEASURE = view_of(MEASURED)

_FLOATS = (float("nan"), -0.0, 0.0, float("inf"), float("-inf"), 5e-324, 1e308, 0.1, None)
# Text, because PySpark's literals of a datetime go through Java's old calendar.
_TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z", None)
_DATES = ("0001-01-01", "9999-12-31", "1582-10-15", None)
_WHOLES = (2**63 - 1, -(2**63), 0, 1, None)
_TEXTS = ("", "\0", "a\0b", "\u2400", "\U0001f600", "\\N", None)
_AMOUNTS = (Decimal("99999999.99"), Decimal("-99999999.99"), Decimal("0.01"), None)


def _one_of(seed: str, values: tuple[object, ...], dtype: str) -> Column:
    """One of these values, chosen by the event's own fields."""
    number = F.pmod(F.xxhash64(F.lit(seed), "url", "status", "visitor_id"), F.lit(len(values))).cast("int")
    return F.get(F.array(*(F.lit(value).cast(dtype) for value in values)), number)


def _firsts() -> Column:
    fields = ("odd", _FLOATS, "double"), ("then", _TIMES, "timestamp"), ("words", _TEXTS, "string")
    return F.struct(*(_one_of(*each).alias(each[0]) for each in fields))


def _seen() -> Column:
    return F.struct(*(_one_of(name, _FLOATS, "double").alias(name) for name in ("strange", "once")))


def _newest() -> Column:
    return latest(
        _one_of("order", _FLOATS, "double"),
        size=_one_of("size", _FLOATS, "float"),
        until=_one_of("until", _TIMES, "timestamp"),
        said=_one_of("said", _TEXTS, "string"),
    )


# Many columns have the names of columns that the platform uses itself.
# By the name of the column: each measure with the values that are the hardest for it.
EXTREMES = {
    "row_hash": Measured(Sum(), lambda: _one_of("total", _WHOLES, "bigint")),
    "loaded_at": Measured(Min(), lambda: _one_of("low", _FLOATS, "double")),
    "bucket": Measured(Max(), lambda: _one_of("high", _FLOATS, "float")),
    "hash": Measured(Distinct(), lambda: _one_of("distinct", _FLOATS, "double")),
    "spread": Measured(Quantiles(), lambda: _one_of("spread", _WHOLES, "bigint")),
    "floats": Measured(Quantiles(), lambda: _one_of("floats", _FLOATS, "double")),
    "log_day": Measured(Quantiles(error=0.001), lambda: _one_of("amounts", _AMOUNTS, "decimal(10,2)")),
    "rows": Measured(Min(), lambda: _one_of("soonest", _TIMES, "timestamp")),
    "side": Measured(Bloom(capacity=3), lambda: _one_of("texts", _TEXTS, "string")),
    "row": Measured(Bloom(capacity=1_000, error=0.0001), lambda: _one_of("wholes", _WHOLES, "bigint")),
    "firsts": Measured(First(3), _firsts),
    "seen": Measured(FirstSeen(3, seen="once"), _seen),
    "newest": Measured(Latest(), _newest),
    "value": Measured(Value(), lambda: _one_of("value", _FLOATS, "double")),
}
_EXTREME_KEY = {
    "time": (_TIMES, "timestamp"),
    "day": (_DATES, "date"),
    "text": (_TEXTS, "string"),
    "amount": (_AMOUNTS, "decimal(10,2)"),
}
EXTREME_VALUES = view_of(EXTREMES, {name: partial(_one_of, name, *each) for name, each in _EXTREME_KEY.items()})


def _per_visitor(search: DataFrame, click: DataFrame) -> DataFrame:
    searched = search.select("visitor_id", F.lit(1).alias("searches"))
    return searched.unionByName(click.select("visitor_id", F.lit(1).alias("clicks")), allowMissingColumns=True)


ON_TIME = View(
    reads=("search", "click"),
    transform=_per_visitor,
    key=("visitor_id",),
    measures={"searches": Sum(), "clicks": Sum()},
    allowed_lateness="1 second",
)

_KEPT = 60  # characters of the text in a state


def _requests(page_view: DataFrame) -> DataFrame:
    return page_view.select("visitor_id", "url", _one_of("share", _FLOATS, "double").alias("share"))


def _no_request() -> Column:
    share, last = F.lit(None).cast("double").alias("share"), F.array().cast("array<string>").alias("last")
    return F.struct(F.lit(0).alias("requests"), F.lit("").alias("urls"), share, last)


def _another_request(state: Column, request: Column) -> Column:
    """Every field depends on the order of the requests. Some values are not in the form that PostgreSQL stores."""
    return F.struct(
        (state["requests"] + 1).alias("requests"),
        F.right(F.concat(state["urls"], F.lit("\0"), request["url"]), F.lit(_KEPT)).alias("urls"),
        F.coalesce(-state["share"], request["share"]).alias("share"),
        F.slice(F.concat(F.array(request["url"]), state["last"]), 1, 2).alias("last"),
    )


IN_STEPS = Group(
    reads=("page_view",),
    transform=_requests,
    by=("visitor_id",),
    inputs=("url", "share"),
    fold=Steps(_no_request, _another_request, every=2),
    key=("visitor_id",),
    values=("requests", "urls", "share", "last"),
    most=6,
)

_HARDEST = {
    "in_steps": IN_STEPS,
    "every_measure": EVERY_MEASURE,
    "extreme_values": EXTREME_VALUES,
    "on_time": ON_TIME,
}
# Batch-only views are streamed here: their tables obey the same laws.
VIEWS = _HARDEST | {name: replace(view, batch_only=False) for name, view in catalogue.load_all_views().items()}
# For a law of the kernel, which hardly depends on the view, `make test` runs the hardest views and one of each shape.
_OF_EACH_SHAPE = {type(view): name for name, view in VIEWS.items()}
_OTHER_SHAPES = {name for shape, name in _OF_EACH_SHAPE.items() if shape not in map(type, _HARDEST.values())}
BY_SHAPE = nightly_except({*_HARDEST, *_OTHER_SHAPES}, VIEWS)
# For a law of the tables, whatever is in them, it runs one of each shape. A Group of Steps has a table of its own.
BY_TABLES = nightly_except({*_OF_EACH_SHAPE.values(), "in_steps"}, VIEWS)
