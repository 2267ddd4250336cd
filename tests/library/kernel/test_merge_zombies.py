"""Each of the four protections against zombies, on a real process that is suspended and overtaken.

The protections overlap on purpose: where one fails, another acts. A test therefore arms only the protection that it
is about, and shows that the protection alone prevents the harm. The same test with a planted defect, which disarms
that protection too, must find the harm.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from psycopg import sql

from tests.deadline import until
from tests.library.kernel import zombie
from tests.library.kernel.zombie import DISARM, EVENTS, IDLE, READY, WORKED_ON, counter, merge_events
from tests.scenes.applications import Application, start
from truelog.control import lease
from truelog.control.lease import Holder, Lease
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables.compiled_view import CompiledView

_BLOCKED = """
    SELECT EXISTS (
        SELECT FROM pg_stat_activity AS waiting JOIN pg_stat_activity AS asleep
        ON asleep.pid = ANY(pg_blocking_pids(waiting.pid)) WHERE asleep.state = 'idle in transaction'
        AND asleep.datname = current_database()
    )
"""


class HarmError(AssertionError):
    """The harm that a protection prevents."""


@dataclass
class Scene:
    """A view, and the processes that compete for it."""

    settings: Settings
    connection: Connection
    compiled: CompiledView
    application: str
    running: list[Application] = field(default_factory=list)
    held: list[Lease] = field(default_factory=list)

    def suspended(self, point: str, disarmed: list[str]) -> Application:
        """A process that is suspended at a point of its merge."""
        arguments = (self.application, self.compiled.name, *disarmed)
        self.running.append(start(self.settings, str(Path(zombie.__file__)), *arguments, fault=f"{point}:1:stop"))
        self.running[-1].wait_fault(60)
        return self.running[-1]

    def cut_off(self) -> None:
        """End the session that holds the lock, as a network failure would."""
        [row] = self.connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
            (self.application,),
        ).fetchall()
        assert row == (True,)

    def overtake(self) -> Holder:
        """Take the lease from the suspended process."""
        self.cut_off()
        self.held.append(lease.take_lease(self.settings, self.application))
        return self.held[-1].holder

    def merge(self, holder: Holder) -> None:
        with connect(self.settings, autocommit=True, writer=self.application) as connection:
            merge_events(connection, self.compiled, holder)

    def counts(self) -> dict[str, int]:
        """How often each event has been counted."""
        query = sql.SQL("SELECT event_id, n FROM {}").format(sql.Identifier("state", self.compiled.own.name))
        return {str(event_id): int(str(n)) for event_id, n in self.connection.execute(query).fetchall()}

    def require_each_counted_once(self) -> None:
        if self.counts() != {f"e{number}": 1 for number in range(EVENTS)}:
            raise HarmError(f"not each event counted once: {self.counts()}")


@pytest.fixture
def scene(postgresql: Settings, connection: Connection) -> Iterator[Scene]:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    made = Scene(postgresql, connection, compiled, f"app-{compiled.name}")
    yield made
    for application in made.running:
        application.die()
    for held in made.held:
        held.release()


def require_ended_or_done(process: Application) -> None:
    if process.process.poll() is None and "done" not in process.log.read_text():
        raise ServiceDown("the merge has not ended")


def positions(scene: Scene, disarmed: list[str]) -> None:
    """The zombie resumes a merge of records that its successor has merged. The view's positions refuse the merge."""
    overtaken = scene.suspended(READY, disarmed)
    scene.merge(scene.overtake())
    overtaken.resume()
    overtaken.wait(lambda: "done" in overtaken.log.read_text(), 30, "the end of its merge")
    scene.require_each_counted_once()
    assert "failed: Stale" in overtaken.log.read_text()


def epoch(scene: Scene, disarmed: list[str]) -> None:
    """The zombie resumes a merge that its successor has not repeated. The higher epoch refuses the merge."""
    overtaken = scene.suspended(READY, disarmed)
    holder = scene.overtake()
    overtaken.resume()
    until(partial(require_ended_or_done, overtaken), 30, "the end of its merge")
    if counted := scene.counts():
        raise HarmError(f"a process without the lease has written: {counted}")
    assert "is over: a successor is running" in overtaken.log.read_text()
    scene.merge(holder)
    scene.require_each_counted_once()


def sessions(scene: Scene, disarmed: list[str]) -> None:
    """The zombie sleeps in the middle of a merge, with its locks. The new holder of the lease ends its sessions."""
    overtaken = scene.suspended("merge.added", disarmed)
    with ThreadPoolExecutor(1) as pool:
        successor = pool.submit(lambda: scene.merge(scene.overtake()))

        def finished_or_blocked() -> None:
            if not successor.done() and scene.connection.execute(_BLOCKED).fetchone() != (True,):
                raise ServiceDown("the successor is neither finished nor blocked")

        until(finished_or_blocked, 30, "the successor")
        blocked = not successor.done()
        overtaken.die()  # PostgreSQL then ends the transaction, and the successor continues
        successor.result()
    if blocked:
        raise HarmError("the successor waits for the locks of a process that is suspended")
    scene.require_each_counted_once()


def exits(scene: Scene, disarmed: list[str]) -> None:
    """The zombie has nothing to merge. It must end nevertheless, because not all of its work checks the lease."""
    overtaken = scene.suspended(IDLE, disarmed)
    scene.overtake()
    overtaken.resume()
    if overtaken.wait_death(60) == WORKED_ON:
        raise HarmError("two processes run the application")
    overtaken.require_refused()


SCENES: dict[str, Callable[[Scene, list[str]], None]] = {
    "positions": positions,
    "epoch": epoch,
    "sessions": sessions,
    "exit": exits,
}


@pytest.mark.parametrize("protection", SCENES)
def test_the_protection_alone_prevents_the_harm(scene: Scene, protection: str) -> None:
    assert SCENES.keys() == DISARM.keys()
    SCENES[protection](scene, [each for each in DISARM if each != protection])


@pytest.mark.parametrize("protection", SCENES)
def test_without_the_protection_the_same_scene_finds_the_harm(scene: Scene, protection: str) -> None:
    with pytest.raises(HarmError):
        SCENES[protection](scene, list(DISARM))


@pytest.mark.parametrize("point", [READY, "merge.locked", "merge.added", "merge.advanced", IDLE])
def test_with_all_protections_the_zombie_ends_and_each_event_is_counted_once(scene: Scene, point: str) -> None:
    overtaken = scene.suspended(point, [])
    scene.merge(scene.overtake())
    overtaken.resume()
    overtaken.require_refused()
    scene.require_each_counted_once()
