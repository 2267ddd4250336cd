"""Two environments on one set of servers, each with an archive and a stream. One is destroyed, and the other goes on.

Both capture the same table of one database. A third one reads the events of the first, with its own archive and stream.
`tests/library/runtime/test_namespace.py` tests each kind of name without Spark.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import runtime
from runtime import namespace
from tests.beds.world import World
from tests.command import process_answer
from tests.deadline import until
from tests.scenes.applications import Application, start
from tests.scenes.traffic import Traffic, in_the_log
from tests.servers import STORES, SharedServers, drop_database
from truelog.capture import slot, source_table
from truelog.log import topics
from truelog.support.errors import ServiceDown

pytestmark = pytest.mark.nightly

VIEW = "page_views"


@pytest.fixture(scope="module")
def worlds(servers: SharedServers) -> Iterator[dict[str, World]]:
    made = dict[str, World]()
    with ExitStack() as stack:
        for name in ("red", "blue"):
            environment = servers.environment(namespace=name, capture=True, source_database="source_of_both")
            stack.callback(environment.end)
            settings = environment.provide(*STORES)
            stack.callback(namespace.destroy, settings)
            stack.callback(runtime.down, settings)
            made[name] = World(settings, Traffic(settings, seed=len(name)))
        yield made
    drop_database(made["blue"].settings, made["blue"].settings.source_database)


def running(world: World) -> tuple[Application, Application]:
    home = str(world.settings.home)
    archive = start(world.settings, "archive.py", TRUELOG_HOME=home, TRUELOG_ARCHIVE_TRIGGER_SECONDS="2")
    return archive, start(world.settings, "stream.py", TRUELOG_HOME=home)


def ask(world: World, *words: str) -> Any:
    return process_answer(*words, TRUELOG_HOME=str(world.settings.home))


def require_equal(world: World) -> int:
    """The view has each event once, and equals its rebuild. Return how many rows it has."""
    world.require_total(VIEW)
    [found] = ask(world, "reconcile", VIEW)["views"]
    assert found["verdict"] == "EQUAL"
    return int(found["rows"])


def change(world: World, number: int) -> None:
    """Insert a row into the captured table."""
    with psycopg.connect(**world.settings.database() | {"dbname": world.settings.source_database}) as session:
        session.execute("INSERT INTO customers (id, name) VALUES (%s, 'Ann')", (number,))


def require_captured(world: World, number: int) -> None:
    """Wait until the environment's topic has the row."""

    def captured() -> None:
        values = in_the_log(world.settings, "customers")
        if not any(f'"id":{number},'.encode() in (value or b"") for value in values):
            raise ServiceDown(f"{number} is not among {values}")

    until(captured, 90, "the row of the captured table")
    types = source_table.captured_types(world.settings).values()
    assert {slot.verdict(each, 2**30)[0] for each in slot.captures(world.settings, types)} == {slot.Verdict.OK}


def test_both_capture_one_table(worlds: dict[str, World]) -> None:
    for world in worlds.values():
        runtime.up(world.settings, ("connect",), tethered=True)
    change(worlds["red"], 1)
    for world in worlds.values():
        require_captured(world, 1)


@pytest.fixture
def reader(servers: SharedServers, worlds: dict[str, World]) -> Iterator[World]:
    """An environment that reads the events of `red`. It ends with the test, and takes nothing of `red` with it."""
    red = worlds["red"].settings
    environment = servers.environment(namespace="green", reads_namespace="red", reads_bucket=red.s3_bucket)
    settings = environment.provide(*STORES)
    before = namespace.holdings(red).topics
    yield World(settings, worlds["red"].traffic)
    runtime.down(settings)
    namespace.destroy(settings)
    environment.end()
    assert namespace.holdings(red).topics == before


def rows(world: World) -> list[tuple[Any, ...]]:
    return world.ask("SELECT minute, host, page, browser, views, bytes FROM views.page_views ORDER BY 1, 2, 3, 4")


def test_a_stream_on_the_events_of_another_environment_equals_its_rebuild(
    worlds: dict[str, World], reader: World, one_view: None
) -> None:
    red = worlds["red"]
    red.traffic.send(100)
    applications = running(reader)
    reader.catch_up(applications[1])
    red.traffic.send(50)
    reader.catch_up(applications[1])
    assert require_equal(reader) > 0
    assert [each.end() for each in applications] == [0, 0]
    ends = topics.end_offsets(red.settings, ["page_view"])
    assert reader.positions(VIEW).only(["page_view"]).offsets == ends.offsets
    before = rows(reader)
    applications = running(red)
    red.catch_up(applications[1])
    assert require_equal(red) > 0
    assert [each.end() for each in applications] == [0, 0]
    assert rows(red) == before


def test_one_is_destroyed_and_the_view_of_the_other_goes_on(worlds: dict[str, World], one_view: None) -> None:
    for events, world in enumerate(worlds.values(), 2):
        world.traffic.send(300 * events)
        applications = archive, stream = running(world)
        world.catch_up(stream)
        assert require_equal(world) > 0
        assert [each.end() for each in applications] == [0, 0]
    red, blue = worlds.values()
    assert red.counted(VIEW) < blue.counted(VIEW)
    archive, stream = running(blue)
    blue.catch_up(stream)
    runtime.down(red.settings)
    with blue.traffic.arriving(10, 0.2):
        assert ask(red, "namespace", "destroy", "--confirm", "red")["destroyed"]
    blue.catch_up(stream)
    assert require_equal(blue) > 0
    assert (archive.process.poll(), stream.process.poll()) == (None, None)
    assert not any(namespace.holdings(red.settings).as_dict().values())
    change(blue, 2)
    require_captured(blue, 2)
