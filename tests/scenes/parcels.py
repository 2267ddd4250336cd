"""A running platform on which scenes declare an event type and a view of it, and then change the files."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

import runtime
from runtime import keeper
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.deadline import deadline, until
from tests.scenes.applications import Application, start
from tests.scenes.collector_client import Client
from tests.scenes.declared import EVENT, VIEW, copy_events
from truelog.archive.table import archived_positions, identifier, open_catalog
from truelog.log import topics
from truelog.services import registry
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NAME, BY_PARCEL = "parcel_scan", "scans_by_parcel"
SERVICES = tuple(each.name for each in registry.SERVICES)


@dataclass
class Parcels:
    """The platform, the files of the event type and of its view, and what the view has counted."""

    world: World
    settings: Settings
    running: list[Application] = field(default_factory=list)

    def start(self) -> None:
        """Start the archive and the stream, and wait until they follow the log."""
        self.running = [
            start(self.settings, "archive.py"),
            start(self.settings, "stream.py", TRUELOG_TOPIC_CHECK_SECONDS="5"),
        ]
        archive, stream = self.running
        for each in self.running:
            each.kept = True
        stream.wait(lambda: self.world.caught_up("page_views"), 90, "the first view")
        archive.wait(lambda: "archiving from" in archive.tail(), 90, "the archive")

    def end(self) -> None:
        assert [application.end() for application in self.running] == [0, 0]

    def epochs(self) -> list[tuple[object, ...]]:
        """The epochs of both applications. A restarted application has another one."""
        return self.world.ask("SELECT application, epoch FROM truelog.lease ORDER BY 1")

    @property
    def file(self) -> Path:
        """The file that declares the event type."""
        return self.settings.events_folder / f"{NAME}.py"

    def declare(self) -> None:
        """Declare the event type in one file and the view in another one. Wait until the view has counted an event."""
        self.file.write_text(EVENT)
        (self.settings.views_folder / f"{BY_PARCEL}.py").write_text(VIEW.format(event=NAME))
        self.soon(lambda: self.post("a", 5) == 200, "the collector to accept the event")
        self.soon(lambda: self.grams() == {"a": 5}, "the view to count the event")

    def post(self, parcel: str, grams: int, **more: object) -> int:
        """Send a scan to the collector, and return the status of its response."""
        client = Client(self.settings, self.settings.producer_key.get_secret_value())
        return client.post({"type": NAME, **_scan(parcel, grams), **more}).status

    def append(self, parcel: str, grams: int) -> None:
        """Write a scan to the topic, as a producer that does not use the collector and its checks."""
        producer = Producer({**self.settings.kafka(), "acks": "all"})
        producer.produce(NAME, json.dumps(_scan(parcel, grams)).encode())
        assert producer.flush(deadline(10)) == 0

    def soon(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> None:
            if not condition():
                raise ServiceDown("not yet")

        until(met, 60, what)

    def require_archived(self) -> None:
        """Wait until the archive contains the records that the topic has now."""
        ends = topics.end_offsets(self.settings, [NAME])
        self.soon(lambda: archived_positions(self.settings, [NAME]).covers(ends), "the archive")

    def grams(self) -> dict[str, int]:
        """What the view has counted, by parcel. Nothing if the view has no table yet."""
        if self.world.ask("SELECT to_regclass(%s)", f"views.{BY_PARCEL}") == [(None,)]:
            return {}
        return {parcel: int(total) for parcel, total in self.world.ask(f"SELECT parcel, grams FROM views.{BY_PARCEL}")}

    def version(self) -> int:
        """The newest registered version of the event type."""
        [(newest,)] = self.world.ask("SELECT max(version) FROM truelog.event_cut WHERE event = %s", NAME)
        return int(newest)

    def archived(self, column: str) -> set[object]:
        """The values of a column in the archive."""
        with open_catalog(self.settings) as catalog:
            return {*catalog.load_table(identifier(NAME)).scan().to_arrow()[column].to_pylist()}

    def has_column(self, column: str) -> bool:
        with open_catalog(self.settings) as catalog:
            return column in {each.name for each in catalog.load_table(identifier(NAME)).schema().fields}


def _scan(parcel: str, grams: int) -> dict[str, object]:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"event_id": f"{parcel}-{time.monotonic_ns()}", "occurred_at": now, "parcel": parcel, "grams": grams}


@contextmanager
def platform(world: World, folder: Path) -> Iterator[Parcels]:
    """The services, with folders for events and views that the scene changes. The only view is `page_views`."""
    (folder / "views").mkdir()
    views = copy_views(folder / "views", "page_views")
    with known(
        world.settings, events_folder=copy_events(folder), views_folder=views, archive_trigger_seconds=2
    ) as settings:
        runtime.up(settings, SERVICES, tethered=True)
        yield Parcels(world, settings)
        for name in reversed(SERVICES):
            keeper.stop(settings, name)
