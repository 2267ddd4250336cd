"""One bad topic stops the views that read it and nothing else, and a re-created topic never reaches a table.

The scenes have an event type of their own, because they delete its topic.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.deadline import deadline
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.declared import EVENT, VIEW, copy_events, removed_at_the_end
from truelog.alerts.sources import declarations as alert_declarations
from truelog.archive.table import archived_positions, identifier, open_catalog
from truelog.control import event_files
from truelog.kernel import clock
from truelog.log import topics
from truelog.schema.loading.events import load_event
from truelog.support.settings import KafkaUser, Settings
from truelog.versions.build import build_version

TOPIC, OF_PARCELS = "bad_parcel", "bad_parcels"
EVENT_JSON = b'{"event_id":"%d","occurred_at":"2026-01-01T00:00:00Z","parcel":"p","grams":%d}'


@pytest.fixture
def declared(world: World, archives: list[Application], tmp_path: Path) -> Iterator[Settings]:
    """The platform with one more event type and only the view that reads it."""
    for application in archives:
        application.die()
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / f"{OF_PARCELS}.py").write_text(VIEW.format(event=TOPIC))
    events = copy_events(tmp_path)
    (events / f"{TOPIC}.py").write_text(EVENT)
    more = {"events_folder": events, "views_folder": folder, "topic_check_seconds": 1, "archive_trigger_seconds": 1}
    with known(world.settings, **more) as settings, removed_at_the_end(settings, TOPIC, OF_PARCELS):
        assert event_files.register_files(settings) == {}
        yield settings


def send(settings: Settings, grams: int) -> None:
    producer = Producer(settings.kafka())
    producer.produce(TOPIC, EVENT_JSON % (grams, grams), b"p", partition=0)
    assert producer.flush(deadline(30)) == 0


def stamp(settings: Settings, by: str, topic: str = TOPIC) -> None:
    entry = ConfigEntry("message.timestamp.type", by, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    broker = topics.client(settings, KafkaUser.ADMIN)
    broker.incremental_alter_configs([resource])[resource].result()


def create_again(settings: Settings) -> None:
    broker = topics.client(settings, KafkaUser.ADMIN)
    broker.delete_topics([TOPIC])[TOPIC].result()
    topics.sync_topics(settings, {TOPIC: load_event(settings.events_folder / f"{TOPIC}.py")})
    assert event_files.register_files(settings) == {}


def grams(world: World) -> list[tuple[int]]:
    if world.ask("SELECT to_regclass(%s)", f"views.{OF_PARCELS}") == [(None,)]:
        return []
    return [(int(total),) for (total,) in world.ask(f"SELECT grams FROM views.{OF_PARCELS}")]


def suspended(world: World) -> set[tuple[str, str]]:
    return {*world.ask("SELECT topic, application FROM truelog.topic_status")}


def state(world: World, view: str = OF_PARCELS) -> tuple[str, str]:
    [(found, reason)] = world.ask("SELECT state, reason FROM truelog.standing WHERE view = %s AND declared", view) or [
        ("", "")
    ]
    return found, reason


def versions(world: World) -> list[int]:
    """The versions of the view."""
    return [
        version for (version,) in world.ask("SELECT version FROM truelog.view WHERE view = %s ORDER BY 1", OF_PARCELS)
    ]


def epochs(world: World) -> list[tuple[str, int]]:
    return world.ask("SELECT application, epoch FROM truelog.lease ORDER BY 1")


@pytest.mark.nightly
def test_a_bad_topic_stops_its_views_alone_and_returns_without_a_restart(
    world: World, declared: Settings, batch: Batch
) -> None:
    copy_views(declared.views_folder, "page_views")
    archive, stream = start(declared, "archive.py"), start(declared, "stream.py")
    send(declared, 1)
    stream.wait(lambda: world.caught_up("page_views") and grams(world) == [(1,)], 90, "both views")
    archive.wait(lambda: "archiving from" in archive.tail(), 90, "the archive")
    before = epochs(world)

    stamp(declared, "CreateTime")
    both = {(TOPIC, "archive"), (TOPIC, "stream")}
    stream.wait(lambda: suspended(world) == both, 60, "the bad topic to be suspended")
    stream.wait(lambda: state(world)[0] == "STALLED", 60, "its view to stall")
    assert f"{TOPIC} is suspended" in state(world)[1]
    assert "CreateTime" in state(world)[1]
    require_others_continue(world, declared, archive, stream)

    stamp(declared, "LogAppendTime")
    stream.wait(lambda: suspended(world) == set(), 60, "the topic to return")
    require_bad_ticks_stop_nothing_else(world, declared, archive, stream)
    send(declared, 2)
    stream.wait(lambda: grams(world) == [(3,)], 60, "its view")
    assert state(world) == ("UP_TO_DATE", "")

    create_again(declared)
    archive.wait(lambda: suspended(world) == {(TOPIC, "archive")}, 60, "the archive to suspend the new topic")
    stream.wait(lambda: state(world)[0] == "STALLED", 60, "its view to stall")
    assert "created again" in state(world)[1]
    require_others_continue(world, declared, archive, stream)

    with open_catalog(declared) as catalog:
        catalog.drop_table(identifier(TOPIC))
    view = declared.views_folder / f"{OF_PARCELS}.py"
    view.write_text(view.read_text().replace("View(reads", "View(version=2, reads"))
    send(declared, 4)
    require_moved(world, declared, (archive, stream), batch)
    assert epochs(world) == before
    assert [stream.end(), archive.end()] == [0, 0]


def require_moved(world: World, declared: Settings, running: tuple[Application, Application], batch: Batch) -> None:
    """Readers move to a version that reads the new topic, although no version has the records of the old one."""
    archive, stream = running
    stream.wait(lambda: suspended(world) == set() and versions(world) == [1, 2], 60, "the new topic and version")
    ends = topics.end_offsets(declared, [TOPIC])
    archive.wait(lambda: archived_positions(declared, [TOPIC]).covers(ends), 60, "the archive of the new topic")
    built = build_version(batch.context, batch.compiled(OF_PARCELS), lambda _: None, moves=True, doer="test")
    assert (built.moved, built.reason, grams(world)) == (True, "", [(4,)])


def require_bad_ticks_stop_nothing_else(
    world: World, settings: Settings, archive: Application, stream: Application
) -> None:
    stamp(settings, "CreateTime", clock.TOPIC)
    try:
        both = {(clock.TOPIC, "archive"), (clock.TOPIC, "stream")}
        stream.wait(lambda: suspended(world) == both, 60, "the ticks to be suspended")
        [alert] = alert_declarations.observe(settings).findings
        assert (alert.key, "CreateTime" in alert.cause) == (f"topic_suspended/{clock.TOPIC}", True)
        require_others_continue(world, settings, archive, stream)
    finally:
        stamp(settings, "LogAppendTime", clock.TOPIC)
    stream.wait(lambda: suspended(world) == set(), 60, "the ticks to return")


def require_others_continue(world: World, settings: Settings, archive: Application, stream: Application) -> None:
    world.traffic.send(20)
    ends = topics.end_offsets(settings, ["page_view"])
    stream.wait(lambda: world.positions("page_views").covers(ends), 60, "the other view")
    assert state(world, "page_views") == ("UP_TO_DATE", "")
    archive.wait(lambda: archived_positions(settings, ["page_view"]).covers(ends), 60, "the other topic's archive")


@pytest.mark.nightly
def test_a_topic_that_is_created_again_between_planning_and_reading_is_not_merged(
    world: World, declared: Settings
) -> None:
    """The stream reads the planned offsets from the new topic, which has more records than the old topic had."""
    send(declared, 1)
    stream = start(declared, "stream.py", fault="batch.begun:2:stop")
    stream.wait(lambda: grams(world) == [(1,)], 90, "the first record")
    at = world.positions(OF_PARCELS)
    send(declared, 2)
    stream.wait_fault()
    _replace_and_wake(declared, stream)
    stream.wait(lambda: state(world)[0] == "STALLED", 60, "the view to stall")
    assert "created again" in state(world)[1]
    assert (world.positions(OF_PARCELS), grams(world)) == (at, [(1,)])
    assert stream.end() == 0


@pytest.mark.nightly
def test_a_topic_that_is_created_again_between_reading_and_archiving_is_not_archived(
    world: World, declared: Settings
) -> None:
    send(declared, 1)
    archive = start(declared, "archive.py", fault="archive.files_written:1:stop")
    archive.wait_fault()
    _replace_and_wake(declared, archive)
    archive.wait(lambda: suspended(world) == {(TOPIC, "archive")}, 60, "the topic to be suspended")
    with open_catalog(declared) as catalog:
        assert catalog.load_table(identifier(TOPIC)).scan().to_arrow().num_rows == 0
    assert archive.end() == 0


def _replace_and_wake(settings: Settings, application: Application) -> None:
    create_again(settings)
    for each in (8, 16, 32):
        send(settings, each)
    application.resume()
