"""The events of the archive, a stream and a comparison as they run: one graph, and no server can hold a stream up."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.deadline import deadline
from tests.library.lineage.judged_events import Node, require_valid, walk
from tests.library.listener import HANGS, Listener, listening
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic
from truelog.archive.table import archived_positions
from truelog.lineage import dataset
from truelog.lineage.dataset import Dataset
from truelog.lineage.sender import sender_of
from truelog.log import topics
from truelog.support.settings import Settings

VIEW, TOPIC = "page_views", "page_view"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


@pytest.fixture
def world(platform: Settings, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A platform with one view, whose processes report to the listener."""
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", str(copy_views(tmp_path, VIEW)))
    monkeypatch.setenv("TRUELOG_OPENLINEAGE_URL", listener.url)
    monkeypatch.setenv("TRUELOG_ARCHIVE_TRIGGER_SECONDS", "1")
    return World(platform, Traffic(platform))


@contextmanager
def running(world: World, script: str) -> Iterator[Application]:
    application = start(world.settings, script)
    try:
        yield application
    finally:
        application.die()


def test_one_graph_leads_from_the_topic_to_the_view(
    world: World, spark: SparkSession, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUELOG_OPENLINEAGE_RUNNING_SECONDS", "0.001")
    monkeypatch.setenv("TRUELOG_OPENLINEAGE_END_SECONDS", str(deadline(30)))
    world.traffic.send(100)
    with running(world, "archive.py") as archive, running(world, "stream.py") as stream:
        world.catch_up(stream, VIEW)
        archive.wait(lambda: _is_archived(world.settings), 90, "the archive of all page views")
        assert Batch(spark).reconcile(VIEW).equal
        sender = sender_of(Settings())
        assert sender is not None
        assert sender.flush(deadline(30))
        assert (stream.end(), archive.end()) == (0, 0)

    for event in listener.taken:
        require_valid(event)
    archived, streamed, compared = (_of(listener, each) for each in ("archive", "stream", "reconcile"))
    made = (dataset.topic(world.settings, TOPIC), dataset.archive_table(world.settings, TOPIC))
    topic, table, view = (_node(each) for each in (*made, dataset.view(world.settings, VIEW)))
    assert walk(streamed, topic) == {topic, view}
    assert walk(archived, topic) == {topic, table}
    assert walk([*archived, *compared], topic) == {topic, table, view}
    assert view not in walk([*_renamed(archived, table), *compared], topic), "a planted name of one origin alone"

    for events, among in ((archived, {"RUNNING"}), (streamed, {"RUNNING"}), (compared, set())):
        states = [each["eventType"] for each in events if each["job"]["name"].endswith(TOPIC) or events is not archived]
        assert (states[0], states[-1]) == ("START", "COMPLETE")
        assert {*states[1:-1]} == among
    [test] = compared[-1]["run"]["facets"]["test"]["tests"]
    assert (test["status"], test["params"]["verdict"]) == ("pass", "EQUAL")
    origins = streamed[0]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [each["field"] for each in origins["host"]["inputFields"]] == ["url"]


def test_a_stream_goes_on_and_ends_beside_a_server_that_hangs(
    world: World, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream would wait for an hour for each answer."""
    monkeypatch.setenv("TRUELOG_OPENLINEAGE_ANSWER_SECONDS", "3600")
    listener.mood = HANGS
    world.traffic.send(100)
    with running(world, "stream.py") as stream:
        world.catch_up(stream, VIEW)
        stream.wait(lambda: bool(listener.asked), 30, "a request to the server")
        assert stream.end() == 0
    assert (len(listener.asked), listener.taken) == (1, [])
    world.require_total(VIEW)


def _is_archived(settings: Settings) -> bool:
    return archived_positions(settings, [TOPIC]).covers(topics.end_offsets(settings, [TOPIC]))


def _of(listener: Listener, origin: str) -> list[dict[str, Any]]:
    return [each for each in listener.taken if each["job"]["name"].startswith(f"{origin}.")]


def _node(made: Dataset) -> Node:
    return made.namespace, made.name


def _renamed(events: list[dict[str, Any]], table: Node) -> list[Mapping[str, Any]]:
    """The events with another name of this table."""
    other = {"namespace": table[0], "name": f"{table[1]}-renamed"}
    return [
        {**event, "outputs": [each | other if each["name"] == table[1] else each for each in event["outputs"]]}
        for event in events
    ]
