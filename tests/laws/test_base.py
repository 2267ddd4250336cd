"""Law: a rebuild that begins from a base equals the rebuild of the whole log, wherever the log is cut."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from tests.laws.lab import Lab, _reached, cases, last_cut
from tests.laws.views import VIEWS
from tests.library.archived import drop_base
from truelog.batch import base
from truelog.batch.base import Base, Rebuilt
from truelog.kernel import clock, table_hash
from truelog.log.positions import Positions
from truelog.support.errors import BaseAltered
from truelog.support.settings import Settings
from truelog.views.compiled_view import CompiledView, extend_view


@dataclass(frozen=True)
class Cuts:
    """Rebuilds a view from generated events. The positions say which cut is the last."""

    lab: Lab
    compiled: CompiledView
    rows: DataFrame
    clocks: list[Positions] = field(default_factory=list)  # for which ticks were asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lab, name)  # context and connection

    def store_ticks(self, positions: Positions) -> None:
        """The lab has stored them."""
        self.clocks.append(positions)

    def states_between(self, begin: Positions, end: Positions) -> DataFrame:
        first, last = begin.at(clock.TOPIC, 0), end.at(clock.TOPIC, 0)
        return self.compiled.totals(self.rows.where((F.col("cut") >= first) & (F.col("cut") < last)))

    def until(self, end: Positions) -> DataFrame:
        states = self.states_between(Positions(), end)
        return clock.without_expired(self.lab.connection, self.compiled, states, end)


@pytest.fixture(params=["every_measure", "request_rates"])
def cuts(request: pytest.FixtureRequest, lab: Lab, platform: Settings) -> Iterator[tuple[Cuts, list[Positions]]]:
    name, view = request.param, VIEWS[request.param]
    drawn = cases(lab.types, view.reads, number=60)
    compiled = replace(extend_view(lab.compiled_once(name, view), "case_id", IntegerType()), name=f"{name}_based")
    lab = replace(lab, settings=platform)
    lab._tick(compiled, last_cut(drawn))
    rows = lab.transformed(view, drawn).persist()
    end = last_cut(drawn)
    yield Cuts(lab, compiled, rows), [_reached(compiled, cut) for cut in (end // 3, end - 1, end)]
    base.forget(lab.connection, compiled)
    drop_base(platform, compiled)
    rows.unpersist()


def kept(maker: Cuts, at: Positions) -> tuple[Rebuilt, Base]:
    """Write the view as a base with certificate 0."""
    rebuilder: Any = maker
    rebuilt = base.write(rebuilder, maker.until(at))
    base.keep(rebuilder, rebuilt, "0", None)
    known = base.load(maker.lab.connection, maker.compiled)
    assert known is not None
    return rebuilt, known


def test_law_rows_since_a_base_give_the_rows_of_the_whole_log(
    cuts: tuple[Cuts, list[Positions]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_DAY", 20_000_000)  # microseconds, so that there are many slices
    monkeypatch.setattr(base, "_WORTH_WRITING", 1)
    maker, (first, *later) = cuts
    rebuilder: Any = maker
    rebuilt, _ = kept(maker, first)
    certificates = {"0": (rebuilt.digests, first)}
    for number, end in enumerate(later, 1):
        known = base.load(maker.lab.connection, maker.compiled)
        assert known is not None
        assert known.certificate == str(number - 1)
        assert len(known.slices) > 5
        stored = base._read(maker.lab.spark, maker.compiled, known.snapshot).select("row.*")
        assert base._hashed(maker.compiled, stored)[1] == known.slices
        certified, at = certificates[known.certificate]
        rebuilt = base.advance(rebuilder, known, certified, at, end)
        whole = table_hash.hash_frame(maker.compiled, maker.compiled.stored(maker.until(end)))
        assert table_hash.unequal_buckets(rebuilt.digests, whole) == []
        assert table_hash.count_rows(whole) > 60
        with rebuilt.cache:
            base.keep(rebuilder, rebuilt, str(number), datetime(2026, 1, 1, tzinfo=UTC))
        certificates[str(number)] = rebuilt.digests, end
    assert maker.clocks == later


def test_a_crash_while_a_base_is_written_leaves_none(
    cuts: tuple[Cuts, list[Positions]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_WORTH_WRITING", 1)
    maker, (first, *_, last) = cuts
    rebuilder: Any = maker
    written, known = kept(maker, first)
    rebuilt = base.advance(rebuilder, known, written.digests, first, last)
    monkeypatch.setattr(base, "_snapshot", lambda *_: 1 / 0)
    with rebuilt.cache, pytest.raises(ZeroDivisionError):
        base.keep(rebuilder, rebuilt, "1", None)
    assert base.load(maker.lab.connection, maker.compiled) is None


def test_a_base_that_was_altered_is_refused(cuts: tuple[Cuts, list[Positions]]) -> None:
    maker, (first, *_, last) = cuts
    rebuilder: Any = maker
    rebuilt, known = kept(maker, first)
    other = maker.until(first).limit(table_hash.count_rows(rebuilt.digests) - 1)
    altered = replace(known, snapshot=base.write(rebuilder, other).snapshot or 0)
    with pytest.raises(BaseAltered, match="are not as they were written"):
        base.advance(rebuilder, altered, rebuilt.digests, first, last)
    fewer = {n: each for n, each in rebuilt.digests.items() if n != next(iter(rebuilt.digests))}
    with pytest.raises(BaseAltered, match="do not add up to certificate 0"):
        base.advance(rebuilder, known, fewer, first, last)


def test_a_key_without_a_time_is_sliced_by_its_hash(lab: Lab) -> None:
    rows = lab.spark.createDataFrame([(str(n), None) for n in range(200)], "name string, day date")
    by_name: Any = SimpleNamespace(key_columns={"name": "text"}, view=SimpleNamespace(key=("name",)))
    by_day: Any = SimpleNamespace(key_columns={"name": "text", "day": "date"}, view=by_name.view)
    parts = {each.part for each in rows.select(base._slice(by_name, rows).alias("part")).collect()}
    assert parts <= set(range(table_hash.BUCKETS))
    assert len(parts) > 100
    assert {each.part for each in rows.select(base._slice(by_day, rows).alias("part")).collect()} == {0}
