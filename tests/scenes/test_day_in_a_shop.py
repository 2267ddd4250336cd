"""A day in a shop: subsystems run under traffic and are killed. At closing time, each view equals its rebuild.

A new subsystem adds a step here, not a scene of its own. A step finds the shop open and leaves it open, so each step
can also run alone. The steps run in their order in this file, and the last one compares.
"""

import json
import os
import signal
from collections.abc import Iterator

import pytest

import runtime
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.command import answer, process_answer, truelog
from tests.deadline import until
from tests.library.relay.read_topic import table
from tests.scenes.batch import Batch
from tests.scenes.collector_client import page_view
from tests.scenes.restarts import pids, require_restarted
from tests.scenes.shop import Shop
from truelog.archive.table import archived_positions
from truelog.log import topics
from truelog.services import registry
from truelog.support.errors import ServiceDown
from truelog.views import catalogue

SERVICES = tuple(each.name for each in registry.SERVICES)
# Sketches, a Group of steps, and a Join. `test_real_input` streams sums and other Groups, and `test_recompute` streams
# sums that expire.
VIEWS = {name: catalogue.load_view(name) for name in ("page_audience", "document", "home_timeline")}
BATCH_ONLY = "also_bought"  # which a stream leaves out
READ = {topic for view in VIEWS.values() for topic in view.reads}


@pytest.fixture(scope="module")
def shop(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """An open shop, whose first visitors were served."""
    folder = copy_views(tmp_path_factory.mktemp("views"), *VIEWS, BATCH_ONLY)
    with known(world.settings, views_folder=str(folder)):
        runtime.up(world.settings, SERVICES, tethered=True)
        opened = Shop(world, VIEWS)
        opened.application("archive")
        opened.serve()
        yield opened
        opened.close()


def test_visitors_are_served_although_the_services_are_killed(shop: Shop) -> None:
    """Visitors send again what was not acknowledged, and each acknowledged event is in the log."""
    before = pids(shop.world.settings, *SERVICES)
    with shop.serving():
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: require_restarted(shop.world.settings, before), 60, "the killed services")
    shop.serve()
    assert shop.lost() == {}


def test_the_stream_is_killed_between_merges(shop: Shop) -> None:
    """Some views have merged a batch, and others have not. The successor continues each view from its positions."""
    shop.catch_up().die()
    before = {view: shop.world.positions(view) for view in VIEWS}
    shop.killed("stream", "merge.committed:2:kill")
    assert {shop.world.positions(view) == before[view] for view in VIEWS} == {True, False}
    shop.catch_up()
    shop.world.require_total("page_audience")


def test_the_archive_is_killed_before_it_commits(shop: Shop) -> None:
    """The successor appends each record once. The last step proves it, because it rebuilds from the archive."""
    shop.killed("archive", "archive.before_commit:2:kill")
    ends = topics.end_offsets(shop.world.settings, READ)
    shop.application("archive").wait(
        lambda: archived_positions(shop.world.settings, READ).covers(ends), 120, "the records in the archive"
    )


def test_a_bad_event_is_kept_with_its_reason(shop: Shop) -> None:
    """The good event beside it goes on."""
    response = shop.client.post([page_view(1), page_view(2, type="surprise")])
    assert (response.status, len(response.body["good"]), len(response.body["bad"])) == (207, 1, 1)
    [letter] = answer("dead-letters", "list", "--type", "surprise")["dead_letters"]
    assert (letter["field"], letter["reason"].partition(";")[0]) == ("type", "not an event type")


def test_the_lag_of_every_reader_is_known(shop: Shop) -> None:
    shop.serve()
    shop.catch_up()
    until(_require_lag_is_ok, 90, "a good verdict about each reader")


def test_the_output_topic_of_a_timeline_has_its_rows(shop: Shop) -> None:
    """The relay was killed with the other services. A reader who begins with nothing arrives at the table."""
    shop.serve()
    shop.catch_up()
    query = "SELECT row_to_json(t)::text FROM views.home_timeline AS t"

    def require_published() -> None:
        rows = {json.dumps(json.loads(row)) for (row,) in shop.world.ask(query)}
        read = {json.dumps(json.loads(row)) for row in table(shop.world.settings, "view.home_timeline.v1").values()}
        if not rows or rows != read:
            raise ServiceDown(f"the table has {len(rows)} rows, and the topic {len(read)}")

    until(require_published, 60, "the rows of the output topic")


def test_at_closing_time_every_view_equals_its_rebuild(shop: Shop, batch: Batch) -> None:
    """The rebuild reads raw bytes. One view is proved again from the bucket alone, without the database."""
    shop.serve()
    assert shop.catch_up().end() == 0
    shop.world.require_total("page_audience")
    batch.require_equal_from_raw(tuple(VIEWS))
    proved = process_answer("verify", "latest:document", TRUELOG_DATABASE_PORT="1", TRUELOG_DATABASE_PASSWORD="wrong")
    assert (proved["answer"], proved["rows"]) == ("EQUAL", shop.world.ask("SELECT count(*) FROM views.document")[0][0])


def _require_lag_is_ok() -> None:
    shown = json.loads(truelog("lag", "--json").stdout)["lag"]
    readers = {row["reader"] for row in shown}
    if not readers >= {*VIEWS, "archive"} or {row["verdict"] for row in shown} != {"OK"}:
        raise ServiceDown(str(shown))
