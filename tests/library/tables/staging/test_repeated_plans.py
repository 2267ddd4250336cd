"""Plans made once: what they read, when they are made again, and which plans are refused."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from tests.beds.lab import Lab
from tests.nightly_cases import nightly_except
from truelog import Sum, View
from truelog.log.range_reader import PLACE
from truelog.spark.session import small_session
from truelog.storage.database import Connection
from truelog.support.errors import BadDeclaration
from truelog.tables.compiled_view import CompiledView
from truelog.tables.stage import NO_ROWS, StagedRows
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import EventFiles
from truelog.tables.staging.repeated_plans import RepeatedPlans, remembering
from truelog.tables.staging.value_error import FAILURES, is_value_error
from truelog.views import catalogue

COUNTED = View(
    reads=("click",),
    transform=lambda click: click.select("url", F.lit(1).alias("clicks")),
    key=("url",),
    measures={"clicks": Sum()},
)
ALL = catalogue.load_all_views()
SHIPPED = ("page_views", "sessions", "document", "home_timeline", "matches", "search_hits")
SCHEMA = pa.schema([*PLACE, pa.field("url", pa.string())])
WIDER = SCHEMA.append(pa.field("position", pa.int64()))


@pytest.fixture
def compiled(lab: Lab) -> CompiledView:
    compiled = lab.compiled_once("counted_once", COUNTED)
    lab._fresh(compiled)
    return compiled


@pytest.fixture
def plans(lab: Lab, tmp_path: Path) -> RepeatedPlans:
    return RepeatedPlans(small_session(lab.spark), lab.settings, tmp_path / "views" / "counted", tmp_path / "disk")


def batch(folder: Path, *urls: str, schema: pa.Schema = SCHEMA) -> EventFiles:
    folder.mkdir()
    columns = {name: pa.nulls(len(urls), each.type) for name, each in zip(schema.names, schema, strict=True)}
    table = pa.table({**columns, "url": pa.array(urls, pa.string())}, schema=schema)
    with pa.OSFile(str(folder / "click.arrow"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    return EventFiles(folder, {"click": schema}, frozenset(["click"] if urls else []))


def rows(connection: Connection, compiled: CompiledView, staged: StagedRows) -> set[tuple[object, ...]]:
    query = f'SELECT url, clicks FROM stage."{compiled.own.name}" WHERE _attempt = ANY(%s)'
    return set(connection.execute(query, (list(staged.attempts),)).fetchall())


def test_one_plan_stages_each_batch(lab: Lab, compiled: CompiledView, plans: RepeatedPlans, tmp_path: Path) -> None:
    planned = []

    def staged(files: EventFiles) -> StagedRows:
        events = plans.events_of(files, ("click",))

        def states() -> DataFrame:
            planned.append(files)
            return compiled.own.totals_of(events)

        return plans.stage(compiled.own, states)

    first = staged(batch(tmp_path / "1", "a", "a", "b"))
    second = staged(batch(tmp_path / "2", "c"))
    assert staged(batch(tmp_path / "3")) == NO_ROWS
    fourth = staged(batch(tmp_path / "4", "a"))
    assert len(planned) == 1
    found = [rows(lab.connection, compiled, each) for each in (first, second, fourth)]
    assert found == [{("a", 2), ("b", 1)}, {("c", 1)}, {("a", 1)}]

    changed = staged(batch(tmp_path / "5", "d", schema=WIDER))
    assert len(planned) == 2, "a plan that knows other columns must be made again"
    assert rows(lab.connection, compiled, changed) == {("d", 1)}


def test_a_batch_whose_files_are_gone_fails(
    lab: Lab, compiled: CompiledView, plans: RepeatedPlans, tmp_path: Path
) -> None:
    """A view that stages nothing would merge the batch as if it had no events."""
    files = batch(tmp_path / "1", "a")
    states = partial(compiled.own.totals_of, plans.events_of(files, ("click",)))
    plans.stage(compiled.own, states)
    (tmp_path / "1" / "click.arrow").unlink()
    with pytest.raises(FAILURES, match=r"click\.arrow") as failed:
        plans.stage(compiled.own, states)
    assert not is_value_error(failed.value)


def test_rows_to_load_are_asked_for_again(lab: Lab, plans: RepeatedPlans, tmp_path: Path) -> None:
    plans.events_of(batch(tmp_path / "1"), ("click",))
    schema = StructType().add("n", IntegerType())
    first = plans.load([sql.SQL("SELECT {} AS n").format(1)], schema)
    assert [row.n for row in first.collect()] == [1]
    second = plans.load([sql.SQL("SELECT {} AS n").format(2)], schema)
    assert second is first
    assert [row.n for row in second.collect()] == [2]


def shuffled(frame: DataFrame) -> DataFrame:
    return frame.repartition(2, "url")


def broadcast(frame: DataFrame) -> DataFrame:
    return frame.join(F.broadcast(frame.select("url").distinct()), "url", "left_semi")


def subquery(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("planted")
    return frame.sparkSession.sql("SELECT * FROM planted WHERE url <= (SELECT max(url) FROM planted)")


@pytest.mark.parametrize("planted", [shuffled, broadcast, subquery])
def test_a_plan_that_remembers_rows_is_made_for_each_batch(
    lab: Lab, compiled: CompiledView, plans: RepeatedPlans, tmp_path: Path, planted: Callable[[DataFrame], DataFrame]
) -> None:
    found = []
    for number, urls in enumerate(("ab", "c")):
        events = plans.events_of(batch(tmp_path / str(number), *urls), ("click",))
        staged = plans.stage(compiled.own, partial(compiled.own.totals_of, {"click": planted(events["click"])}))
        found.append(rows(lab.connection, compiled, staged))
    assert found == [{("a", 1), ("b", 1)}, {("c", 1)}]
    assert not plans.repeats(compiled.own)


def test_a_transform_that_caches_a_frame_is_refused(
    compiled: CompiledView, plans: RepeatedPlans, tmp_path: Path
) -> None:
    events = plans.events_of(batch(tmp_path / "1", "a"), ("click",))
    with pytest.raises(BadDeclaration, match="must not cache a frame"):
        plans.stage(compiled.own, lambda: compiled.own.totals_of({"click": events["click"].persist()}))


@pytest.mark.parametrize("name", nightly_except(SHIPPED, ALL))
def test_shipped_tables_get_plans_that_are_made_once(lab: Lab, plans: RepeatedPlans, tmp_path: Path, name: str) -> None:
    schemas = {topic: event_files.columns(event_type, {}) for topic, event_type in lab.types.items()}
    compiled = lab.compiled_once(name, ALL[name])
    events = plans.events_of(EventFiles(tmp_path, schemas, frozenset()), ALL[name].reads)
    assert {each.name: steps for each in compiled.sources if (steps := remembering(each.totals_of(events)))} == {}
