"""The platform of the soak: its applications and services, its declarations, and what must hold after each round."""

import json
import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import Any

import psutil
import psycopg
from confluent_kafka import Message

import runtime
from runtime import keeper
from tests.beds.world import World
from tests.command import answer, truelog_process
from tests.deadline import deadline, until
from tests.laws.events import EVENT_IDS as HOSTILE_IDS
from tests.nightly import soak_declarations as declarations
from tests.nightly.customer_traffic import TOPICS as CUSTOMER_TOPICS
from tests.nightly.mixed_traffic import CAMPAIGN, MixedTraffic, event_id
from tests.nightly.soak_followers import Followers
from tests.scenes.applications import Application, start
from tests.scenes.traffic import messages_in_the_log, parsed, valid_event
from truelog.archive.table import archived_positions
from truelog.control.application import ARCHIVE, STREAM
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.services import registry
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.traffic.generator import SITE_TOPICS, TOPICS
from truelog.views import catalogue
from truelog.views.view import View

STORES, SERVICES = ("postgresql", "kafka", "s3"), tuple(each.name for each in registry.SERVICES)
PEOPLE = "people"  # the stream application of the views of the community
_OF_A_MERGE = ("batch.begun", "merge.staged", "merge.locked", "merge.added", "merge.advanced", "merge.committed")
POINTS: dict[str, tuple[str, ...]] = {
    STREAM: _OF_A_MERGE,
    PEOPLE: _OF_A_MERGE,
    ARCHIVE: ("archive.files_written", "archive.before_commit", "archive.after_commit"),
}
REPLAY_POINTS = ("replay.reserved", "replay.sent", "replay.committed")
_OF_A_STREAM = {"TRUELOG_STREAM_TRIGGER_SECONDS": "3", "TRUELOG_TOPIC_CHECK_SECONDS": "10"}
ENVIRONMENT = {ARCHIVE: {"TRUELOG_ARCHIVE_TRIGGER_SECONDS": "4"}, STREAM: _OF_A_STREAM, PEOPLE: _OF_A_STREAM}
RECOVERY_SECONDS = 600  # on a machine that other tests share

log = logging.getLogger("truelog.soak")


@dataclass
class Soak:
    """The running applications. A step may kill any process."""

    settings: Settings
    world: World
    traffic: MixedTraffic
    draw: random.Random
    followers: Followers
    applications: dict[str, Application] = field(default_factory=dict)
    version: int = 0  # of the soak's declarations
    watches: bool = False  # whether rules and a search are set
    parcels: list[str] = field(default_factory=list)  # event ids of acknowledged parcels and of dead letters
    kills: Counter[str] = field(default_factory=Counter)
    points: dict[str, Iterator[str]] = field(init=False)  # of each application, in an order that is drawn
    replay_points: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.points = {name: cycle(self.draw.sample(points, len(points))) for name, points in POINTS.items()}
        self.replay_points = cycle(self.draw.sample(REPLAY_POINTS, len(REPLAY_POINTS)))

    def keep_running(self) -> None:
        """Start the applications that have ended, as Airflow does."""
        for name in ENVIRONMENT:
            running = self.applications.get(name)
            if running is None or running.process.poll() is not None:
                self.applications[name] = self._started(name)

    def _started(self, name: str, fault: str | None = None) -> Application:
        words = ["archive.py"] if name == ARCHIVE else ["stream.py", "--application", name]
        return start(self.settings, *words, fault=fault, **ENVIRONMENT[name])

    def die(self) -> None:
        for application in self.applications.values():
            application.die()

    def end(self) -> None:
        """Terminate the streams, and the archive once it has all records, also ticks, that the views have merged.

        Then build the batch-only views, as Airflow does daily.
        """
        for name in (STREAM, PEOPLE):
            assert self.applications[name].end(RECOVERY_SECONDS) == 0
        for name in self._streamed_views():
            soon(partial(self._archived, self.world.positions(name)), RECOVERY_SECONDS, f"the archive of {name}")
        assert self.applications[ARCHIVE].end(RECOVERY_SECONDS) == 0
        built = start(self.settings, "answer.py", "--batch-only")
        assert built.wait_death(RECOVERY_SECONDS) == 0, built.tail()

    def _streamed_views(self) -> dict[str, View]:
        views = catalogue.load_all_views(self.settings.views_folder)
        return {name: view for name, view in views.items() if not view.batch_only}

    def _archived(self, merged: Positions) -> bool:
        return archived_positions(self.settings, merged.offsets).covers(merged)

    def kill_applications(self) -> None:
        """Start all applications again, so that each is killed at the next of its named points."""
        self.die()
        points = {name: next(drawn) for name, drawn in self.points.items()}
        for name, point in points.items():
            self.applications[name] = self._started(name, f"{point}:{self.draw.randint(1, 3)}:kill")
        for name, point in points.items():
            self.applications[name].wait_fault(RECOVERY_SECONDS)
            self.applications[name].wait_kill()
            self.kills[f"{name} at {point}"] += 1

    def kill_services(self, *names: str) -> None:
        """Kill services. The supervisor starts them again."""
        for name in names:
            [pid] = [state.pid for state in runtime.status(self.settings) if state.name == name]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            self.kills[name] += 1
        runtime.up(self.settings, names, tethered=True)

    def kill_supervisor(self) -> None:
        """Kill the supervisor, with which all services end, and start everything again."""
        pid = keeper._calls(self.settings).getPID()
        running = [state.pid for state in runtime.status(self.settings) if state.pid]
        assert len(running) == len(STORES) + len(SERVICES)
        os.kill(pid, signal.SIGKILL)
        self.kills["supervisor, with all services"] += 1
        psutil.wait_procs([psutil.Process(each) for each in running if psutil.pid_exists(each)], timeout=deadline(60))
        runtime.up(self.settings, [*STORES, *SERVICES], tethered=True)

    def post_parcels(self, count: int) -> bool:
        """Post parcels as heavy as this version accepts. Dead letters are replayed later, so they must count too."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        grams = declarations.GRAMS * self.version
        ids = [f"parcel-{self.version}-{time.monotonic_ns()}-{n}" for n in range(count)]
        fields = {"type": declarations.PARCEL, "occurred_at": now, "grams": grams}
        response = self.traffic.client.post([fields | {"event_id": each, "parcel": each[-1]} for each in ids])
        assert response.status in {200, 422}, (response.status, response.body)
        self.parcels += ids
        return response.status == 200

    def declare(self) -> None:
        """Change the event files, and wait until every process judges by the new versions."""
        self.version += 1
        assert not self.post_parcels(20), "these must be dead letters until the next version is declared"
        before = self._registered("page_view")
        declarations.declare_version(self.settings.events_folder, self.version)
        soon(lambda: self._registered("page_view") > before, RECOVERY_SECONDS, "the new version of page_view")
        soon(lambda: self.post_parcels(1), RECOVERY_SECONDS, "the collector accepts the new version of parcel_scan")
        if self.version == 1:
            declarations.declare_views(self.settings.views_folder)

    def _registered(self, event: str) -> int:
        query = "SELECT coalesce(max(version), 0) FROM truelog.event_version WHERE event = %s"
        return int(self.world.ask(query, event)[0][0])

    def replay(self) -> None:
        """Kill a replay of the dead letters at the next of its named points. Another replay completes it."""
        fault = next(self.replay_points)
        fired = self.settings.home / f"replay-{time.monotonic_ns()}.fired"
        words = ("dead-letters", "replay", "--type", declarations.PARCEL)
        killed = truelog_process(*words, "--json", TRUELOG_FAULT=f"{fault}:1:kill", TRUELOG_FAULT_FIRED=str(fired))
        if fired.exists():
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        else:
            assert json.loads(killed.stdout)["sent"] == 0, "the fault did not fire, but dead letters were sent"
        self.kills[f"replay at {fault}"] += fired.exists()
        result = answer(*words)
        assert not result["invalid"], result
        assert not result["skipped"], result
        assert answer(*words)["sent"] == 0

    @property
    def topics(self) -> tuple[str, ...]:
        return (*TOPICS, *CUSTOMER_TOPICS, *([declarations.PARCEL] if self.version else []))

    def catch_up(self) -> None:
        """Wait until all views and the archive have reached the present end of the log."""
        ends = topics.end_offsets(self.settings, self.topics)
        views = self._streamed_views()

        def reached() -> bool:
            self.keep_running()
            archived = archived_positions(self.settings, self.topics)
            behind = [
                name for name, view in views.items() if not self.world.positions(name).covers(ends.only(view.reads))
            ]
            return archived.covers(ends) and not behind

        try:
            soon(reached, RECOVERY_SECONDS, "every view at the end of the log")
        except ServiceDown:
            for each in self.applications.values():
                log.exception("%s has not recovered:\n%s", each.name, each.tail())
            raise

    def require_counts(self) -> None:
        """Each valid event counts exactly once in the view by event id, and each acknowledged event is in the log.

        Left out are the ids of hostile records, because parsers judge some of them differently (`schema.decode`). The
        comparison at the end covers them.
        """
        expected, campaigns = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        types, versions = load_events(), self._versions() if self.version else []
        for topic in TOPICS:
            logged = Counter[str]()
            for message in messages_in_the_log(self.settings, topic):
                logged[event_id(message.value()) or ""] += 1
                event = valid_event(types[topic], message.value())
                if event and event.event_id not in HOSTILE_IDS:
                    expected[topic, event.event_id] += 1
                    if topic == "page_view":
                        campaigns[_campaign(message, versions), event.event_id] += 1
            lost = self.traffic.ids[topic] - logged
            assert not lost, f"{topic}: {lost.total()} acknowledged events are not in the log"
        require_same(expected, self._counted(declarations.EACH_EVENT, "topic"))
        if self.version:
            require_same(campaigns, self._counted("by_campaign", "campaign"))
            replayed = self._counted(declarations.EACH_PARCEL, "topic")
            doubled = {each: count for each, count in replayed.items() if count > 1}
            assert not doubled, f"{len(doubled)} parcels are counted too often"

    def require_followers(self) -> None:
        """Who follows an output topic or live changes arrives at the table of the view, and gets no change twice."""
        soon(lambda: not self.followers.differ(), RECOVERY_SECONDS, "the followers at the tables of their views")
        self.followers.require_none_repeated()

    def require_each_parcel_once(self) -> None:
        """Each parcel counts once, whether the collector accepted it or it was replayed."""
        sent = Counter((declarations.PARCEL, each) for each in self.parcels)
        require_same(sent, self._counted(declarations.EACH_PARCEL, "topic"))

    def _versions(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = answer("events", "show", "page_view")["versions"]
        return shown

    def _counted(self, view: str, column: str) -> Counter[tuple[str, str]]:
        """How often a view counts each event id, with the value of another column of its key."""
        rows = self.world.ask(f"SELECT {column}, event_id, records FROM views.{view}")
        return Counter({(value, each): int(records) for value, each, records in rows if each not in HOSTILE_IDS})


def require_same(expected: Counter[tuple[str, str]], counted: Counter[tuple[str, str]]) -> None:
    lost, doubled = expected - counted, counted - expected
    assert not lost, f"{len(lost)} are lost: {lost.most_common(3)}"
    assert not doubled, f"{len(doubled)} are counted too often: {doubled.most_common(3)}"


def _campaign(message: Message, versions: list[dict[str, Any]]) -> str:
    """The campaign that the version in force at the offset reads. A version that does not declare it reads none."""
    fields: set[str] = set()
    for each in versions:
        if each["first_offsets"].get(str(message.partition()), 0) <= (message.offset() or 0):
            fields = {declared["name"] for declared in each["declaration"]["fields"]}
    found = (parsed(message.value()) or {}).get(CAMPAIGN) if CAMPAIGN in fields else None
    return str(found or "-")


def applications(views: Mapping[str, View]) -> dict[str, str]:
    """The application of each view that reads no topic of the shop."""
    return {name: PEOPLE for name, view in views.items() if set(view.reads).isdisjoint(SITE_TOPICS)}


def soon(condition: Callable[[], bool], seconds: float, what: str) -> None:
    def met() -> None:
        with suppress(psycopg.OperationalError):
            if condition():
                return
        raise ServiceDown("not yet")

    until(met, seconds, what)


def verdicts(*words: str) -> dict[str, str]:
    """The verdict of each view that has rows, by the real command, whose exit code must say the same."""
    ended = truelog_process("reconcile", "--all", *words, "--json")
    assert ended.stdout, ended.stderr
    results = json.loads(ended.stdout.splitlines()[-1])["views"]  # Java may warn on the lines before
    for each in results:
        assert each["rows"], f"{each['view']} is empty, so its comparison says nothing"
        if not each["equal"]:
            log.error("%s", json.dumps(each)[:3_000])
    assert (ended.returncode == 0) == all(each["equal"] for each in results), ended.stderr
    return {each["view"]: each["verdict"] for each in results}
