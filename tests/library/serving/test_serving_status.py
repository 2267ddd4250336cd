"""Which layer answers readers: in every case, and at the very moment when what decides it commits."""

import json
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege
from pyspark.sql.types import LongType, TimestampType

from truelog import Sum, View
from truelog.control import application, view_status
from truelog.kernel import table
from truelog.log.positions import Positions
from truelog.reconcile.offset_search import Cause
from truelog.serving import fallback_policy, serving_status
from truelog.serving.serving_status import BATCH, STREAM
from truelog.storage.database import Connection, connect, migrate
from truelog.support.errors import TopicRecreated
from truelog.support.settings import Settings
from truelog.views.catalogue import table_name
from truelog.views.compiled_view import Compiled

VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("minute",), measures={"views": Sum()})
KINDS = {"minute": TimestampType(), "views": LongType()}
AT_FIVE = {0: 5, 1: 5}


@dataclass(frozen=True)
class Served:
    """A view whose stream counts 1 and whose batch answer counts 2: what readers count tells the layer."""

    connection: Connection
    compiled: Compiled

    @property
    def name(self) -> str:
        return self.compiled.name

    def stands(self, offsets: Mapping[int, int], topic_id: str = "an-id", connection: Connection | None = None) -> None:
        """As a merge leaves it."""
        with (connection or self.connection).cursor() as cursor:
            cursor.executemany(
                "INSERT INTO truelog.position (view, version, topic, partition, topic_id, next_offset) "
                "VALUES (%s, 1, 'page_view', %s, %s, %s) ON CONFLICT (view, version, topic, partition) "
                "DO UPDATE SET next_offset = excluded.next_offset",
                [(self.name, partition, topic_id, offset) for partition, offset in offsets.items()],
            )

    def answered(self, offsets: Mapping[int, int], topic_id: str = "an-id", age: str = "4 minutes") -> None:
        """As the batch layer keeps it."""
        self.connection.execute(
            "INSERT INTO truelog.batch_answer (view, version, as_of, made_at) "
            "VALUES (%s, 1, now() - %s::interval, now() - %s::interval)",
            (self.name, age, age),
        )
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO truelog.batch_position VALUES (%s, 1, 'page_view', %s, %s, %s)",
                [(self.name, partition, topic_id, offset) for partition, offset in offsets.items()],
            )

    def compared(self, verdict: str, *causes: Cause, rows: int = 3) -> None:
        """As reconcile keeps it."""
        self.connection.execute(
            "INSERT INTO truelog.reconciliation (view, version, positions, from_raw, row_count, missing, extra, "
            "different, repaired, verdict, reason, sample, causes, finished_at) "
            "VALUES (%s, 1, '{}', false, 9, 0, 0, %s, 0, %s, '', '[]', %s, now() - interval '1 hour')",
            (self.name, rows, verdict, json.dumps([{"cause": each.value} for each in causes])),
        )

    def layer(self) -> str:
        """As the rows tell, and as it is told."""
        read = self.connection.execute(sql.SQL("SELECT views FROM {}").format(self.view)).fetchall()
        told = serving_status.serving_statuses(self.connection)[self.name].layer
        assert read == [({STREAM: 1, BATCH: 2}[told],)]
        return told

    @property
    def view(self) -> sql.Identifier:
        return sql.Identifier("views", self.name)


@pytest.fixture
def served(connection: Connection) -> Iterator[Served]:
    compiled = Compiled(f"v{uuid.uuid4().hex[:8]}", VIEW, KINDS, "a fingerprint")
    table.deploy_table(connection, compiled)
    for schema, views in (("state", 1), ("batch", 2)):
        query = sql.SQL("INSERT INTO {} VALUES ('2026-03-01', %s)").format(sql.Identifier(schema, compiled.table))
        connection.execute(query, (views,))
    yield Served(connection, compiled)
    for name in ("batch_answer", "batch_refusal", "position", "reconciliation", "standing", "view"):
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE view = %s").format(sql.Identifier("truelog", name)), (compiled.name,)
        )


@pytest.mark.parametrize(
    ("stream", "batch", "expected"),
    [
        (AT_FIVE, None, STREAM),
        (AT_FIVE, {0: 5, 1: 5}, STREAM),  # the stream has all of it
        (AT_FIVE, {0: 5, 1: 6}, BATCH),
        (AT_FIVE, {0: 9, 1: 9}, BATCH),
        (AT_FIVE, {0: 4, 1: 5}, STREAM),
        # The stream has come back, and has caught up in one partition: to go to it would take records from readers.
        ({0: 9, 1: 5}, {0: 8, 1: 8}, BATCH),
        ({0: 9, 1: 8}, {0: 8, 1: 8}, STREAM),
        (AT_FIVE, {0: 5, 1: 5, 2: 1}, BATCH),  # a partition that the stream has yet to meet
        (AT_FIVE, {0: 5, 1: 5, 2: 0}, STREAM),
        ({}, {0: 1}, BATCH),  # it never merged
    ],
)
def test_the_batch_layer_answers_until_the_stream_has_all_of_it(
    served: Served, stream: Mapping[int, int], batch: Mapping[int, int] | None, expected: str
) -> None:
    served.stands(stream)
    if batch is not None:
        served.answered(batch)
    assert served.layer() == expected


def test_offsets_of_a_topic_made_again_keep_nobody(served: Served) -> None:
    """Also where it has fewer partitions now."""
    served.answered({0: 900, 1: 900, 2: 900}, topic_id="its first id")
    served.stands(AT_FIVE, topic_id="its second id")
    assert served.layer() == STREAM


def test_the_merge_that_reaches_it_moves_readers_in_its_transaction(served: Served, migrated: Settings) -> None:
    served.stands(AT_FIVE)
    served.answered({0: 8, 1: 8})
    with connect(migrated) as merging:
        served.stands({0: 8, 1: 9}, connection=merging)
        assert served.layer() == BATCH
        merging.commit()
        assert served.layer() == STREAM
    assert fallback_policy.served_positions(served.connection, served.name, 1).plain() == {"page_view": {0: 8, 1: 9}}


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([("DIFFERENT",)], BATCH),
        ([("DIFFERENT", Cause.HAND), ("UNKNOWN",)], BATCH),  # which has no answer to it
        ([("DIFFERENT", Cause.LOST), ("EQUAL",)], STREAM),  # it comes back by itself
        ([("EQUAL",), ("DIFFERENT",)], BATCH),
        ([("DIFFERENT", Cause.FILE)], STREAM),  # the rebuild is what is wrong
        ([("DIFFERENT", Cause.HAND, Cause.PARTIAL)], STREAM),
    ],
)
def test_a_view_in_quarantine_is_answered_from_behind(
    served: Served, verdicts: list[tuple[str, *tuple[Cause, ...]]], expected: str
) -> None:
    served.stands({0: 9, 1: 9})
    served.answered(AT_FIVE)
    for verdict, *causes in verdicts:
        served.compared(verdict, *causes)
    assert served.layer() == expected


def test_records_set_aside_for_no_reason_are_no_quarantine(served: Served) -> None:
    """No row differs: the rebuild leaves them out as well."""
    served.answered(AT_FIVE)
    served.stands(AT_FIVE)
    served.compared("DIFFERENT", rows=0)
    assert served.layer() == STREAM


def test_without_an_answer_a_doubted_stream_answers_and_says_so(served: Served) -> None:
    served.stands(AT_FIVE)
    served.compared("DIFFERENT")
    assert served.layer() == STREAM
    assert (
        "differ from the rebuild (reconciliation"
        in serving_status.serving_statuses(served.connection)[served.name].line
    )


def test_what_is_the_matter_is_told(served: Served) -> None:
    app = f"app {served.name}"
    application.set_desired(served.connection, app, application.STOPPED, "somebody")
    view_status.record_state(served.connection, app, served.name, 1)
    served.stands(AT_FIVE)
    assert serving_status.serving_statuses(served.connection)[served.name].reason == f"{app} is stopped"
    served.answered({0: 6, 1: 6})
    told = serving_status.serving_statuses(served.connection)[served.name]
    assert told.line.endswith(f", 4 min old: {app} is stopped")
    assert told.line.startswith(f"{served.name}: batch layer, as of 20")
    view_status.record_state(served.connection, app, served.name, 1, "no disk")
    assert serving_status.serving_statuses(served.connection)[served.name].reason == "its stream is stalled"
    served.connection.execute("DELETE FROM truelog.application WHERE application = %s", (app,))


def test_the_other_layer_is_never_read_and_indexes_are_used(served: Served) -> None:
    """Of both, whichever answers: a key, an order with a limit, an extreme."""
    served.connection.execute("SET enable_seqscan = off")  # the tables are small
    served.stands(AT_FIVE)
    for batch in (None, {0: 6, 1: 6}):
        if batch is not None:
            served.answered(batch)
        for query in (
            "SELECT * FROM {} WHERE minute = '2026-03-01'",
            "SELECT * FROM {} ORDER BY minute DESC LIMIT 1",
            "SELECT max(minute) FROM {}",
        ):
            asked = sql.SQL("EXPLAIN (ANALYZE, COSTS OFF) " + query).format(served.view)
            plan = [str(line).strip() for (line,) in served.connection.execute(asked).fetchall()]
            scans = [line for line in plan if " Scan" in line and f" on {served.compiled.table} " in line]
            assert len(scans) == 2, plan
            assert ["never executed" in each for each in scans] == [batch is not None, batch is None], plan
            assert all("Index" in each for each in scans), plan
            assert not [line for line in plan if "Sort (" in line], plan
    served.connection.execute("RESET enable_seqscan")


def test_a_view_of_an_earlier_release_gets_the_batch_layer(served: Served) -> None:
    """Its readers see its stream's table alone, and there is no other."""
    state, batch = (sql.Identifier(schema, served.compiled.table) for schema in ("state", "batch"))
    served.connection.execute(sql.SQL("DROP VIEW {}").format(served.view))
    served.connection.execute(sql.SQL("DROP TABLE {}").format(batch))
    served.connection.execute(sql.SQL("CREATE VIEW {} AS SELECT * FROM {}").format(served.view, state))
    served.connection.execute("UPDATE truelog.view SET shown = 'as it was' WHERE view = %s", (served.name,))

    table.deploy_table(served.connection, served.compiled)
    served.connection.execute(sql.SQL("INSERT INTO {} VALUES ('2026-03-01', 2)").format(batch))
    served.answered({0: 1})
    assert served.layer() == BATCH


def test_analysts_read_both_layers_and_which_it_is(served: Served, migrated: Settings) -> None:
    """By the views alone: they have no right to a table."""
    analyst = {"user": "analyst", "password": migrated.analyst_password.get_secret_value()}
    with psycopg.connect(**migrated.database() | analyst, autocommit=True) as connection:
        as_analyst = replace(served, connection=connection)
        assert as_analyst.layer() == STREAM
        served.answered({0: 1})
        assert as_analyst.layer() == BATCH
        with pytest.raises(InsufficientPrivilege):
            connection.execute(sql.SQL("SELECT FROM {}").format(sql.Identifier("batch", served.compiled.table)))


@pytest.mark.parametrize(
    ("archived", "doubted", "expected"),
    [
        ({0: 5, 1: 6}, False, True),
        ({0: 5, 1: 5}, False, False),
        ({0: 9, 1: 4}, False, False),  # it would take a record from readers
        ({0: 9, 1: 4}, True, True),  # which they must not see as it is
        ({0: 4, 1: 4}, True, True),
    ],
)
def test_an_answer_is_news_where_readers_gain(archived: Mapping[int, int], doubted: bool, expected: bool) -> None:
    ids = {"page_view": "an-id"}
    seen = Positions({"page_view": AT_FIVE}, ids)
    assert fallback_policy.has_news(Positions({"page_view": archived}, ids), seen, doubted=doubted) == expected
    assert not fallback_policy.has_news(Positions(), seen, doubted=doubted)
    with pytest.raises(TopicRecreated):
        fallback_policy.has_news(Positions({"page_view": archived}, {"page_view": "another"}), seen, doubted=doubted)


def test_an_answer_is_dropped_when_no_reader_gets_it(served: Served) -> None:
    served.stands(AT_FIVE)
    served.answered({0: 6, 1: 6})
    assert served.name not in fallback_policy.drop_unneeded_fallbacks(served.connection)
    assert served.layer() == BATCH
    served.stands({0: 6, 1: 6})
    assert served.name in fallback_policy.drop_unneeded_fallbacks(served.connection)
    assert served.layer() == STREAM
    left = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("batch", table_name(served.name, 1)))
    assert served.connection.execute(left).fetchone() == (0,)


def test_a_slow_reader_holds_up_neither_a_second_start_nor_an_answer_that_goes(
    served: Served, migrated: Settings
) -> None:
    """Whoever waited for it would have all other readers wait behind; and its own rows stay."""
    served.stands(AT_FIVE)
    served.answered({0: 6, 1: 6})
    with connect(migrated) as reading, ThreadPoolExecutor(1) as pool:
        reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        slow = replace(served, connection=reading)
        assert slow.layer() == BATCH
        pool.submit(migrate, migrated).result(30)
        served.stands({0: 6, 1: 6})
        assert served.name in pool.submit(fallback_policy.drop_unneeded_fallbacks, served.connection).result(30)
        assert slow.layer() == BATCH
    assert served.layer() == STREAM
