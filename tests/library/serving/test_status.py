"""Which layer readers get, in every case and at the moment when the deciding transaction commits."""

import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege
from psycopg.types.json import Jsonb
from pyspark.sql.types import LongType, TimestampType

from tests.beds.lab import with_own
from tests.builders.applications import forget_application
from tests.builders.comparisons import a_reconciliation
from tests.builders.erasures import an_erasure, forget_erasures
from tests.builders.rows import before_now
from tests.builders.views import a_batch_answer, a_lag_sample, forget_samples, merged_to
from tests.deadline import deadline
from truelog import Sum, View
from truelog.apps import reader_positions
from truelog.control import application, view_status
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.reconcile.offset_search import Cause
from truelog.serving import fallback_policy
from truelog.serving import status as serving_status
from truelog.serving.status import BATCH, STREAM
from truelog.storage.database import Connection, connect
from truelog.storage.migration import migrate
from truelog.support.errors import CodeChanged, TopicRecreated
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import readable
from truelog.tables.table import Table
from truelog.views.catalogue import table_name

VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("minute",), measures={"views": Sum()})
KINDS = {"minute": TimestampType(), "views": LongType()}
AT_FIVE = {0: 5, 1: 5}


@dataclass(frozen=True)
class Served:
    """A view whose stream counts 1 and whose fallback counts 2, so that the count shows the layer."""

    connection: Connection
    compiled: CompiledView

    @property
    def name(self) -> str:
        return self.compiled.name

    def stream_to(
        self, offsets: Mapping[int, int], topic_id: str = "an-id", connection: Connection | None = None
    ) -> None:
        """Set the stream's positions the way a merge does."""
        reached = Positions({"page_view": dict(offsets)}, {"page_view": topic_id})
        merged_to(connection or self.connection, self.name, reached)

    def fall_back_to(
        self, offsets: Mapping[int, int], topic_id: str = "an-id", age: timedelta = timedelta(minutes=4)
    ) -> None:
        """Set the fallback's positions and age the way a build does."""
        reached = Positions({"page_view": dict(offsets)}, {"page_view": topic_id})
        a_batch_answer(self.connection, self.name, reached, age=age)

    def compared(self, verdict: str, *causes: Cause, rows: int = 3) -> None:
        """Store a reconciliation the way `reconcile` does."""
        found = Jsonb([{"cause": each.value} for each in causes])
        a_reconciliation(self.connection, self.name, verdict, ago=timedelta(hours=1), different=rows, causes=found)

    def layer(self) -> str:
        """The layer that the status reports, which must match the rows."""
        read = self.connection.execute(sql.SQL("SELECT views FROM {}").format(self.view)).fetchall()
        reported = serving_status.serving_statuses(self.connection)[self.name].layer
        assert read == [({STREAM: 1, BATCH: 2}[reported],)]
        return reported

    @property
    def view(self) -> sql.Identifier:
        return sql.Identifier("views", self.name)


@pytest.fixture
def served(connection: Connection) -> Iterator[Served]:
    compiled = CompiledView((Table(f"v{uuid.uuid4().hex[:8]}", VIEW, KINDS, "a fingerprint"),))
    table.deploy_table(connection, compiled)
    for schema, views in (("state", 1), ("batch", 2)):
        query = sql.SQL("INSERT INTO {} VALUES ('2026-03-01', %s)").format(sql.Identifier(schema, compiled.own.name))
        connection.execute(query, (views,))
    yield Served(connection, compiled)
    for name in ("batch_answer", "batch_refusal", "position", "reconciliation", "standing", "view"):
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE view = %s").format(sql.Identifier("truelog", name)), (compiled.name,)
        )


def sampled(served: Served, seconds: Mapping[int, float], *, age: float = 3, version: int = 1, blind: str = "") -> None:
    """Store a poll: the age of the first unread record in each partition. The poll is `age` seconds old."""
    partitions = [
        {"topic": "page_view", "partition": p, "seconds": each, "blind": blind} for p, each in seconds.items()
    ]
    a_lag_sample(served.connection, served.name, partitions, version=version, at=before_now(timedelta(seconds=age)))


def age_of(served: Served) -> float | None:
    return serving_status.serving_statuses(served.connection)[served.name].age


def test_as_of_is_the_time_up_to_which_the_rows_are_complete(served: Served) -> None:
    """A view that is hours behind is hours old, although it merges every second and is not stalled."""
    app = f"app {served.name}"
    application.declare(served.connection, [app])
    view_status.begin_run(served.connection, app, {served.name: 1})
    served.stream_to(AT_FIVE)
    assert age_of(served) is None
    assert "age not known yet" in serving_status.serving_statuses(served.connection)[served.name].line

    sampled(served, {0: 0.0, 1: 7200.0}, age=9)
    assert age_of(served) == pytest.approx(7209, abs=2)
    sampled(served, {0: 0.0, 1: 0.0}, age=6, blind="Kafka did not answer")  # says nothing about the rows
    assert age_of(served) == pytest.approx(7209, abs=2)
    sampled(served, {0: 0.0, 1: 0.5}, age=3)
    assert age_of(served) == pytest.approx(3.5, abs=2)
    sampled(served, {0: 0.0}, age=1, version=2)  # of another table
    assert age_of(served) is None

    served.fall_back_to({0: 8, 1: 8}, age=timedelta(minutes=4))
    assert age_of(served) == pytest.approx(240, abs=2)
    forget_samples(served.connection)
    forget_application(served.connection, app)


def rows_of(served: Served, relation: str) -> list[tuple[object, ...]]:
    query = sql.SQL("SELECT * FROM {}").format(sql.Identifier("views", relation))
    return served.connection.execute(query).fetchall()


def seen(served: Served) -> tuple[object, ...]:
    """The version that readers see, as the answer and the reader's position say, and the values of both relations."""
    [(version,)] = served.connection.execute(
        "SELECT version FROM truelog.answer WHERE view = %s", (served.name,)
    ).fetchall()
    [row], [(doubled,)] = rows_of(served, served.name), rows_of(served, f"{served.name}_doubled")
    position = reader_positions.view_positions(served.connection, [served.name])[served.name]
    return version, position.version, row[-1], doubled


def move(served: Served, version: int) -> None:
    with served.connection.transaction():
        assert readable.show(served.connection, served.name, version)


def test_readers_stay_with_their_version_until_they_are_moved(served: Served) -> None:
    """From version 1 to 2 and back, every relation that readers use changes at once. Both have names of their own."""
    present = {"doubled": "SELECT views * 2 AS views FROM {view}"}
    first, second = (
        with_own(served.compiled, view=replace(VIEW, version=version, present=present)) for version in (1, 2)
    )
    table.deploy_table(served.connection, first)
    served.stream_to(AT_FIVE)
    assert seen(served) == (1, 1, 1, 2)
    table.deploy_table(served.connection, second)
    served.connection.execute(
        sql.SQL("INSERT INTO {} VALUES ('2026-03-01', 7)").format(sql.Identifier("state", second.own.name))
    )
    merged_to(served.connection, served.name, Positions({"page_view": AT_FIVE}, {"page_view": "an-id"}), version=2)
    assert seen(served) == (1, 1, 1, 2)
    assert [rows_of(served, f"{served.name}_v{n}_doubled") for n in (1, 2)] == [[(2,)], [(14,)]]
    move(served, 2)
    assert seen(served) == (2, 2, 7, 14)
    table.deploy_table(served.connection, first)  # the file declares version 1 again
    assert seen(served) == (2, 2, 7, 14)
    move(served, 1)
    assert seen(served) == (1, 1, 1, 2)
    served.fall_back_to({0: 9, 1: 9})  # of version 1, which readers get
    assert (served.layer(), seen(served)) == (BATCH, (1, 1, 2, 4))
    assert fallback_policy.drop_unneeded_fallbacks(served.connection) == []
    move(served, 2)
    assert seen(served) == (2, 2, 7, 14)
    assert fallback_policy.drop_unneeded_fallbacks(served.connection) == [served.name]


def test_a_restart_moves_no_reader(served: Served) -> None:
    deployed = "SELECT deployed_at FROM truelog.view WHERE view = %s"
    table.deploy_table(served.connection, served.compiled)
    before = served.connection.execute(deployed, (served.name,)).fetchall()
    table.deploy_table(served.connection, served.compiled)
    assert served.connection.execute(deployed, (served.name,)).fetchall() == before


def test_a_version_that_is_refused_leaves_readers_where_they_are(served: Served) -> None:
    other = with_own(served.compiled, fingerprint="2:other")
    table.deploy_table(served.connection, with_own(served.compiled, view=replace(VIEW, version=2)))
    with pytest.raises(CodeChanged):
        table.deploy_table(served.connection, other)
    assert rows_of(served, served.name) == []
    assert serving_status.serving_statuses(served.connection)[served.name].layer == STREAM


@pytest.mark.parametrize(
    ("stream", "batch", "expected"),
    [
        (AT_FIVE, None, STREAM),
        (AT_FIVE, {0: 5, 1: 5}, STREAM),  # the stream has merged everything in the fallback
        (AT_FIVE, {0: 5, 1: 6}, BATCH),
        (AT_FIVE, {0: 9, 1: 9}, BATCH),
        (AT_FIVE, {0: 4, 1: 5}, STREAM),
        # The stream is back but has caught up in only one partition; switching to it would hide records from readers.
        ({0: 9, 1: 5}, {0: 8, 1: 8}, BATCH),
        ({0: 9, 1: 8}, {0: 8, 1: 8}, STREAM),
        (AT_FIVE, {0: 5, 1: 5, 2: 1}, BATCH),  # a partition that the stream has not read yet
        (AT_FIVE, {0: 5, 1: 5, 2: 0}, STREAM),
        ({}, {0: 1}, BATCH),  # the stream has never merged
    ],
)
def test_readers_get_the_fallback_until_the_stream_has_all_of_it(
    served: Served, stream: Mapping[int, int], batch: Mapping[int, int] | None, expected: str
) -> None:
    served.stream_to(stream)
    if batch is not None:
        served.fall_back_to(batch)
    assert served.layer() == expected


def test_offsets_of_a_recreated_topic_keep_no_reader(served: Served) -> None:
    """This holds even if the topic now has fewer partitions."""
    served.fall_back_to({0: 900, 1: 900, 2: 900}, topic_id="its first id")
    served.stream_to(AT_FIVE, topic_id="its second id")
    assert served.layer() == STREAM


def test_the_merge_that_catches_up_moves_readers_in_its_transaction(served: Served, postgresql: Settings) -> None:
    served.stream_to(AT_FIVE)
    served.fall_back_to({0: 8, 1: 8})
    with connect(postgresql) as merging:
        served.stream_to({0: 8, 1: 9}, connection=merging)
        assert served.layer() == BATCH
        merging.commit()
        assert served.layer() == STREAM
    assert fallback_policy.served_positions(served.connection, served.name, 1).plain() == {"page_view": {0: 8, 1: 9}}


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([("DIFFERENT",)], BATCH),
        ([("DIFFERENT", Cause.HAND), ("UNKNOWN",)], BATCH),  # UNKNOWN changes nothing
        ([("DIFFERENT", Cause.LOST), ("EQUAL",)], STREAM),  # the quarantine ends automatically
        ([("EQUAL",), ("DIFFERENT",)], BATCH),
        ([("DIFFERENT", Cause.FILE)], STREAM),  # the rebuild is wrong, not the stream
        ([("DIFFERENT", Cause.HAND, Cause.PARTIAL)], STREAM),
    ],
)
def test_readers_of_a_quarantined_view_get_an_older_fallback(
    served: Served, verdicts: list[tuple[str, *tuple[Cause, ...]]], expected: str
) -> None:
    served.stream_to({0: 9, 1: 9})
    served.fall_back_to(AT_FIVE)
    for verdict, *causes in verdicts:
        served.compared(verdict, *causes)
    assert served.layer() == expected


def test_records_skipped_without_reason_are_no_quarantine(served: Served) -> None:
    """No row differs, because the rebuild skips the records too."""
    served.fall_back_to(AT_FIVE)
    served.stream_to(AT_FIVE)
    served.compared("DIFFERENT", rows=0)
    assert served.layer() == STREAM


def test_without_a_fallback_readers_get_the_quarantined_stream_with_a_warning(served: Served) -> None:
    served.stream_to(AT_FIVE)
    served.compared("DIFFERENT")
    assert served.layer() == STREAM
    assert (
        "differ from the rebuild (reconciliation"
        in serving_status.serving_statuses(served.connection)[served.name].line
    )


def test_the_status_warns_of_an_erasure_until_the_views_are_without_the_person(served: Served) -> None:
    cases = ((Step.RECORDED, "page_view", True), (Step.PARTIALS, "page_view", True))
    for step, topic, warns in (*cases, (Step.VIEWS, "page_view", False), (Step.RECORDED, "like", False)):
        subjects, ends = frozenset({Subject("visitor_id", bytes(32))}), Positions({topic: {0: 5}}, {topic: "an-id"})
        an_erasure(served.connection, Erasure(uuid.uuid4(), subjects, {topic: ("visitor_id",)}, ends), step)
        reason = serving_status.serving_statuses(served.connection)[served.name].reason
        assert ("an erasure is unfinished" in reason) == warns, (step, topic)
        forget_erasures(served.connection)


def test_the_status_says_what_is_wrong(served: Served) -> None:
    app = f"app {served.name}"
    application.set_desired(served.connection, app, application.STOPPED, "oncall")
    view_status.record_state(served.connection, app, served.name, 1)
    served.stream_to(AT_FIVE)
    assert serving_status.serving_statuses(served.connection)[served.name].reason == f"{app} is stopped"
    served.fall_back_to({0: 6, 1: 6})
    status = serving_status.serving_statuses(served.connection)[served.name]
    assert status.line.endswith(f", 4 min old: {app} is stopped")
    assert status.line.startswith(f"{served.name}: batch layer, as of 20")
    view_status.record_state(served.connection, app, served.name, 1, "no disk")
    assert serving_status.serving_statuses(served.connection)[served.name].reason == "its stream is stalled"
    forget_application(served.connection, app)


def test_queries_read_only_the_current_layer_and_use_its_indexes(served: Served) -> None:
    """This holds in both layers for queries by key, for ordered queries with a limit, and for extremes."""
    served.connection.execute("SET enable_seqscan = off")  # the tables are small
    served.stream_to(AT_FIVE)
    for offsets in (None, {0: 6, 1: 6}):
        if offsets is not None:
            served.fall_back_to(offsets)
        for query in (
            "SELECT * FROM {} WHERE minute = '2026-03-01'",
            "SELECT * FROM {} ORDER BY minute DESC LIMIT 1",
            "SELECT max(minute) FROM {}",
        ):
            explain = sql.SQL("EXPLAIN (ANALYZE, COSTS OFF) " + query).format(served.view)
            plan = [str(line).strip() for (line,) in served.connection.execute(explain).fetchall()]
            scans = [line for line in plan if " Scan" in line and f" on {served.compiled.own.name} " in line]
            assert len(scans) == 2, plan
            assert ["never executed" in each for each in scans] == [offsets is not None, offsets is None], plan
            assert all("Index" in each for each in scans), plan
            assert not [line for line in plan if "Sort (" in line], plan
    served.connection.execute("RESET enable_seqscan")


def test_analysts_read_both_layers_and_the_status(served: Served, postgresql: Settings) -> None:
    """Analysts use only database views and have no rights on the tables."""
    analyst = {"user": "analyst", "password": postgresql.analyst_password.get_secret_value()}
    with psycopg.connect(**postgresql.database() | analyst, autocommit=True) as connection:
        as_analyst = replace(served, connection=connection)
        assert as_analyst.layer() == STREAM
        served.fall_back_to({0: 1})
        assert as_analyst.layer() == BATCH
        with pytest.raises(InsufficientPrivilege):
            connection.execute(sql.SQL("SELECT FROM {}").format(sql.Identifier("batch", served.compiled.own.name)))


@pytest.mark.parametrize(
    ("archived", "quarantined", "expected"),
    [
        ({0: 5, 1: 6}, False, True),
        ({0: 5, 1: 5}, False, False),
        ({0: 9, 1: 4}, False, False),  # the fallback would hide a record from readers
        ({0: 9, 1: 4}, True, True),  # but the rows that readers see are wrong
        ({0: 4, 1: 4}, True, True),
    ],
)
def test_a_fallback_improves_what_readers_see(archived: Mapping[int, int], quarantined: bool, expected: bool) -> None:
    ids = {"page_view": "an-id"}
    seen = Positions({"page_view": AT_FIVE}, ids)
    assert fallback_policy.improves(Positions({"page_view": archived}, ids), seen, quarantined=quarantined) == expected
    assert not fallback_policy.improves(Positions(), seen, quarantined=quarantined)
    with pytest.raises(TopicRecreated):
        fallback_policy.improves(
            Positions({"page_view": archived}, {"page_view": "another"}), seen, quarantined=quarantined
        )


def test_a_fallback_is_dropped_when_no_reader_gets_it(served: Served) -> None:
    served.stream_to(AT_FIVE)
    served.fall_back_to({0: 6, 1: 6})
    assert served.name not in fallback_policy.drop_unneeded_fallbacks(served.connection)
    assert served.layer() == BATCH
    served.stream_to({0: 6, 1: 6})
    assert served.name in fallback_policy.drop_unneeded_fallbacks(served.connection)
    assert served.layer() == STREAM
    left = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("batch", table_name(served.name, 1)))
    assert served.connection.execute(left).fetchone() == (0,)


def test_a_slow_reader_blocks_neither_a_second_migration_nor_the_drop_of_a_fallback(
    served: Served, postgresql: Settings
) -> None:
    """A statement that waited for the slow reader would make all other readers wait. The slow reader keeps its rows."""
    served.stream_to(AT_FIVE)
    served.fall_back_to({0: 6, 1: 6})
    with connect(postgresql) as reading, ThreadPoolExecutor(1) as pool:
        reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        slow = replace(served, connection=reading)
        assert slow.layer() == BATCH
        pool.submit(migrate, postgresql, sql_functions()).result(deadline(30))
        served.stream_to({0: 6, 1: 6})
        dropping = pool.submit(fallback_policy.drop_unneeded_fallbacks, served.connection)
        assert served.name in dropping.result(deadline(30))
        assert slow.layer() == BATCH
    assert served.layer() == STREAM
