"""Laws 2, 3, 7 and 8: a merge applies once, wholly, at its place, by the code that made the table."""

import json
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tests.laws.events import START
from tests.laws.lab import Lab
from truelog import Sum, View, clock, faults, lease, merge, records, stage, table
from truelog.advance import Advancer, Slice
from truelog.compiled import Compiled
from truelog.errors import CodeChanged, Fenced, Gap, StagingTorn, Stale, TopicRecreated
from truelog.lease import Holder
from truelog.merge import Merge
from truelog.positions import Positions


def _per_minute(page_view: DataFrame) -> DataFrame:
    return page_view.select(F.date_trunc("minute", "event_time").alias("minute"), F.lit(1).alias("views"))


PER_MINUTE = View(reads=("page_view",), transform=_per_minute, key=("minute",), measures={"views": Sum()})


@dataclass
class Bench:
    """A view of its own for one test, and batches to feed it."""

    lab: Lab
    compiled: Compiled
    holder: Holder | None = None
    topic_id: str = "an-id"

    def at(self, offset: int, ticks: int = 0) -> Positions:
        offsets = {"page_view": {0: offset}, "ticks": {0: ticks}}
        return Positions(offsets, {"page_view": self.topic_id, "ticks": "ticks-id"}).only(self.compiled.view.topics)

    def events(self, start: int, end: int) -> dict[str, DataFrame]:
        """One event each second, the offset its number."""
        seconds = F.timestamp_seconds(F.lit(START.timestamp()).cast("bigint") + F.col("id"))
        kinds = {"offset": F.col("id"), "partition": F.lit(0), "topic": F.lit("page_view"), "event_time": seconds}
        return {"page_view": _shaped(self.lab, self.lab.spark.range(start, end), "page_view", kinds)}

    def staged(self, start: int, end: int) -> stage.Staged:
        return self.advancer.staged(self.compiled, self.events(start, end))

    @property
    def advancer(self) -> Advancer:
        return Advancer(self.lab.settings, self.lab.types, self.holder)

    def apply(self, start: int, end: int, /, **changes: object) -> None:
        given = Merge(self.at(start), self.at(end), self.staged(start, end))
        merge.apply(self.lab.connection, self.compiled, replace(given, **changes), self.holder)  # type: ignore[arg-type]

    def counted(self) -> int:
        query = sql.SQL("SELECT coalesce(sum(views), 0)::bigint FROM {}")
        row = self.lab.connection.execute(query.format(sql.Identifier("state", self.compiled.table))).fetchone()
        assert row is not None
        return int(str(row[0]))

    def stands(self) -> int:
        return merge.positions(self.lab.connection, self.compiled).at("page_view", 0)


def _shaped(lab: Lab, frame: DataFrame, topic: str, given: dict[str, Column]) -> DataFrame:
    shape: StructType = records.schema(lab.types[topic])
    return frame.select(*(given.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in shape))


@pytest.fixture
def bench(lab: Lab) -> Bench:
    return _bench(lab, PER_MINUTE)


def _bench(lab: Lab, view: View) -> Bench:
    compiled = lab.compiled(f"v{uuid.uuid4().hex[:8]}", view)
    table.deploy(lab.connection, compiled)
    return Bench(lab, compiled)


def test_merges_that_follow_each_other_add_up(bench: Bench) -> None:
    bench.apply(0, 90)
    bench.apply(90, 150)

    assert (bench.counted(), bench.stands()) == (150, 150)


@pytest.mark.parametrize(("start", "end", "refusal"), [(0, 90, Stale), (50, 120, Stale), (100, 120, Gap)])
def test_a_batch_that_begins_elsewhere_changes_nothing(
    bench: Bench, start: int, end: int, refusal: type[Exception]
) -> None:
    bench.apply(0, 90)

    with pytest.raises(refusal):
        bench.apply(start, end)

    assert (bench.counted(), bench.stands()) == (90, 90)


def test_without_the_comparison_a_replay_doubles(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect that the test above must be able to see."""
    monkeypatch.setattr(merge, "require_at", lambda *_: None)
    bench.apply(0, 90)
    bench.apply(0, 90)

    assert bench.counted() == 180


def test_a_recreated_topic_is_refused(bench: Bench) -> None:
    bench.apply(0, 90)
    bench.topic_id = "another-id"

    with pytest.raises(TopicRecreated):
        bench.apply(90, 100)

    assert bench.counted() == 90


@pytest.mark.parametrize("point", ["merge.locked", "merge.added", "merge.advanced"])
def test_a_failure_within_the_merge_leaves_no_trace(
    bench: Bench, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    fired = f"{tmp_path}/fired"
    monkeypatch.setenv("TRUELOG_FAULT_FIRED", fired)
    monkeypatch.setattr(faults, "_armed", f"{point}:1:raise")
    monkeypatch.setattr(faults, "_reached", 0)

    with pytest.raises(faults.FaultInjectedError):
        bench.apply(0, 90)
    assert open(fired).read().startswith(point)  # noqa: SIM115
    assert (bench.counted(), bench.stands()) == (0, 0)

    bench.apply(0, 90)
    assert (bench.counted(), bench.stands()) == (90, 90)


def test_staging_emptied_by_a_crash_is_noticed(bench: Bench) -> None:
    lost = bench.staged(0, 90)
    bench.lab.connection.execute(sql.SQL("TRUNCATE {}").format(stage.table(bench.compiled)))

    with pytest.raises(StagingTorn):
        bench.apply(0, 90, staged=lost)

    assert (bench.counted(), bench.stands()) == (0, 0)


def test_rows_of_a_repeated_or_suspended_attempt_are_not_counted(bench: Bench) -> None:
    bench.staged(0, 90)  # an attempt that Spark gave up
    winner = bench.staged(0, 90)
    bench.staged(0, 90)  # one that woke up after the winner reported

    bench.apply(0, 90, staged=winner)

    assert bench.counted() == 90


def test_altered_rows_of_the_right_number_are_noticed(bench: Bench) -> None:
    staged = bench.staged(0, 90)
    bench.lab.connection.execute(sql.SQL("UPDATE {} SET row_hash = row_hash + 1").format(stage.table(bench.compiled)))

    with pytest.raises(StagingTorn):
        bench.apply(0, 90, staged=staged)


def test_a_process_whose_lease_is_over_cannot_write(bench: Bench) -> None:
    application = f"app-{bench.compiled.name}"
    held = lease.take(bench.lab.settings, application)
    bench.holder = held.holder
    bench.apply(0, 30)
    bench.lab.connection.execute("UPDATE truelog.lease SET epoch = epoch + 1 WHERE application = %s", (application,))

    with pytest.raises(Fenced):
        bench.apply(30, 60)

    assert (bench.counted(), bench.stands()) == (30, 30)
    held.release()


def test_a_second_process_of_an_application_is_refused(bench: Bench) -> None:
    application = f"app-{bench.compiled.name}"
    first = lease.take(bench.lab.settings, application)

    with pytest.raises(Fenced):
        lease.take(bench.lab.settings, application)

    first.release()
    second = lease.take(bench.lab.settings, application)
    assert second.holder.epoch == first.holder.epoch + 1
    second.release()


def test_each_view_takes_only_what_it_lacks(bench: Bench) -> None:
    """A batch that begins at the least of several views' positions overlaps with what the others have."""
    bench.apply(0, 60)

    piece = Slice(bench.events(20, 100), bench.at(20), bench.at(100))
    bench.advancer.advance(bench.lab.connection, bench.compiled, piece, bench.at(60))

    assert (bench.counted(), bench.stands()) == (100, 100)


def test_a_record_that_the_transform_cannot_take_is_set_aside_and_the_rest_goes_on(lab: Lab) -> None:
    def divides(page_view: DataFrame) -> DataFrame:
        return page_view.select("url", (F.lit(100) / (F.col("offset") - 7)).cast("int").alias("share"))

    bench = _bench(lab, View(reads=("page_view",), transform=divides, key=("url",), measures={"share": Sum()}))
    piece = Slice(bench.events(0, 20), bench.at(0), bench.at(20))
    bench.advancer.advance(lab.connection, bench.compiled, piece, bench.at(0))

    assert bench.stands() == 20
    rows = lab.connection.execute(
        'SELECT "offset", error FROM truelog.exclusion WHERE view = %s', (bench.compiled.name,)
    ).fetchall()
    assert [offset for offset, _ in rows] == [7]
    assert "DIVIDE_BY_ZERO" in str(rows[0][1])


def test_changed_code_does_not_go_on_with_the_table(bench: Bench) -> None:
    def doubled(page_view: DataFrame) -> DataFrame:
        return page_view.select(F.date_trunc("minute", "event_time").alias("minute"), F.lit(2).alias("views"))

    changed = bench.lab.compiled(bench.compiled.name, replace(PER_MINUTE, transform=doubled))
    same = bench.lab.compiled(bench.compiled.name, PER_MINUTE)

    table.deploy(bench.lab.connection, same)
    with pytest.raises(CodeChanged):
        table.deploy(bench.lab.connection, changed)
    table.deploy(bench.lab.connection, replace(changed, view=replace(changed.view, version=2)))


def test_old_rows_leave_by_the_clock_of_the_log_alone(lab: Lab) -> None:
    """The tick counts once the view has reached both the tick and the offsets that it names."""
    bench = _bench(lab, replace(PER_MINUTE, keep="2 minutes"))
    late = START + timedelta(minutes=3, seconds=30)
    _remember_tick(bench, offset=4, time=late.isoformat(), reached=200)

    bench.apply(0, 150, end=bench.at(150, ticks=5))
    assert bench.counted() == 150  # the tick knows of records that this view has not seen

    bench.apply(150, 200, begin=bench.at(150, ticks=5), end=bench.at(200, ticks=5))
    assert bench.counted() == 200 - 120  # minutes 0 and 1 began more than two minutes before 3:30


def _remember_tick(bench: Bench, *, offset: int, time: str, reached: int) -> None:
    row = (offset, time, json.dumps({"page_view": {"0": reached}}))
    frame = bench.lab.spark.createDataFrame([row], "offset bigint, occurred_at string, ends string")
    clock.remember(bench.lab.connection, "ticks-id", frame)
