"""Law: a rebuild that begins from a base equals the rebuild of the whole log, wherever the log is cut."""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from tests.beds.lab import Lab, cases, last_cut, reached
from tests.laws.views import VIEWS
from truelog import Sum, View
from truelog.batch import base
from truelog.batch.base import Base, Rebuilt
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock, merge
from truelog.log.positions import Positions
from truelog.support.errors import BaseAltered
from truelog.support.settings import CATALOG, Settings
from truelog.tables import table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table


@dataclass(frozen=True)
class Generated(Rebuilder):
    """Rebuilds a view from generated events instead of archived records. A position is a number of cuts."""

    rows: DataFrame = field(kw_only=True)  # what the events contribute to the view, with their cuts

    def now(self, positions: Positions) -> datetime | None:
        """The lab has stored the ticks."""
        return merge.stored_clock(self.connection, self.compiled, positions)

    def states_between(self, table: Table, begin: Positions, end: Positions) -> DataFrame:
        first, last = begin.at(clock.TOPIC, 0), end.at(clock.TOPIC, 0)
        return table.totals(self.rows.where((F.col("cut") >= first) & (F.col("cut") < last)))

    def whole(self, end: Positions) -> DataFrame:
        """The states from the whole log up to its end, without what has expired."""
        own = self.compiled.own
        return clock.rows_since(own, self.states_between(own, Positions(), end), self.cutoff(own, end))

    def write(self, at: Positions) -> tuple[Rebuilt, Base]:
        """Make the states at these positions the view's base, as certificate 0 describes them."""
        rebuilt = base.write(self, self.whole(at))
        base.keep(self, rebuilt, "0", None)
        return rebuilt, self.base

    @property
    def base(self) -> Base:
        known = base.load(self.connection, self.compiled)
        assert known is not None
        return known

    def stored(self, known: Base) -> DataFrame:
        """The rows of a base, as they are in its table."""
        name = f"{CATALOG}.{base.NAMESPACE}.{self.compiled.own.name}"
        self.context.spark.catalog.refreshTable(name)
        rows = self.context.spark.read.option("versionAsOf", str(known.snapshot)).table(name)
        return self.compiled.own.stored(rows.select("row.*"))


class Cuts(NamedTuple):
    """Where the log of a view is cut."""

    rebuilder: Generated
    positions: list[Positions]


@pytest.fixture(params=["every_measure", "request_rates"])
def cuts(request: pytest.FixtureRequest, lab: Lab, platform: Settings) -> Cuts:
    name, view = request.param, VIEWS[request.param]
    drawn = cases(lab.types, view.reads, number=60)
    own = lab.compiled_once(name, view).own.with_key("case_id", IntegerType())
    compiled = CompiledView((replace(own, owner=f"{name}_based"),))
    lab = replace(lab, settings=platform)
    end = last_cut(drawn)
    lab.store_ticks(compiled, end)
    rebuilder = Generated(lab.context, lab.connection, compiled, rows=lab.transformed(view, drawn).persist())
    return Cuts(rebuilder, [reached(compiled, cut) for cut in (end // 3, end - 1, end)])


def test_law_rows_since_a_base_give_the_rows_of_the_whole_log(cuts: Cuts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "DAY", 20_000_000)  # microseconds, so that there are many slices
    monkeypatch.setattr(base, "WORTH_WRITING", 1)
    rebuilder, (begin, *later) = cuts
    rebuilt, known = rebuilder.write(begin)
    for number, end in enumerate(later, 1):
        assert known.certificate == str(number - 1)
        require_slices_of_stored_rows(rebuilder, known)
        rebuilt = base.advance(rebuilder, known, rebuilt.own, begin, end)
        whole = table_hash.hash_frame(rebuilder.compiled.own, rebuilder.compiled.own.stored(rebuilder.whole(end)))
        assert table_hash.unequal_buckets(rebuilt.own, whole) == []
        assert table_hash.count_rows(whole) > 60
        with rebuilt.cache:
            base.keep(rebuilder, rebuilt, str(number), datetime(2026, 1, 1, tzinfo=UTC))
        begin, known = end, rebuilder.base


def require_slices_of_stored_rows(rebuilder: Generated, known: Base) -> None:
    stored = rebuilder.stored(known)
    parts = table_hash.hash_parts(rebuilder.compiled.own, stored, base.slice_of(rebuilder.compiled.own, stored))
    assert len(known.slices) > 5
    hashes = {number: table_hash.sum_of(part.values()) for number, part in parts.items()}
    assert {number: each.hash for number, each in known.slices.items()} == hashes


def test_a_crash_while_a_base_is_written_leaves_none(cuts: Cuts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "WORTH_WRITING", 1)
    rebuilder, (begin, *_, end) = cuts
    written, known = rebuilder.write(begin)
    rebuilt = base.advance(rebuilder, known, written.own, begin, end)
    monkeypatch.setattr(base, "open_catalog", lambda *_: 1 / 0)  # after the rows were written
    with rebuilt.cache, pytest.raises(ZeroDivisionError):
        base.keep(rebuilder, rebuilt, "1", None)
    assert base.load(rebuilder.connection, rebuilder.compiled) is None


def test_a_base_that_was_altered_is_refused(cuts: Cuts) -> None:
    rebuilder, (begin, *_, end) = cuts
    rebuilt, known = rebuilder.write(begin)
    other = rebuilder.whole(begin).limit(table_hash.count_rows(rebuilt.own) - 1)
    altered = replace(known, snapshot=base.write(rebuilder, other).snapshot or 0)
    with pytest.raises(BaseAltered, match="are not as they were written"):
        base.advance(rebuilder, altered, rebuilt.own, begin, end)
    fewer = {n: each for n, each in rebuilt.own.items() if n != next(iter(rebuilt.own))}
    with pytest.raises(BaseAltered, match="do not add up to certificate 0"):
        base.advance(rebuilder, known, fewer, begin, end)


def keyed_by(lab: Lab, *key: str) -> Table:
    def transform(page_view: DataFrame) -> DataFrame:
        columns = {"name": F.col("event_id"), "day": F.to_date("occurred_at"), "time": F.col("occurred_at")}
        return page_view.select(*(columns[each].alias(each) for each in key), F.lit(1).alias("n"))

    return lab.compiled("sliced", View(reads=("page_view",), transform=transform, key=key, measures={"n": Sum()})).own


def test_a_key_without_a_time_is_sliced_by_its_bucket(lab: Lab) -> None:
    """PostgreSQL computes the same bucket."""
    table, names = keyed_by(lab, "name"), [f"name {n}" for n in range(200)]
    bucket = table_hash.bucket_sql(table)
    query = sql.SQL("SELECT name, {} FROM unnest({}::text[]) AS t (name)").format(bucket, sql.Literal(names))
    rows = lab.spark.createDataFrame([(name,) for name in names], "name string")
    found = rows.select("name", base.slice_of(table, rows)).collect()
    assert {tuple(row) for row in found} == set(lab.connection.execute(query).fetchall())
    assert len({number for _, number in found}) > 100


def test_a_key_with_a_time_is_sliced_by_its_day(lab: Lab) -> None:
    """Days before 1970 have slices, too. The first time of the key decides, and a key without a value is in slice 0."""
    epoch = date(1970, 1, 1)
    slices = {date(1969, 12, 31): 1023, epoch: 0, date(1970, 1, 2): 1, epoch + timedelta(days=1_025): 1, None: 0}
    by_day, by_time = keyed_by(lab, "name", "day"), keyed_by(lab, "time", "day")
    rows = lab.spark.createDataFrame([("a", day) for day in slices], "name string, day date")
    assert [row[0] for row in rows.select(base.slice_of(by_day, rows)).collect()] == list(slices.values())

    last = (day and datetime(day.year, day.month, day.day, 23, 59, 59, 999_999, UTC) for day in slices)
    rows = lab.spark.createDataFrame([(time, epoch) for time in last], "time timestamp, day date")
    assert [row[0] for row in rows.select(base.slice_of(by_time, rows)).collect()] == list(slices.values())
