"""A shop that is open: its visitors post events to the collector, and its applications run."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from itertools import islice
from typing import Any

from tests.beds.world import World
from tests.deadline import until
from tests.meanwhile import meanwhile
from tests.scenes.applications import Application, start
from tests.scenes.collector_client import Client
from tests.scenes.traffic import in_the_log, parsed
from truelog.support.errors import ServiceDown
from truelog.traffic.generator import TOPICS, generate
from truelog.views.view import View

PORTION = 50  # events
_PACE_SECONDS = 2.0  # between portions: a stream plans again for each batch, whatever its size
_DAY_SECONDS = 86_400.0
# Each tick makes a batch of the stream, and each trigger a commit of the archive, whatever their size.
PACE = {"tick_seconds": 3, "archive_trigger_seconds": 5}
_SCRIPTS = {"stream": "stream.py", "archive": "archive.py"}


@dataclass
class Shop:
    """The visitors' events, and the applications. Whatever was killed runs again when it is needed."""

    world: World
    views: Mapping[str, View]
    running: dict[str, Application] = field(default_factory=dict)
    acknowledged: dict[str, Counter[str]] = field(default_factory=lambda: {topic: Counter() for topic in TOPICS})

    def __post_init__(self) -> None:
        settings = self.world.settings
        self.client = Client(settings, settings.producer_key.get_secret_value())
        made = generate(seed=26, begin=datetime.now(UTC), rate=PORTION, seconds=_DAY_SECONDS, social=0.5)
        self._events = (event for record in made if (event := _event(record.topic, record.value)) is not None)

    def serve(self) -> None:
        """Post a portion of the visitors' events. It is posted again until it is acknowledged."""
        portion = list(islice(self._events, PORTION))
        until(lambda: self._post(portion), 60, "the acknowledgement of a portion")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve visitors until the block ends."""

        def serve(closed: threading.Event) -> None:
            while not closed.wait(_PACE_SECONDS):
                self.serve()

        with meanwhile(serve):
            yield

    def application(self, name: str) -> Application:
        """The running application, which is started if it has ended."""
        if name not in self.running or self.running[name].process.poll() is not None:
            self.running[name] = self._started(name)
        return self.running[name]

    def killed(self, name: str, fault: str) -> None:
        """Start the application again, serve visitors, and wait until the fault kills it."""
        if name in self.running:
            self.running[name].die()
        victim = self.running[name] = self._started(name, fault)
        with self.serving():
            victim.wait_kill()

    def catch_up(self) -> Application:
        """Wait until the stream has merged all records that are in the topics now."""
        stream = self.application("stream")
        for name, view in self.views.items():
            self.world.catch_up(stream, name, view.reads, 300)
        return stream

    def lost(self) -> dict[str, Counter[str]]:
        """The acknowledged events that are not in the log, by topic."""
        missing = {}
        for topic, acknowledged in self.acknowledged.items():
            events = (_event(topic, value) for value in in_the_log(self.world.settings, topic))
            if left := acknowledged - Counter(event["event_id"] for event in events if event is not None):
                missing[topic] = left
        return missing

    def close(self) -> None:
        for application in self.running.values():
            application.die()

    def _started(self, name: str, fault: str | None = None) -> Application:
        started = start(self.world.settings, _SCRIPTS[name], fault=fault)
        started.kept = True
        return started

    def _post(self, portion: list[dict[str, Any]]) -> None:
        try:
            response = self.client.post(portion)
        except (OSError, HTTPException) as error:
            raise ServiceDown(str(error)) from error
        if response.status not in {200, 207}:
            raise ServiceDown(f"{response.status} {response.body}")
        for good in response.body["good"]:
            event = portion[good["index"]]
            self.acknowledged[event["type"]][event["event_id"]] += 1


def _event(topic: str, value: bytes | None) -> dict[str, Any] | None:
    """The event as visitors post it, or None if the record has no event id."""
    found = parsed(value)
    return None if found is None or not isinstance(found.get("event_id"), str) else found | {"type": topic}
