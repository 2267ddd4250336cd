"""A running platform that captures the table of customers, and what scenes do to the table and to Connect."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

import runtime
from runtime import keeper, source_database
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.deadline import until
from tests.scenes.applications import Application, start
from tests.servers import drop_database
from truelog.alerts.rules import Finding
from truelog.alerts.sources import captured_rows
from truelog.capture import comparison, connector, slot, snapshot, worker
from truelog.capture.comparison import SourceComparison
from truelog.capture.slot import Verdict
from truelog.capture.source_table import captured_types
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.schema.change import decode_changes
from truelog.schema.event import EventType
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NAME = "customers"
SLOT = "truelog_customers"
_DROP = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
INSERT = "INSERT INTO customers (id, name, email, city, credit, is_active, since) VALUES (%s, %s, %s, %s, %s, %s, %s)"
SOME = 2_000  # records


@dataclass
class CapturedShop:
    """The table, the view, and Kafka Connect between them."""

    world: World
    settings: Settings
    stream: Application

    @property
    def event_type(self) -> EventType:
        return captured_types(self.settings)[NAME]

    def connect(self) -> psycopg.Connection[Any]:
        """A session of the shop's application, which owns the table."""
        arguments = self.settings.database() | {"dbname": self.settings.source_database}
        return psycopg.connect(**arguments, autocommit=True)

    def run(self, *statements: str) -> None:
        """Each statement is a transaction."""
        with self.connect() as session:
            for statement in statements:
                session.execute(statement.encode())

    def compared(self) -> SourceComparison:
        return comparison.compare(self.settings, NAME, self.event_type)

    def require_equal(self, rows: int | None = None) -> None:
        """Require that the view equals the table at one place in the database's log."""
        found = self.compared()
        assert found.verdict == comparison.EQUAL, (found, self.stream.tail())
        assert rows in (None, found.rows)

    def wait_until_equal(self, seconds: float, what: str) -> None:
        self.stream.wait(lambda: self.compared().verdict == comparison.EQUAL, seconds, what)

    def current(self, view: str = NAME) -> list[tuple[Any, ...]]:
        """The rows of the table, as a view of it says."""
        query = sql.SQL("SELECT * FROM {} ORDER BY id").format(sql.Identifier("views", f"{view}_current"))
        return self.world.ask(query)

    def invalid(self) -> list[tuple[Any, ...]]:
        """The view's excluded records."""
        return self.world.ask("SELECT * FROM truelog.exclusion WHERE view = %s", NAME)

    def invalid_rows(self) -> list[Finding]:
        """What the alerts say about the table's invalid changes, after they have looked at the whole topic."""
        while True:
            before = self.world.ask("SELECT checked_offset FROM truelog.capture")
            found = captured_rows.observe(self.settings).findings
            if before == self.world.ask("SELECT checked_offset FROM truelog.capture"):
                return [each for each in found if each.kind == "capture_invalid"]

    def pid(self) -> int:
        return int(keeper.state(self.settings, "connect")["pid"])

    def end(self) -> int:
        """The end of the topic."""
        return topics.end_offsets(self.settings, [NAME]).at(NAME, 0)

    def wait_for_records(self, begin: int) -> None:
        """Wait until some records are in the topic behind the beginning."""

        def arrived() -> None:
            if self.end() - begin < SOME:
                raise ServiceDown("they have not reached the topic")

        until(arrived, 60, f"{SOME:,} records")

    def copy_customers(self, numbers: range) -> None:
        """Insert customers in one transaction, and kill Connect when some of them are in the topic."""
        before = self.end()
        with self.connect() as session, session.cursor().copy("COPY customers (id, name) FROM STDIN") as copy:
            for number in numbers:
                copy.write_row((number, f"customer {number}"))
        self.wait_for_records(before)
        self.kill_connect()

    def kill_connect(self, meanwhile: str = "") -> None:
        """Kill Connect, which the supervisor starts again. `meanwhile` is a statement that runs before Connect does."""
        before = self.pid()
        os.kill(before, signal.SIGKILL)
        self.run(*filter(None, [meanwhile]))

        def again() -> None:
            if self.pid() in (0, before):
                raise ServiceDown("it has not been started again")
            if why := worker.failure(self.settings, NAME):
                raise ServiceDown(why)

        until(again, 120, "Connect")

    def lose_offsets(self, meanwhile: tuple[str, ...]) -> None:
        """Stop Connect, run these statements, cut off the file of its offsets, and start it again."""
        keeper.stop(self.settings, "connect")
        self.run(*meanwhile)
        connector.offsets_file(self.settings).write_bytes(b"")
        runtime.up(self.settings, {"connect"}, tethered=True)

    def wait_for_offsets(self) -> None:
        """Wait until Connect has stored that the snapshot has ended, which it does every two seconds."""

        def stored() -> None:
            if lost := snapshot.lost_offsets(self.settings):
                raise ServiceDown(f"{len(lost)} connectors have no offsets behind a snapshot")

        until(stored, 30, "the offsets of Connect")

    def epoch(self) -> int:
        """The epoch in which Connect captures the table."""
        [(epoch,)] = self.world.ask("SELECT epoch FROM truelog.capture WHERE event_type = %s", NAME)
        return int(epoch)

    def verdict(self) -> Verdict:
        return self.verdicts(self.event_type)[NAME][0]

    def verdicts(self, *types: EventType) -> dict[str, tuple[Verdict, str]]:
        """The verdict on each table, with its reason."""
        found = slot.captures(self.settings, types)
        return {each.event_type: slot.verdict(each, self.settings.capture_retained_bytes) for each in found}

    def stop_connector(self, name: str = NAME) -> None:
        worker.ask(self.settings, "PUT", f"/connectors/{name}/stop")

    def resume_connector(self, name: str = NAME) -> None:
        worker.ask(self.settings, "PUT", f"/connectors/{name}/resume")

    def drop_slot(self, name: str = SLOT) -> None:
        drop_slot(self.settings, name)

    def take_snapshot(self) -> None:
        """The way back: read the table again, until the view equals it."""
        snapshot.take(self.settings, self.event_type)
        self.wait_until_equal(240, "the snapshot")
        assert self.verdict() is Verdict.OK

    def failed(self, name: str = NAME) -> str:
        """Wait until the connector has failed, and return its reason."""
        reasons: list[str] = []

        def stopped() -> None:
            why = worker.failure(self.settings, name)
            if why is None or not why.startswith("FAILED"):
                raise ServiceDown(f"it still runs: {why}")
            reasons.append(why)

        until(stopped, 120, "the failure of the connector")
        return reasons[0]


def drop_slot(settings: Settings, name: str = SLOT) -> None:
    """Drop the slot as soon as no connector uses it."""

    def dropped() -> None:
        with psycopg.connect(**settings.source(), autocommit=True) as session:
            session.execute(_DROP, (name,))
            if session.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone():
                raise ServiceDown("the slot is in use")

    until(dropped, 60, "the slot")


def changes_of(settings: Settings, event_type: EventType) -> list[dict[str, Any]]:
    """All records of a table's topic, decoded."""
    name = event_type.name
    end = topics.end_offsets(settings, [name]).at(name, 0)
    values = [each.value() for each in messages(settings, name, 0, 0, end)]
    times = pa.array([datetime.now(UTC)] * len(values), pa.timestamp("us", "UTC"))
    decoded = decode_changes(event_type, pa.array(values, pa.binary()), times, event_type.future_limit)
    changes: list[dict[str, Any]] = decoded.to_pylist()
    return changes


@contextmanager
def capturing(world: World, first: list[tuple[Any, ...]], *statements: str, **more: object) -> Iterator[Settings]:
    """The table with its first rows, and Connect, on a platform with these further settings. Yields all settings.

    The owner of the table runs the statements before the table is prepared for its capture.
    """
    more |= {"capture": "true", "source_database": f"{world.settings.database_name}_shop"}
    with known(world.settings, **more):
        settings = Settings(home=world.settings.home)
        source_database.prepare(settings, captured_types(settings).values())
        with psycopg.connect(**settings.database() | {"dbname": settings.source_database}) as session:
            for statement in statements:
                session.execute(statement.encode())
            session.cursor().executemany(INSERT, first)
        source_database.prepare(settings, captured_types(settings).values())
        try:
            runtime.up(settings, {"connect"}, tethered=True)
            yield settings
        finally:
            keeper.stop(settings, "connect")
            drop_slot(settings)  # the server's next file may capture a table of the same name
            drop_database(settings, settings.source_database)


@contextmanager
def captured_shop(world: World, folder: Path, first: list[tuple[Any, ...]], *statements: str) -> Iterator[CapturedShop]:
    """The table that is captured, the archive, and a stream with the one view."""
    views = copy_views(folder, NAME)
    with capturing(world, first, *statements, views_folder=views) as settings:
        world = World(settings, world.traffic)
        stream, archive = start(settings, "stream.py"), start(settings, "archive.py")
        for each in (stream, archive):
            each.kept = True
        try:
            stream.wait(lambda: world.caught_up(NAME, [NAME]), 240, "the view of the first rows")
            yield CapturedShop(world, settings, stream)
            assert [stream.end(), archive.end()] == [0, 0]
        finally:
            for each in (stream, archive):
                each.die()
