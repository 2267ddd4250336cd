"""Law 1: however the log is cut into micro-batches and interleaved, the streamed table equals the rebuilt table."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest
from psycopg import sql
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tests.beds import real_path as bed
from tests.beds.lab import Lab, cases
from tests.beds.real_path import RealPath, real_path
from tests.kinds_covered import without_view
from tests.laws import views
from tests.laws.events import Record
from tests.laws.measures import MEASURED, without_law
from tests.laws.views import EVERY_MEASURE, EXTREMES, IN_STEPS
from tests.nightly_cases import nightly_except
from tests.spark_fixtures import INTERPRETED
from truelog import Group, Sum
from truelog.batch import rebuild
from truelog.batch.partial_selection import PartialSelection, select_partials
from truelog.kernel import bad_records, clock
from truelog.kernel.exclusions import Excluded
from truelog.log.positions import Positions
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.spark.session import session
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import failing
from truelog.tables.fold.compiled import inputs_of, values_of
from truelog.tables.staging import event_files
from truelog.tables.staging.failed_group import FailedGroup
from truelog.views.judged import Judged
from truelog.views.patterns import RULE_TOPIC
from truelog.views.searches import SEARCH_TOPIC, Searches


def _by_second(page_view: DataFrame) -> DataFrame:
    return page_view.select("visitor_id", F.date_trunc("second", "event_time").alias("second"), "url")


def _first(requests: DataFrame) -> DataFrame:
    in_order = Window.partitionBy("visitor_id", "second").orderBy("topic", "partition", "offset")
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    begun = requests.select("visitor_id", "second", F.first("url").over(whole).alias("first"))
    return begun.groupBy("visitor_id", "second").agg(F.max("first").alias("first"), F.count("*").alias("requests"))


BY_SECOND = Group(
    reads=("page_view",),
    transform=_by_second,
    by=("visitor_id", "second"),
    inputs=("url",),
    fold=_first,
    key=("visitor_id", "second"),
    values=("first", "requests"),
    keep="90 seconds",
)


def _requests(page_view: DataFrame) -> DataFrame:
    return page_view.select("visitor_id", "url")


def _failing(requests: DataFrame) -> DataFrame:
    """The number of requests of each visitor. It overflows for a few visitors, and a few have two rows of one key."""
    luck = F.pmod(F.xxhash64("visitor_id"), F.lit(_RARE))
    amount = F.when(luck == 0, F.lit(2**63 - 1)).otherwise(F.lit(1)).cast("bigint")
    counted = requests.groupBy("visitor_id").agg(F.sum(amount).alias("requests"))
    copies = F.when(luck == 1, F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    return counted.select("visitor_id", "requests", F.explode(copies).alias("copy")).drop("copy")


FAILING = Group(
    reads=("page_view",),
    transform=_requests,
    by=("visitor_id",),
    inputs=("url",),
    fold=_failing,
    key=("visitor_id",),
    values=("requests",),
)


def _of_two_types(search: DataFrame, click: DataFrame) -> DataFrame:
    """The columns of a click are in another order than those of a search."""
    searched = search.select("visitor_id", F.col("query").alias("text"), F.lit(False).alias("is_click"))
    return searched.unionByName(click.select(F.lit(True).alias("is_click"), F.col("url").alias("text"), "visitor_id"))


def _halves(inputs: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The searches and the clicks, whose columns are in another order again."""
    searches = inputs.where("NOT is_click").select("visitor_id", "text", F.lit(1).alias("searches"))
    return searches, inputs.where("is_click").select("text", "visitor_id", F.lit(0).alias("searches"))


def _added(halves: DataFrame) -> DataFrame:
    added = F.sum("searches").alias("searches"), F.count("*").alias("events"), F.max("text").alias("last")
    return halves.groupBy("visitor_id").agg(*added)


def _by_name(inputs: DataFrame) -> DataFrame:
    searches, clicks = _halves(inputs)
    return _added(searches.unionByName(clicks))


def _by_place(inputs: DataFrame) -> DataFrame:
    searches, clicks = _halves(inputs)
    return _added(searches.union(clicks))


OF_TWO_TYPES = Group(
    reads=("search", "click"),
    transform=_of_two_types,
    by=("visitor_id",),
    inputs=("text", "is_click"),
    fold=_by_name,
    key=("visitor_id",),
    values=("searches", "events", "last"),
)

# A case of this law has other event ids than all other cases. In the laws whose cases share their ids, a Group without
# copies would contain too few events.
VIEWS = {"in_steps_once": replace(IN_STEPS, dedupe="1 hour"), "group_by_second": BY_SECOND, **views.VIEWS}
# `make test` runs these views: every kind of table and the hardest measures. `make nightly` runs the others, and
# `make affected` the views that a change reaches.
OFTEN = (
    "in_steps_once",
    "every_measure",
    "on_time",
    "home_timeline",
    "matches",
    "search_hits",
)
_RARE = 61  # one of so many groups fails
RULES_EVERY = 20  # one case of so many has rules
TOPICS = tuple(sorted({topic for view in VIEWS.values() for topic in view.reads}))

log = logging.getLogger("truelog.law")


def drawn_logs(types: dict[str, EventType]) -> list[list[Record]]:
    """The records of 120 cases. Topics that no view reads together are drawn apart.

    Otherwise, each new event type would change the records of all others, and leave fewer of them. Only some cases
    have rules, because each rule judges the events of all cases.
    """
    together = list[set[str]]()
    for reads in (set(view.reads) for view in VIEWS.values()):
        joined = [each for each in together if each & reads]
        together = [each for each in together if each not in joined] + [reads.union(*joined)]
    drawn = (
        cases(types, tuple(sorted(each)), number=120, longest=max(24, 16 * len(each)), bad=True) for each in together
    )
    every = ([record for part in parts for record in part] for parts in zip(*drawn, strict=True))
    rules = {RULE_TOPIC, SEARCH_TOPIC}
    return [[r for r in case if r.topic not in rules or n % RULES_EVERY == 0] for n, case in enumerate(every)]


@pytest.fixture(scope="module")
def path(postgresql: Settings, s3: Settings, spark_session: None) -> Iterator[RealPath]:
    """The generated cases as one log, archived once for all views. Prints how long the law took."""
    began, types = time.monotonic(), load_events()
    with connect(postgresql, autocommit=True) as connection:
        spark = session(postgresql, "tests")
        for name in INTERPRETED:
            spark.conf.unset(name)  # a rebuild and a large batch run generated code
        lab = Lab(spark, postgresql, connection, types)
        with real_path(lab, drawn_logs(types), TOPICS) as made:
            log.warning("%d records archived after %.1f s", len(made.log.records), time.monotonic() - began)
            yield made
    log.warning("law 1 took %.1f s for %d views", time.monotonic() - began, len(VIEWS))


def test_the_laws_cover_every_measure() -> None:
    assert without_law(MEASURED) == without_law(EXTREMES) == set()


def test_the_laws_cover_every_kind_of_table() -> None:
    assert without_view(VIEWS[name] for name in OFTEN) == []
    assert without_view(each for each in VIEWS.values() if not isinstance(each, Searches)) == ["Searches"]
    assert without_view(replace(each, dedupe=None) for each in VIEWS.values()) == ["Seen"]


@pytest.mark.parametrize("name", nightly_except(OFTEN, VIEWS))
def test_streamed_equals_rebuilt_from_typed_columns_and_from_raw_bytes(path: RealPath, name: str) -> None:
    typed, raw = path.compare(name, VIEWS[name])

    assert typed.rows == raw.rows > 20, "the cases hold too few events to show a difference"
    assert (typed.unequal, raw.unequal) == (0, 0), bed.batches(name)


@pytest.mark.parametrize(
    "name", nightly_except(OFTEN, (n for n, each in VIEWS.items() if each.keep and not isinstance(each, Judged)))
)
def test_the_clock_of_the_log_expires_some_of_these_rows(path: RealPath, name: str) -> None:
    """A text expires by the time at which it reached the log, which all records of the law share.

    Matches expire by months: `tests/laws/test_rules.py` has short spans.
    """
    kept, _ = path.compare(name, VIEWS[name])

    assert 0 < kept.rows < path.rows(f"{name}_for_ever", replace(VIEWS[name], keep=None))


def test_late_events_are_counted_and_left_out(path: RealPath) -> None:
    """The side table `dropped` equals its rebuild too: `compare` compares each table of a view."""
    on_time, _ = path.compare("on_time", VIEWS["on_time"])
    whenever = path.rows("whenever", replace(VIEWS["on_time"], allowed_lateness=None))
    [side] = path.views["on_time"].sides
    table = sql.Identifier("state", side.name)
    query = sql.SQL("SELECT 0 < sum(dropped), sum(dropped) < sum(events) FROM {}").format(table)

    assert 60 < on_time.rows < whenever
    assert path.connection.execute(query).fetchall() == [(True, True)]


class _Overwritten(Sum):
    """A sum that overwrites the existing value. The first merge never shows this classic defect."""

    def merged(self, name: str, dtype: DataType) -> dict[str, str]:
        return {name: f"excluded.{name}"}


def test_the_law_catches_a_merge_that_overwrites(path: RealPath) -> None:
    view = VIEWS["page_views"]
    planted = replace(view, measures={**view.measures, "views": _Overwritten()})

    typed, raw = path.compare("overwritten", planted)

    assert typed.different > 0
    assert raw.different > 0


def test_the_law_catches_a_late_view_that_leaves_out_a_recent_batch(
    path: RealPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each view applies two cuts at once, from their files."""
    join = event_files.join
    monkeypatch.setattr(event_files, "join", lambda folder, parts, topics: join(folder, parts[1:], topics))

    typed, raw = path.compare("left_out", VIEWS["page_views"])

    assert typed.missing + typed.different > 0
    assert raw.missing + raw.different > 0


def test_the_law_catches_a_rebuild_that_leaves_out_the_rest_of_the_log(
    path: RealPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the rebuild from partials is wrong, because the rebuild from raw bytes reads one range per partition."""

    def without_rest(*arguments: object) -> PartialSelection:
        selected = select_partials(*arguments)  # type: ignore[arg-type]
        return replace(selected, records=selected.records[:1]) if selected.partials else selected

    path.compare("on_time", VIEWS["on_time"])
    monkeypatch.setattr(rebuild, "select_partials", without_rest)
    typed, raw = path.compare_again("on_time")

    assert typed.extra + typed.different > 0
    assert raw.unequal == 0


def test_the_law_catches_an_exclusion_without_a_reason(path: RealPath, monkeypatch: pytest.MonkeyPatch) -> None:
    view = VIEWS["page_views"]
    [topic] = view.reads
    left_out = [Excluded(topic, 0, each.offset, "out of luck") for each in path.log.of(topic, 0, range(1))[:10]]

    def exclude(_: object, __: object, attempt: Callable[[list[Excluded]], object]) -> object:
        return attempt(left_out)

    with monkeypatch.context() as patched:
        patched.setattr(bad_records, "exclude_and_retry", exclude)
        path.streamed("excluding", view)
    typed, raw = path.compare_again("excluding")

    assert min(typed.unequal, raw.unequal) > 0


@pytest.mark.nightly  # minutes; `test_failing.py` has few groups, typed columns and raw bytes
def test_groups_on_which_a_fold_fails_are_left_out_of_every_layer(path: RealPath) -> None:
    typed, raw = path.compare("failing", FAILING)

    assert typed.rows == raw.rows > 20
    assert (typed.unequal, raw.unequal) == (0, 0)
    query = (
        "SELECT count(*) FILTER (WHERE error LIKE '%%two rows%%'), count(*) FROM truelog.failed_group WHERE view = %s"
    )
    [(doubled, failed)] = path.connection.execute(query, (path.views["failing"].name,)).fetchall()
    assert 0 < int(str(doubled)) < int(str(failed))


def test_a_fold_may_unite_two_event_types_by_name_and_not_by_place(path: RealPath) -> None:
    """By place, the fold of a group would make rows of other groups."""
    typed, raw = path.compare("of_two_types", OF_TWO_TYPES)

    assert typed.rows == raw.rows > 20
    assert (typed.unequal, raw.unequal) == (0, 0)
    query = sql.SQL("SELECT count(*) FROM {} WHERE searches BETWEEN 1 AND events - 1")
    table = sql.Identifier("state", path.views["of_two_types"].own.name)
    [(mixed,)] = path.connection.execute(query.format(table)).fetchall()
    assert int(str(mixed)) > 0
    with pytest.raises(BadDeclaration, match="covers several groups"):
        path.lab.compiled("by_place", replace(OF_TWO_TYPES, fold=_by_place))


@pytest.mark.nightly  # minutes; `test_failing.py` plants the same defect
def test_the_law_catches_a_group_that_is_left_out_while_its_fold_succeeds(
    path: RealPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = failing._find

    def with_another(compiled: CompiledView, inputs: DataFrame, error: Exception) -> list[FailedGroup]:
        found = find(compiled, inputs, error)
        values = values_of(inputs_of(compiled), ("visitor_id",))
        lucky = inputs.where(~values.isin(*(each.values for each in found))).select(values).head()
        assert lucky is not None
        return [*found, FailedGroup(lucky[0], "out of luck")]

    with monkeypatch.context() as patched:
        patched.setattr(failing, "_find", with_another)
        path.streamed("failing_more", FAILING)
    typed, raw = path.compare_again("failing_more")

    assert min(typed.missing, raw.missing) > 0


def test_the_law_catches_a_wrong_tick(path: RealPath, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream stores each tick with a later time, and drops more rows by that clock."""
    view, insert = next(view for view in VIEWS.values() if view.keep), clock._insert

    def later(connection: Connection, topic_id: str, ticks: Iterable[tuple[int, int, Positions]]) -> None:
        insert(connection, topic_id, [(offset, time + 60_000_000, ends) for offset, time, ends in ticks])

    with monkeypatch.context() as patched:
        patched.setattr(clock, "_insert", later)
        path.streamed("by_another_clock", view)
    typed, raw = path.compare_again("by_another_clock")

    assert min(typed.missing, raw.missing) > 0


def test_states_add_up_in_spark_as_they_do_in_postgresql(lab: Lab) -> None:
    """A log day's partials are states, which a rebuild adds up in Spark."""
    at_once, in_parts = lab.totals(EVERY_MEASURE, cases(lab.types, EVERY_MEASURE.reads))

    assert at_once.count() > 0
    assert at_once.exceptAll(in_parts).union(in_parts.exceptAll(at_once)).take(3) == []
