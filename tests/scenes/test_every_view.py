"""All views under the shop's traffic. The stream is killed between merges and continued on a cluster.

Afterwards each view equals its rebuild, its rows follow from their events, and its past can be read.
`test_day_in_a_shop` asks the first of these of three views.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from psycopg import sql

from tests.beds.world import World, known
from tests.builders.changes import change
from tests.chosen_views import copy_views
from tests.command import process_answer
from tests.deadline import deadline, until
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.exposure import listening_addresses
from tests.scenes.traffic import in_the_log
from truelog import Group
from truelog.archive import analyst
from truelog.archive.table import archived_positions
from truelog.exports.query import RowQuery
from truelog.history.as_of import open_past
from truelog.history.explain import Page, explain
from truelog.history.explanation import Verdict
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender
from truelog.schema.names import TICKS
from truelog.services.ticks import service as ticks
from truelog.support import timestamps
from truelog.support.errors import ServiceDown
from truelog.support.process import is_alive
from truelog.support.settings import PROJECT, KafkaUser
from truelog.tables.table import STATUS
from truelog.traffic.generator import generate
from truelog.views import catalogue

ALL_VIEWS = catalogue.load_all_views()
VIEWS = {name: view for name, view in ALL_VIEWS.items() if not view.batch_only}
TOPICS = {topic for view in ALL_VIEWS.values() for topic in view.reads}
ROWS, EVENTS = 2, 5  # rows that are explained in each view, by their last events
BUILT = "also_bought"  # batch-only
EVERY_ROW = sql.SQL("true")
CLUSTER_SECRET = "5ec2e7" * 8


@pytest.fixture(scope="module")
def ticking(world: World) -> Iterator[None]:
    """Advance the clock, so that views with limited retention drop old rows."""
    service = start(world.settings, str(Path(ticks.__file__)))
    service.kept = True
    yield
    service.die()


def shop(world: World, seed: int) -> None:
    """Send current events, and events that arrive later than `request_rates` keeps rows."""
    now = datetime.now(UTC)
    send_rest(world, seed, now)
    with KafkaSender(world.settings, TOPICS) as sender:
        for begin in (now, now - timedelta(days=8)):
            for record in generate(seed=seed, begin=begin, rate=1_000, seconds=2, social=0.5):
                sender.send(record)


def send_rest(world: World, seed: int, now: datetime) -> None:
    """What the generator does not send: a change of a captured table, a payment, a rule and a search."""
    at = {"occurred_at": timestamps.to_text(now)}
    about = at | {"begins": "{}", "verb": "set"}
    paid = at | {"verb": "succeeded", "customer_id": str(seed), "order_id": f"o{seed}", "country": "NO", "amount": 100}
    rule = {"rule": "sold", "by": "symbol", "pattern": "a", "within": "1 minute", "steps": {"a": {"on": "price"}}}
    records = {
        "customers": change("updated", {"id": seed, "name": "Ann", "city": f"city {seed}"}, lsn=seed, at=now),
        "payment": json.dumps(paid | {"event_id": f"p{seed}"}).encode(),
        "rule": json.dumps(about | {"event_id": f"r{seed}", "rule": "sold", "definition": json.dumps(rule)}).encode(),
        "stored_search": json.dumps(
            about | {"event_id": f"s{seed}", "search": "mine", "event_type": "post", "query": "my"}
        ).encode(),
    }
    producer = Producer(world.settings.kafka(KafkaUser.ADMIN))
    refused = list[object]()
    for topic, value in records.items():
        producer.produce(topic, value, b"a key", 0, lambda error, _: refused.append(error) if error else None)
    assert (producer.flush(deadline(30)), refused) == (0, [])


def catch_up(world: World, stream: Application, views: Iterable[str]) -> None:
    for view in views:
        world.catch_up(stream, view, VIEWS[view].reads, 300)  # all views begin at once


def kill_between_merges(world: World, folder: Path, views: Iterable[str]) -> None:
    """Kill a stream of these views when some of them have merged a batch and others have not."""
    copy_views(folder, *views, BUILT)
    shop(world, seed=1)
    before = {view: world.positions(view) for view in views}
    stream = start(world.settings, "stream.py", fault="merge.committed:2:kill", TRUELOG_VIEWS_FOLDER=str(folder))
    stream.wait_kill()
    assert {world.positions(view) == before[view] for view in views} == {True, False}
    shop(world, seed=2)


@pytest.mark.nightly
@pytest.mark.usefixtures("ticking")
@pytest.mark.timeout(deadline(1_800))  # every view is rebuilt from raw bytes
def test_killed_between_merges_and_continued_by_executors(
    world: World, archive: Application, batch: Batch, *, spark_home: Path, tmp_path: Path
) -> None:
    kill_between_merges(world, tmp_path, VIEWS)
    with known(world.settings, spark_secret=CLUSTER_SECRET, spark_master="local-cluster[2,1,1024]"):
        survivor = start(world.settings, "stream.py", SPARK_HOME=str(spark_home), TRUELOG_VIEWS_FOLDER=str(tmp_path))
        catch_up(world, survivor, VIEWS)
    family = [each for each in psutil.Process(survivor.process.pid).children(recursive=True) if is_alive(each)]
    assert not [word for each in family for word in each.cmdline() if CLUSTER_SECRET in word]
    assert sum("CoarseGrainedExecutorBackend" in word for each in family for word in each.cmdline()) == 2
    assert {address for each in family for address, _ in listening_addresses(each)} == {"127.0.0.1"}
    assert survivor.end() == 0
    until(lambda: require_none(family), 30, "the end of its executors")

    for view in ("page_views", "page_audience"):
        world.require_total(view)
    batch.require_equal_from_raw(tuple(VIEWS))
    require_explained(world, batch, VIEWS)
    require_rows_of_the_past(world, archive, batch, VIEWS)


@pytest.mark.nightly
@pytest.mark.usefixtures("ticking")
def test_a_batch_only_view_is_built_whole_or_not_at_all(world: World, archive: Application, batch: Batch) -> None:
    """If the job is killed before it commits, readers see no row of the view."""
    shop(world, seed=1)
    ends = topics.end_offsets(world.settings, ["cart_event"])
    archive.wait(lambda: archived_positions(world.settings, ["cart_event"]).covers(ends), 60, "the end of the log")
    start(world.settings, "answer.py", "--batch-only", fault="answer.replaced:1:kill").wait_kill()
    assert world.ask(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("views", BUILT))) == [(0,)]
    built = start(world.settings, "answer.py", "--batch-only")
    assert built.wait_death(180) == 0, built.tail()
    batch.require_equal_from_raw([BUILT])
    [(customers,)] = world.ask("SELECT max(customers) FROM views.also_bought WHERE product <> also")
    assert customers > 1


def require_explained(world: World, batch: Batch, views: Iterable[str]) -> None:
    """The last of the events behind a row leads to the row that readers see, or to the rows of its group."""
    for view in views:
        _require_explained(world, batch, view)


def _require_explained(world: World, batch: Batch, view: str) -> None:
    declared = VIEWS[view]
    names = declared.by if isinstance(declared, Group) else declared.key
    columns = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    some = sql.SQL("SELECT {columns} FROM {} ORDER BY md5(ROW({columns})::text) LIMIT {}")
    for values in world.ask(some.format(sql.Identifier("views", view), ROWS, columns=columns)):
        given = dict(zip(names, values, strict=True))
        found = explain(batch.context, batch.compiled(view), given, Page(EVENTS))
        assert found.verdict is Verdict.EQUAL, (view, given, found.reason)
        same = sql.SQL("ROW({}) IS NOT DISTINCT FROM ROW({})").format(
            columns, sql.SQL(", ").join(map(sql.Literal, values))
        )
        assert Counter(map(plain, found.events[-1].rows)) == rows(world, view, same), (view, given)
        assert len(found.events) == min(EVENTS, found.total)


def require_rows_of_the_past(world: World, archive: Application, batch: Batch, views: Iterable[str]) -> None:
    """After further events, the views of a moment ago are what they were then."""
    then, noon = {view: rows(world, view) for view in views}, datetime.now(UTC)
    shop(world, seed=3)
    ends = topics.end_offsets(world.settings, (*TOPICS, TICKS))
    archive.wait(lambda: archived_positions(world.settings, ends.offsets).covers(ends), 60, "the archive")
    for view, expected in then.items():
        with open_past(batch.context, batch.compiled(view), noon) as past:
            past_rows = past.rows(RowQuery(view, limit=None))
            assert Counter(plain(json.loads(row)) for row in past_rows) == expected, view
    told = process_answer("query", "page_audience", "--as-of", noon.isoformat(), "--limit", "1")
    assert (told["version"], len(told["rows"])) == (VIEWS["page_audience"].version, 1)
    assert datetime.fromisoformat(told["tick"]) <= noon


def rows(world: World, view: str, condition: sql.Composable = EVERY_ROW) -> Counter[str]:
    query = sql.SQL("SELECT row_to_json(v) FROM {} AS v WHERE {}").format(sql.Identifier("views", view), condition)
    return Counter(plain(row) for (row,) in world.ask(query))


def plain(row: Mapping[str, Any]) -> str:
    """A row as text, without the column that depends on the clock."""
    return json.dumps({name: value for name, value in row.items() if name != STATUS})


@pytest.mark.nightly
def test_the_archive_says_what_was_removed_just_before_a_checkout(world: World, archive: Application) -> None:
    """The query is in docs/views.md. The answer is that of a loop over the log."""
    shop(world, seed=3)
    ends = topics.end_offsets(world.settings, ["cart_event"])
    archive.wait(lambda: archived_positions(world.settings, ["cart_event"]).covers(ends), 60, "the end of the log")
    [query] = re.findall(r"```sql\n(SELECT removed\.product.*?)```", (PROJECT / "docs/views.md").read_text(), re.DOTALL)
    with analyst.run_query(world.settings, query) as rows:
        found = rows.fetchall()
    carts = naive_removals(in_the_log(world.settings, "cart_event"))
    counted = [(product, len(each)) for product, each in carts.items()]
    assert found == sorted(counted, key=lambda row: (-row[1], row[0]))[:10]
    assert len(found) > 3


def naive_removals(values: list[bytes | None]) -> dict[str, set[str]]:
    """The carts from which each product was removed at most five minutes before a later check-out."""
    removed, carts = defaultdict[str, list[tuple[str, datetime]]](list), defaultdict[str, set[str]](set)
    for event in (json.loads(value) for value in values if value is not None):
        cart, at = event["cart_id"], datetime.fromisoformat(event["occurred_at"])
        if event["verb"] == "removed":
            removed[cart].append((event["product"], at))
        if event["verb"] == "checked_out":
            for product, before in removed[cart]:
                if before > at - timedelta(minutes=5):
                    carts[product].add(cart)
    return carts


def require_none(family: list[psutil.Process]) -> None:
    if left := [each for each in family if is_alive(each)]:
        raise ServiceDown(str(left))
