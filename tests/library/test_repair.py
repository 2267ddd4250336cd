"""Repair: what may be repaired without a person; and what the stream merges meanwhile is not lost."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from runtime.wait import until
from tests.laws.lab import Lab
from truelog import Sum, View, merge, records, stage, table, topics
from truelog.advance import Advancer
from truelog.archive_table import ensure, identifier, open_catalog
from truelog.compiled import Compiled
from truelog.database import connect
from truelog.errors import ServiceDown
from truelog.event import load_events
from truelog.merge import Excluded, Merge
from truelog.positions import Positions
from truelog.rebuild import Rebuilder
from truelog.reconcile import Request, Result, compare, exit_code, may_be_repaired, reconcile
from truelog.repair import repair
from truelog.settings import Settings
from truelog.stage import Staged

TOPIC = "click"

SHARES = {
    "all of three rows": (0.01, 3, 3, True),
    "ten of a hundred": (0.01, 100, 10, True),
    "eleven of a hundred": (0.01, 100, 11, False),
    "one in a hundred of many": (0.01, 5_000, 50, True),
    "more of many": (0.01, 5_000, 51, False),
    "a table that is all gone but for one row that is wrong": (0.01, 0, 1, True),
    "nothing": (1, 100, 0, False),
    "all of it, where a person said so": (1, 5_000, 5_000, True),
    "one of many, where a person sees to all": (0, 5_000, 1, False),
}


@pytest.mark.parametrize("case", SHARES)
def test_what_may_be_repaired(case: str, settings: Settings) -> None:
    share, rows, different, expected = SHARES[case]
    given = settings.model_copy(update={"repair_share": share})
    assert may_be_repaired(given, Result("v", 1, Positions(), rows=rows, different=different)) is expected


def _per_url(click: DataFrame) -> DataFrame:
    return click.select("url", F.lit(1).alias("clicks"))


PER_URL = View(reads=(TOPIC,), transform=_per_url, key=("url",), measures={"clicks": Sum()})


@dataclass(frozen=True)
class Ground:
    """A view and an archive that stand at the same end of the log; the archive goes no further."""

    lab: Lab
    compiled: Compiled
    rebuilder: Rebuilder

    def stands(self) -> Positions:
        return merge.positions(self.lab.connection, self.compiled)

    def ends(self) -> Positions:
        return topics.end_offsets(self.lab.settings, [TOPIC])

    def staged(self, begin: Positions, end: Positions) -> Staged:
        raw = records.between(self.lab.spark, self.lab.settings, begin, end)
        types = {TOPIC: self.lab.types[TOPIC]}
        events = records.events(records.decoded(raw, types), types)
        return Advancer(self.lab.settings, self.lab.types).staged(self.compiled, events)

    def plant(self, url: str, clicks: int) -> None:
        query = sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(sql.Identifier("state", self.compiled.table))
        self.lab.connection.execute(query, (url, clicks))

    def rows(self) -> dict[str, int]:
        query = sql.SQL("SELECT url, clicks FROM {}").format(sql.Identifier("state", self.compiled.table))
        return {str(url): int(str(clicks)) for url, clicks in self.lab.connection.execute(query).fetchall()}


@pytest.fixture
def ground(lab: Lab, platform: Settings) -> Iterator[Ground]:
    topics.apply(platform, load_events())
    click(platform, "before")
    ends = topics.end_offsets(platform, [TOPIC])
    with open_catalog(platform) as catalog:
        ensure(catalog, lab.types[TOPIC], ends.ids[TOPIC], ends.offsets[TOPIC])
    compiled = lab.compiled(f"v{uuid.uuid4().hex[:8]}", PER_URL)
    table.deploy(lab.connection, compiled)
    begin = Positions({TOPIC: dict.fromkeys(ends.offsets[TOPIC], 0)}, ends.ids)
    merge.apply(lab.connection, compiled, Merge(begin, ends, Staged((), 0, 0)))
    yield Ground(lab, compiled, Rebuilder(lab.spark, lab.connection, Advancer(platform, lab.types), compiled))
    with open_catalog(platform) as catalog:
        catalog.drop_table(identifier(TOPIC))


def click(settings: Settings, url: str) -> None:
    producer = Producer(settings.kafka())
    event = {"event_id": "e", "occurred_at": "2026-03-01T00:00:00Z", "visitor_id": "v", "search_id": "s", "url": url}
    producer.produce(TOPIC, json.dumps(event).encode(), "v")
    assert producer.flush(30) == 0


def test_a_merge_that_comes_before_the_lock_is_kept(ground: Ground) -> None:
    """The archive never has the two clicks; the stream merges them after the repair has begun, and is not held up."""
    ground.plant("wrong and clicked", 7)
    ground.plant("wrong", 7)
    assert compare(ground.rebuilder).extra == 2
    settings, begin = ground.lab.settings, ground.stands()
    click(settings, "wrong and clicked")
    click(settings, "only clicked")
    late = Merge(begin, ground.ends(), ground.staged(begin, ground.ends()))

    with connect(settings, autocommit=True) as streaming, ThreadPoolExecutor(1) as pool:
        with streaming.transaction():
            merge.lock(streaming, ground.compiled)
            repairing = pool.submit(repair, ground.rebuilder)
            until(lambda: _require_waiting(settings), 60, "the repair to wait for the lock")
            merge.apply(streaming, ground.compiled, late)
        assert repairing.result(60) == 2

    assert ground.rows() == {"wrong and clicked": 1, "only clicked": 1}
    assert ground.stands() == ground.ends()
    left = ground.lab.connection.execute(sql.SQL("SELECT count(*) FROM {}").format(stage.table(ground.compiled)))
    assert left.fetchone() == (0,)


def test_a_record_that_is_set_aside_for_no_reason_is_a_difference(ground: Ground) -> None:
    """Stream and rebuild leave it out alike, so that no row differs."""
    topic, partition = next(place for place in ground.ends().partitions() if ground.ends().at(*place))
    asked, advancer = Request(from_raw=True), ground.rebuilder.advancer
    merge.exclude(ground.lab.connection, ground.compiled, [Excluded(topic, partition, 0, "no reason")])

    found = reconcile(ground.lab.spark, advancer, ground.compiled, asked)
    assert (found.verdict, found.missing + found.extra + found.different) == ("DIFFERENT", 0)
    assert f"set aside on which the transform does not fail: {topic} {partition}:0. Delete" in found.reason
    assert exit_code([found]) == 1
    kept = ground.lab.connection.execute("SELECT verdict FROM truelog.reconciliation WHERE id = %s", (found.id,))
    assert kept.fetchone() == ("DIFFERENT",)

    ground.lab.connection.execute("DELETE FROM truelog.exclusion WHERE view = %s", (ground.compiled.name,))
    assert reconcile(ground.lab.spark, advancer, ground.compiled, asked).equal


def _require_waiting(settings: Settings) -> None:
    """Asked anew each time: within a transaction PostgreSQL answers as it did first."""
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE'"
    with connect(settings) as connection:
        if connection.execute(query).fetchone() is None:
            raise ServiceDown("it does not wait yet")
