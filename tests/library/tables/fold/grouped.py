"""Groups that are compiled by hand, without Spark, for tests of what happens around a fold."""

from datetime import UTC, date, datetime
from typing import Any

from pyspark.sql.types import DateType, IntegerType, LongType, StringType, TimestampType

from truelog import Group
from truelog.schema.names import COORDINATES
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold.compiled import Fold
from truelog.tables.side_tables import side_tables
from truelog.tables.table import Table
from truelog.views.group import INPUTS

NAME = "grouped"
BY = ("url", "at", "day")
TYPES = {
    "url": StringType(),
    "at": TimestampType(),
    "day": DateType(),
    **dict(zip(COORDINATES, (StringType(), IntegerType(), LongType()), strict=True)),
    **dict.fromkeys(("spent", "total", "number"), LongType()),
}
AT, DAY = datetime(2026, 11, 22, 12, tzinfo=UTC), date(1969, 12, 30)
MOST = 3


def unused(*_: object) -> Any:
    raise AssertionError


GROUPED = Group(
    reads=("click",),
    transform=unused,
    by=BY,
    inputs=("spent",),
    fold=unused,
    key=BY,
    values=("total",),
    most=MOST,
    keep="1 day",
)


def made(view: Group) -> CompiledView:
    sides = side_tables(view)
    inputs = Table(NAME, sides[INPUTS], TYPES, "", side=INPUTS)
    fold = Fold(inputs, BY, unused, unused)
    folded = [Table(NAME, sides[each], TYPES, "", side=each, derivation=fold) for each in sides if each != INPUTS]
    return CompiledView((Table(NAME, view, TYPES, "", derivation=fold), inputs, *folded))
