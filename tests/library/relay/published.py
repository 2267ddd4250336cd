"""A view that publishes, for tests without Spark: each change is a transaction like a merge's."""

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from psycopg import sql
from pyspark.sql.types import DecimalType, StringType

from tests.builders.outputs import deploy_and_settle
from tests.deadline import until
from tests.library.relay.read_topic import records, table, wait_for_transactions
from tests.meanwhile import meanwhile
from truelog import Sum, View
from truelog.kernel import merge
from truelog.log.kafka_reader import headers_of
from truelog.log.positions import Range
from truelog.relay import view_outputs
from truelog.relay.view_feed import topic_of
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.table import Table

EXACT = "12345678901234567890123456.000000000001"  # more digits than a float has


def declared(name: str, *, publish: bool = True) -> CompiledView:
    view = View(
        reads=("page_view",),
        transform=lambda page_view: page_view,
        key=("product",),
        measures={"amount": Sum()},
        publish=publish,
    )
    types = {"product": StringType(), "amount": DecimalType(38, 12)}
    return CompiledView((Table(name, view, types, "published"),))


def publish_all(settings: Settings) -> None:
    """Publish until everything is sent that can be. A broker may refuse the records of a new topic for a moment."""
    with view_outputs.open_outputs(settings) as outputs:

        def require_all() -> None:
            while outputs.publish():
                pass
            query = "SELECT view, trouble FROM truelog.output WHERE beginning IS NOT NULL AND sent < number "
            query += "AND NOT starts_with(trouble, 'resync')"
            if left := outputs.connection.execute(query.encode()).fetchall():
                raise ServiceDown(str(left))

        until(require_all, 30, "the relay")
        query = "SELECT view, version FROM truelog.output WHERE beginning IS NOT NULL AND sent > 0"
        found: list[Any] = outputs.connection.execute(query).fetchall()
        wait_for_transactions(settings, [topic_of(*version) for version in found])


@dataclass
class Published:
    """A deployed view, with changes of its rows."""

    settings: Settings
    connection: Connection
    compiled: CompiledView
    chosen: Random = field(default_factory=lambda: Random(7))

    @property
    def topic(self) -> str:
        return topic_of(self.compiled.name, 1)

    @property
    def state(self) -> sql.Identifier:
        return sql.Identifier("state", self.compiled.own.name)

    def change(self, set_to: dict[str, str], *removed: str, records: Sequence[Range] = ()) -> None:
        """Set and remove rows in one transaction, under the lock that a merge takes. It merged these records."""
        with self.connection.transaction():
            merge.lock(self.connection, self.compiled)
            self._change(set_to, *removed)
            outbox.record_changes(self.connection, self.compiled, records)

    def change_unpublished(self, set_to: dict[str, str], *removed: str) -> None:
        with self.connection.transaction():
            self._change(set_to, *removed)

    def change_at_random(self) -> None:
        """Change up to six of twenty rows. Some changes have no effect, and some transactions change nothing."""
        keys = [f"p{self.chosen.randrange(20)}" for _ in range(self.chosen.randrange(7))]
        removed = {key for key in keys if self.chosen.random() < 0.4}
        self.change({key: str(self.chosen.randrange(3)) for key in keys if key not in removed}, *removed)

    def _change(self, set_to: dict[str, str], *removed: str) -> None:
        upsert = sql.SQL(
            "INSERT INTO {} (product, amount) VALUES (%s, %s) "
            "ON CONFLICT (product) DO UPDATE SET amount = excluded.amount"
        ).format(self.state)
        for key, amount in set_to.items():
            self.connection.execute(upsert, (key, amount))
        self.connection.execute(sql.SQL("DELETE FROM {} WHERE product = ANY(%s)").format(self.state), (list(removed),))

    def rows(self) -> dict[str, str]:
        query = sql.SQL("SELECT json_build_object('product', product), row_to_json(t)::text FROM {} AS t")
        found: list[Any] = self.connection.execute(query.format(self.state)).fetchall()
        found = [(json.dumps(key, separators=(",", ":")), row) for key, row in found]
        return dict(found)

    def amounts(self) -> dict[str, str]:
        query = sql.SQL("SELECT product, amount::text FROM {}").format(self.state)
        found: list[Any] = self.connection.execute(query).fetchall()
        return dict(found)

    def number(self) -> int:
        """The number of the last row of the outbox."""
        found = self.connection.execute("SELECT number FROM truelog.output WHERE view = %s", (self.compiled.name,))
        [(number,)] = found.fetchall()
        return int(str(number))

    def outbox(self) -> list[tuple[int, str, str | None]]:
        query = "SELECT number, key, value FROM truelog.outbox WHERE view = %s ORDER BY number"
        found: list[Any] = self.connection.execute(query, (self.compiled.name,)).fetchall()
        return found

    def read(self) -> tuple[dict[str, str], list[int]]:
        """What a reader of the topic arrives at from nothing, and the numbers in the order of the records."""
        headers = (dict(headers_of(each)) for each in records(self.settings, self.topic))
        return table(self.settings, self.topic), [int(each["truelog.number"] or b"") for each in headers]

    def require_read(self) -> None:
        """A reader from nothing arrives at the table, and gets each row of the outbox once and in order."""
        table, numbers = self.read()
        assert table == self.rows()
        assert numbers == [*range(1, self.number() + 1)]


def deployed(settings: Settings, connection: Connection) -> Published:
    compiled = declared(f"v{uuid.uuid4().hex[:8]}")
    deploy_and_settle(connection, compiled)
    return Published(settings, connection, compiled)


@contextmanager
def publishing(settings: Settings, connection: Connection) -> Iterator[Published]:
    """A view that publishes until the end of the block."""
    made = deployed(settings, connection)
    yield made
    deploy_and_settle(connection, declared(made.compiled.name, publish=False))


@contextmanager
def changing(settings: Settings, view: Published) -> Iterator[None]:
    """Change the view until the block ends. A merge that fails with its session is repeated in another one."""

    def change(ended: threading.Event) -> None:
        while not ended.wait(0.02):
            try:
                with connect(settings, autocommit=True) as view.connection:
                    while not ended.wait(0.02):
                        view.change_at_random()
            except psycopg.OperationalError:
                continue

    with meanwhile(change):
        yield
