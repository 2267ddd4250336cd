"""Adding an event type to a running platform is one file, and a broken file stops nothing."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

import runtime
from runtime import keeper
from tests.chosen_views import copy_views
from tests.command import truelog, truelog_process
from tests.scenes.applications import Application, start
from tests.scenes.batch import Batch
from tests.scenes.collector_client import Client
from tests.scenes.conftest import World, known
from tests.scenes.declared import EVENT, VIEW, copy_events, removed_at_the_end
from truelog.archive.archive_table import archived_positions, identifier, open_catalog
from truelog.log import topics
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until

NAME, BY_PARCEL = "parcel_scan", "scans_by_parcel"
LONG, LONGER = "a" * 70, "a" * 90
SERVICES = ("ticks", "collector", "lag")

log = logging.getLogger("truelog.scene")


@pytest.fixture
def live(world: World, archives: list[Application], tmp_path: Any) -> Iterator[Settings]:
    """The services and both applications, with folders for events and views that the scene changes."""
    for application in archives:
        application.die()
    folder = tmp_path / "views"
    folder.mkdir()
    copy_views(folder, "page_views")
    with (
        known(world.settings, events_folder=copy_events(tmp_path), views_folder=folder) as settings,
        removed_at_the_end(settings, NAME, BY_PARCEL),
    ):
        runtime.up(settings, SERVICES, tethered=True)
        yield settings
        for name in reversed(SERVICES):
            keeper.stop(settings, name)


def soon(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    def met() -> None:
        if not condition():
            raise ServiceDown("not yet")

    log.warning("%s: %.1f s", what, until(met, seconds, what))


def append(settings: Settings, event: dict[str, object]) -> None:
    """Write to the topic without the collector's checks."""
    producer = Producer({**settings.kafka(), "acks": "all"})
    producer.produce(NAME, json.dumps({name: value for name, value in event.items() if name != "type"}).encode())
    assert producer.flush(10) == 0


def scan(parcel: str, grams: int, **more: object) -> dict[str, object]:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    event_id = f"{parcel}-{time.monotonic_ns()}"
    return {"type": NAME, "event_id": event_id, "occurred_at": now, "parcel": parcel, "grams": grams, **more}


def test_a_new_event_type_is_one_file_and_a_broken_file_stops_nothing(world: World, live: Settings) -> None:
    running = start_both(live)
    running[1].wait(lambda: world.caught_up("page_views"), 90, "the first view")
    running[0].wait(lambda: "archiving from" in running[0].tail(), 90, "the archive")
    epochs = world.ask("SELECT application, epoch FROM truelog.lease ORDER BY 1")
    sender = Client(live, live.producer_key.get_secret_value())
    assert sender.post(scan("a", 1)).status == 422

    began = time.monotonic()
    require_answer(world, live, sender)
    took = time.monotonic() - began
    log.warning("one file and one view: %.1f s until the view answered", took)
    assert took < 60

    append(live, scan(LONG, 11))  # as a producer that does not use the collector
    require_last_version_while_broken(world, live, sender)
    require_new_version(world, live, sender)
    require_old_records_judged_again(world, live, sender)
    assert world.ask("SELECT application, epoch FROM truelog.lease ORDER BY 1") == epochs
    assert [application.end() for application in running] == [0, 0]


def start_both(live: Settings) -> list[Application]:
    """Start the archive and the stream."""
    return [
        start(live, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2"),
        start(live, "stream.py", TRUELOG_TOPIC_CHECK_SECONDS="5"),
    ]


def require_answer(world: World, live: Settings, sender: Client) -> None:
    """Declare the event type and a view of it. The first event is archived, and the view answers."""
    (live.events_folder / f"{NAME}.py").write_text(EVENT)
    (live.views_folder / f"{BY_PARCEL}.py").write_text(VIEW.format(event=NAME))
    soon(lambda: sender.post(scan("a", 5)).status == 200, "accepted")
    sent = topics.end_offsets(live, [NAME])
    soon(lambda: archived_positions(live, [NAME]).covers(sent), "archived")
    soon(lambda: grams(world) == {"a": 5}, "answered")


def require_last_version_while_broken(world: World, live: Settings, sender: Client) -> None:
    (live.events_folder / f"{NAME}.py").write_text(EVENT.replace("max_length=64)", "max_length=64"))
    soon(lambda: broken(world) == [NAME], "shown as broken")
    soon(lambda: ("event_file_broken", NAME) in world.ask(ALERTS), "alert")
    shown = truelog("status")
    assert f"file {NAME}.py" in shown.stdout
    assert "never closed" in " ".join(shown.stdout.split())
    assert sender.post(scan("b", 7)).status == 200
    world.traffic.send(20)
    soon(lambda: grams(world) == {"a": 5, "b": 7} and world.caught_up("page_views"), "the last version in force")


def require_new_version(world: World, live: Settings, sender: Client) -> None:
    (live.events_folder / f"{NAME}.py").write_text(EVENT.replace("=64", "=80") + "    depot: str | None = None\n")
    soon(lambda: broken(world) == [], "mended")
    soon(lambda: "depot" in columns(live), "the new column")
    assert sender.post(scan("c", 9, depot="north")).status == 200
    soon(lambda: archived_depots(live) >= {"north"}, "the new field archived")
    soon(lambda: grams(world) == {"a": 5, "b": 7, "c": 9}, "answered with the new version")
    soon(lambda: ("event_file_broken", NAME) not in world.ask(ALERTS), "alert resolved")


def require_old_records_judged_again(world: World, live: Settings, sender: Client) -> None:
    """The first version refuses the long name, and the second version accepts it."""
    counted = grams(world)
    ended = truelog_process("events", "rejudge", NAME, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "event": NAME,
        "reading": 1,
        "version": 2,
        "rebuilt": [BY_PARCEL],
        "refused": {},
    }
    begun = f"{NAME}: version 2 judges all records in reading 1"
    steps = [begun, f"{BY_PARCEL}: rebuilding", f"{BY_PARCEL}: rebuilt"]
    assert [line for line in ended.stderr.splitlines() if line.startswith((NAME, BY_PARCEL))] == steps
    assert grams(world) == counted | {LONG: 11}
    again = truelog_process("events", "rejudge", NAME)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert [line for line in again.stderr.splitlines() if line.startswith((NAME, BY_PARCEL))] == [begun]
    assert sender.post(scan("d", 13, depot="south")).status == 200
    soon(lambda: grams(world) == counted | {LONG: 11, "d": 13}, "followed in the new reading")
    sent = topics.end_offsets(live, [NAME])
    soon(lambda: archived_positions(live, [NAME]).covers(sent), "archived in the new reading")


@pytest.mark.nightly
def test_each_record_is_judged_by_the_version_in_force_after_a_pause(
    world: World, live: Settings, batch: Batch
) -> None:
    """A version is registered between the check of a batch and its merge, and between a check and an archive commit.

    The batch has passed the check under the first version, which refuses the longer name. The second accepts it.
    """
    running = start_both(live)
    require_answer(world, live, Client(live, live.producer_key.get_secret_value()))
    assert [application.end() for application in running] == [0, 0]
    counted, ends = grams(world), topics.end_offsets(live, [NAME])
    append(live, scan(LONGER, 17))
    append(live, scan("e", 19))
    paused = [
        start(live, "archive.py", fault="archive.files_written:1:stop", TRUELOG_ARCHIVE_TRIGGER_SECONDS="2"),
        start(live, "stream.py", fault="merge.staged:1:stop"),
    ]
    for application in paused:
        application.wait_fault()
    (live.events_folder / f"{NAME}.py").write_text(EVENT.replace("=64", "=100") + "    depot: str | None = None\n")
    soon(lambda: versions(world) == 2, "registered under the suspended applications")
    append(live, scan(LONGER, 23))
    assert grams(world) == counted
    assert not archived_positions(live, [NAME]).covers(topics.end_offsets(live, [NAME]))
    assert archived_positions(live, [NAME]).covers(ends)
    for application in paused:
        application.resume()
    soon(lambda: grams(world) == counted | {"e": 19, LONGER: 23}, "each record by the version in force")
    assert batch.reconcile(BY_PARCEL).equal
    batch.require_equal_from_raw([BY_PARCEL])
    assert [application.end() for application in paused] == [0, 0]


def versions(world: World) -> int:
    [(newest,)] = world.ask("SELECT max(version) FROM truelog.event_cut WHERE event = %s", NAME)
    return int(newest)


ALERTS = "SELECT kind, subject FROM truelog.alert WHERE resolved_at IS NULL AND opened_at IS NOT NULL"


def broken(world: World) -> list[str]:
    return [event for (event,) in world.ask("SELECT event FROM truelog.event_file")]


def grams(world: World) -> dict[str, int]:
    if world.ask("SELECT to_regclass(%s)", f"views.{BY_PARCEL}") == [(None,)]:
        return {}
    return {parcel: int(total) for parcel, total in world.ask(f"SELECT parcel, grams FROM views.{BY_PARCEL}")}


def columns(settings: Settings) -> set[str]:
    with open_catalog(settings) as catalog:
        return {each.name for each in catalog.load_table(identifier(NAME)).schema().fields}


def archived_depots(settings: Settings) -> set[str]:
    with open_catalog(settings) as catalog:
        return {*catalog.load_table(identifier(NAME)).scan().to_arrow()["depot"].to_pylist()}
