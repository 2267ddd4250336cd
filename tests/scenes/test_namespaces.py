"""Two environments on one set of servers, each with an archive and a stream. One is destroyed, and the other goes on.

Both capture the same table of one database. A third one reads the events of the first, with its own archive and stream.
`tests/library/runtime/test_namespace.py` tests each kind of name without Spark.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import runtime
from runtime import namespace
from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import process_answer
from tests.deadline import until
from tests.library.forgetting.byte_search import places_with
from tests.scenes.applications import Application, start
from tests.scenes.leaving import NAME, Leaving
from tests.scenes.traffic import Traffic, in_the_log
from tests.servers import STORES, SharedServers, drop_database
from truelog.capture import slot, source_table
from truelog.log import topics
from truelog.storage.database import connect
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


@contextmanager
def reading(servers: SharedServers, source: World) -> Iterator[World]:
    """An environment that reads the events of `source`. Its end takes nothing of `source` with it."""
    read = source.settings
    reads = {"reads_namespace": read.namespace, "reads_bucket": read.s3_bucket}
    environment = servers.environment(namespace="green", **reads)
    settings = environment.provide(*STORES)
    before = namespace.holdings(read).topics
    yield World(settings, source.traffic)
    runtime.down(settings)
    namespace.destroy(settings)
    environment.end()
    assert namespace.holdings(read).topics == before


@pytest.fixture
def reader(servers: SharedServers, worlds: dict[str, World]) -> Iterator[World]:
    with reading(servers, worlds["red"]) as reader:
        yield reader


@pytest.fixture
def left(servers: SharedServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, World]]:
    """An environment that people leave, and another one, which reads its events. Both have a view of people."""
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(copy_views(tmp_path, "sessions")))
    environment = servers.environment(namespace="white")
    settings = environment.provide(*STORES)
    white = World(settings, Leaving(settings, people=2))
    with reading(servers, white) as reader:
        yield white, reader
    runtime.down(settings)
    namespace.destroy(settings)
    environment.end()


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


def named(world: World) -> list[str]:
    """Where the environment has the people who leave."""
    with connect(world.settings, autocommit=True) as connection:
        return places_with(world.settings, connection, [NAME], ["erasure"])


def test_people_who_are_forgotten_leave_the_environment_that_reads_too(left: tuple[World, World]) -> None:
    """The job of the DAG `forget` performs the erasure in the reader, whose archive and view had the people."""
    white, reader = left
    applications = [running(world) for world in left]
    white.traffic.send(200)
    Traffic(white.settings).send(100)
    for world, (archive, stream) in zip(left, applications, strict=True):
        world.read_all(archive, stream, "sessions")
        places = " ".join(named(world))
        assert ("state.sessions" in places, ".parquet" in places) == (True, True), places
    ask(white, "forget", *(word for number in range(2) for word in ("--subject", f"visitor_id={NAME}-{number}")))
    assert named(reader) != []
    [asked] = ask(white, "erasures", "list")["erasures"]
    job = start(reader.settings, "forget.py", TRUELOG_HOME=str(reader.settings.home))
    assert job.wait_death(240) == 0, job.tail()
    assert json.loads(job.tail().splitlines()[-1]) == {"erasures": [asked["id"]]}
    for world in left:
        assert named(world) == []
        [found] = ask(world, "reconcile", "sessions", "--from-raw")["views"]
        assert (found["verdict"], found["rows"] > 0) == ("EQUAL", True)
    assert [each.end() for pair in applications for each in pair] == [0] * 4


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
