"""Laws 2, 3, 7 and 8 for every view.

A merge applies once, completely, at its positions, and only with the code that made the table. Only the log clock
decides when rows expire. Each view reads a generated log with hostile values in two consecutive batches.
"""

import uuid
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import DataFrame

from tests.beds.lab import Lab, cases, everywhere, place
from tests.dying import dying_at
from tests.laws.events import START, Record
from tests.laws.views import BY_TABLES, VIEWS
from tests.nightly_cases import nightly_except
from truelog import Join, View
from truelog.kernel import clock, merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.log.records import EventFrames
from truelog.support.durations import seconds
from truelog.support.errors import CodeChanged, Gap, Stale
from truelog.tables import deploy as table
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.kinds import Batch
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table
from truelog.views.judged import Judged
from truelog.views.lateness import EventWindow

LOGS = 40  # joined into one log
POINTS = ("merge.locked", "merge.added", "merge.advanced")
EMPTY = StagedRows((), 0, 0)


@dataclass(frozen=True)
class Fed:
    """A view for one test, at the beginning of a log."""

    lab: Lab
    compiled: CompiledView
    log: list[Record]

    def at(self, records: int, ticks: int = 0) -> Positions:
        """The positions after that many log records and that many ticks."""
        reached: dict[str, Counter[int]] = {topic: Counter() for topic in self.compiled.view.reads}
        for record in self.log[:records]:
            reached[record.topic][record.partition] += 1
        offsets = {**reached, clock.TOPIC: {0: ticks}}
        return Positions(offsets, dict.fromkeys(offsets, self.compiled.name)).only(self.compiled.view.topics)

    def batches(self) -> tuple[Merge, Merge]:
        """The two halves of the log, both staged."""
        half, end = len(self.log) // 2, len(self.log)
        halves = [replace(record, cut=2 * index // len(self.log)) for index, record in enumerate(self.log)]
        events = {topic: self.lab.events(topic, [halves]) for topic in self.compiled.view.reads}
        first, second = (self._staged(events, number) for number in (0, 1))
        return Merge(self.at(0), self.at(half), first), Merge(self.at(half), self.at(end), second)

    def _staged(self, events: EventFrames, number: int) -> StagedRows:
        half = {topic: frame.where(f"cut = {number}") for topic, frame in events.items()}
        places = {(record.topic, place(0, record)) for record in self.log}
        return kinds.stage_batch(self.lab.connection, self.compiled, self.lab.plans, Batch(half, places))

    def apply(self, batch: Merge) -> None:
        merge.apply(self.lab.connection, self.compiled, batch)

    def contents(self) -> tuple[list[str], Positions]:
        """Everything that a merge may change: the rows of each table, and the positions."""
        rows = [
            str(row)
            for each in self.compiled.tables
            for (row,) in self.lab.connection.execute(
                sql.SQL("SELECT t::text FROM {} AS t ORDER BY 1").format(sql.Identifier("state", each.name))
            ).fetchall()
        ]
        return rows, merge.positions(self.lab.connection, self.compiled)

    def windows(self) -> list[tuple[datetime, int, str]]:
        """The start, the corrections and the status of each row of a view with a window, as readers see them."""
        window = self.compiled.view.window
        assert window is not None
        query = sql.SQL("SELECT {start}, corrections, status FROM {view} WHERE {start} IS NOT NULL ORDER BY {key}")
        names = sql.SQL(", ").join(map(sql.Identifier, self.compiled.view.key))
        start, view = sql.Identifier(window.start), sql.Identifier("views", self.compiled.name)
        return self.lab.connection.execute(query.format(start=start, view=view, key=names)).fetchall()

    def presented(self, relation: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a relation that the view presents, ordered by their values."""
        query = sql.SQL("SELECT {} FROM {} ORDER BY {}")
        names, numbers = map(sql.Identifier, columns), map(sql.Literal, range(1, len(columns) + 1))
        source, comma = sql.Identifier("views", f"{self.compiled.name}_{relation}"), sql.SQL(", ")
        return self.lab.connection.execute(query.format(comma.join(names), source, comma.join(numbers))).fetchall()

    def ages(self) -> list[datetime | None]:
        """For each row, the time that decides when the row expires."""
        age = sql.Identifier(str(self.compiled.own.age_column))
        query = sql.SQL("SELECT {} FROM {} ORDER BY 1").format(age, self.table)
        return [time for (time,) in self.lab.connection.execute(query).fetchall()]

    def tick(self, offset: int, time: datetime, ends: Positions) -> None:
        row = (offset, time, time, ends.as_json())
        columns = "offset bigint, occurred_at timestamp, broker_time timestamp, ends string"
        frame = self.lab.spark.createDataFrame([row], columns)
        clock.store_ticks(self.lab.connection, self.compiled.name, frame)

    @property
    def table(self) -> sql.Identifier:
        return sql.Identifier("state", self.compiled.own.name)


def deployed(lab: Lab, name: str) -> CompiledView:
    """Deploy a view under a name that no other test uses."""
    compiled = lab.compiled_once(f"{name}_{uuid.uuid4().hex[:8]}", VIEWS[name])
    table.deploy_table(lab.connection, compiled)
    return compiled


def fed(lab: Lab, name: str) -> Fed:
    log = [record for case in cases(lab.types, VIEWS[name].reads, number=LOGS) for record in case]
    return Fed(lab, deployed(lab, name), log)


@pytest.mark.parametrize("name", BY_TABLES)
def test_a_merge_applies_completely_once_and_at_its_positions(
    lab: Lab, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = fed(lab, name)
    first, second = view.batches()
    untouched = view.contents()

    for point in POINTS:
        with dying_at(point, tmp_path, monkeypatch):
            view.apply(first)
        assert view.contents() == untouched, point

    with pytest.raises(Gap):
        view.apply(second)
    assert view.contents() == untouched

    view.apply(first)
    once = view.contents()
    for stale in (first, replace(second, begin=first.begin)):  # a replay, and a batch that overlaps
        with pytest.raises(Stale):
            view.apply(stale)
        assert view.contents() == once

    view.apply(second)
    twice = view.contents()
    assert (len(untouched[0]), untouched[1].partitions()) == (0, [])
    assert once[0] not in (untouched[0], twice[0]), "the batches hold too few events"
    assert twice[1] == second.end


@pytest.mark.parametrize("name", nightly_except(["on_time", "home_timeline"], VIEWS))
def test_changed_code_cannot_continue_with_the_table(lab: Lab, name: str) -> None:
    declared, deployed_name = VIEWS[name], deployed(lab, name).name
    table.deploy_table(lab.connection, lab.compiled(deployed_name, declared))
    changed = lab.compiled(deployed_name, _without_first_record(declared))
    with pytest.raises(CodeChanged):
        table.deploy_table(lab.connection, changed)
    table.deploy_table(lab.connection, everywhere(changed, _next_version))


def _next_version(each: Table) -> Table:
    return replace(each, view=replace(each.view, version=each.view.version + 1))


def _without_first_record(view: View) -> View:
    def transform(*events: DataFrame) -> DataFrame:
        return view.transform(*(frame.where("offset > 0") for frame in events))

    if isinstance(view, Join):
        return replace(view, sides={side: _without_first_record(each) for side, each in view.sides.items()})
    return replace(view, transform=transform)


# A text expires by the time at which it reached the log, which all records of these logs share, and matches by months.
@pytest.mark.parametrize("name", [n for n, view in VIEWS.items() if view.keep and not isinstance(view, Judged)])
def test_old_rows_expire_by_the_clock_of_the_log_alone(lab: Lab, name: str) -> None:
    """A tick counts as soon as the view has reached the tick and the offsets in the tick."""
    view = fed(lab, name)
    first, second = view.batches()
    view.apply(first)
    view.apply(second)
    before, end, limit = view.ages(), second.end, START + timedelta(minutes=1)
    late = limit + timedelta(seconds=seconds(str(view.compiled.view.keep)))

    view.log.append(view.log[-1])  # a record that the view has not seen
    view.tick(0, late, view.at(len(view.log)))
    ticked = view.at(len(view.log) - 1, ticks=1)
    view.apply(Merge(end, ticked, EMPTY))
    assert view.ages() == before

    view.apply(Merge(ticked, view.at(len(view.log), ticks=1), EMPTY))
    assert view.ages() == [age for age in before if age is None or age >= limit]
    assert 0 < len(view.ages()) < len(before), "the clock expires too few rows, or too many"


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.window])
def test_a_row_is_open_until_the_log_s_clock_has_passed_its_window_and_grace(lab: Lab, name: str) -> None:
    view = fed(lab, name)
    window = view.compiled.view.window
    assert window is not None
    first, second = view.batches()
    view.apply(first)
    view.apply(second)
    assert {status for _, _, status in view.windows()} == {"open"}, "no tick counts yet"

    starts = sorted(start for start, _, _ in view.windows())
    now = starts[len(starts) // 2] + timedelta(seconds=window.closes_after())
    view.tick(0, now, second.end)
    view.apply(Merge(second.end, view.at(len(view.log), ticks=1), EMPTY))

    expected = [_status(now, start, window, corrections) for start, corrections, _ in view.windows()]
    assert [status for _, _, status in view.windows()] == expected
    assert set(expected) == {"open", "complete", "corrected"}, "the log has too few windows"


def test_a_relation_sees_the_log_s_clock_at_the_positions_of_its_view(lab: Lab) -> None:
    """Until the view has read a tick, no result of a search is known to be unclicked."""
    view = fed(lab, "click_through")
    first, second = view.batches()
    view.apply(first)
    view.apply(second)
    results = view.presented("results", "search_id", "url", "counts_until", "logged_at")
    ends = sorted(until for _, _, until, _ in results)
    now = ends[len(ends) // 2]
    view.tick(0, now, second.end)
    assert {what for (what,) in view.presented("outcomes", "outcome")} == {"clicked"}, "the tick is not read yet"

    view.apply(Merge(second.end, view.at(len(view.log), ticks=1), EMPTY))
    found = [row[:2] for row in view.presented("outcomes", "search_id", "url", "outcome") if row[2] == "unclicked"]
    expected = [row[:2] for row in results if row[2] <= now and (row[3] is None or row[3] > row[2])]
    assert found == expected
    assert 0 < len(found) < len(results), "the log has too few searches"


def _status(now: datetime, start: datetime, window: EventWindow, corrections: int) -> str:
    if start + timedelta(seconds=window.closes_after()) > now:
        return "open"
    return "corrected" if corrections else "complete"
