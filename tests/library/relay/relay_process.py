"""A relay in a process of its own: `relay_process.py FEED UNTIL DISARMED…`. Tests kill and suspend it.

The feed is a table of the test's database. The process publishes until it has published row UNTIL, as the service does:
after an error it begins with another relay.
"""

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from truelog.log.access import RELAY_PLACES
from truelog.log.output_topic import create_topic
from truelog.relay.feed import Beginning, Row
from truelog.relay.place import Place
from truelog.relay.relay import Relay
from truelog.schema.names import OUTPUT
from truelog.storage import database
from truelog.storage.database import Connection
from truelog.support import faults
from truelog.support.errors import Fenced, Resync, ServiceDown
from truelog.support.settings import KafkaUser, Settings

PORTION = 10
FENCED, RESYNC = 3, 4  # exit codes

log = logging.getLogger("truelog.relay_process")


class TableFeed:
    """The rows of a table, ten in each transaction. Each key has the numbers 1, 2, 3 … as its values."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name

    @property
    def topic(self) -> str:
        return f"{OUTPUT}{self.name}"

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier("stage", self.name)

    def create(self) -> None:
        create = "CREATE TABLE {} (number bigint PRIMARY KEY, id uuid DEFAULT gen_random_uuid(), beginning bigint)"
        self.connection.execute(sql.SQL(create).format(self._table))

    def append(self, rows: int, *, begins: bool = False) -> None:
        """Append rows. `begins` marks the first as the first row of a beginning."""
        insert = (
            "INSERT INTO {table} (number, beginning) SELECT n, CASE WHEN %s THEN %s::bigint + 1 "
            "ELSE (SELECT max(beginning) FROM {table}) END FROM generate_series(%s::bigint + 1, %s::bigint + %s) AS n"
        )
        last = self.last()
        self.connection.execute(sql.SQL(insert).format(table=self._table), (begins, last, last, last, rows))

    def last(self) -> int:
        found = database.read_value(self.connection, sql.SQL("SELECT max(number) FROM {}").format(self._table))
        return int(found or 0)

    def delete(self, condition: sql.SQL) -> None:
        self.connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(self._table, condition))

    def beginning(self) -> Beginning | None:
        number = database.read_value(self.connection, sql.SQL("SELECT max(beginning) FROM {}").format(self._table))
        return None if number is None else Beginning(f"beginning {number}", number)

    def id_of(self, number: int) -> str | None:
        query = sql.SQL("SELECT id::text FROM {} WHERE number = %s").format(self._table)
        found: str | None = database.read_value(self.connection, query, (number,))
        return found

    def next_rows(self, number: int) -> Sequence[Row]:
        query = sql.SQL("SELECT number, id::text FROM {} WHERE number >= %s ORDER BY number LIMIT %s")
        rows: list[Any] = self.connection.execute(query.format(self._table), (number, PORTION)).fetchall()
        return [Row(n, each, self.topic, b"k%d" % (n % 3), b"%d" % n, {"number": b"%d" % n}) for n, each in rows]

    def trim(self, number: int) -> None:
        self.delete(sql.SQL("number < {}").format(sql.Literal(number)))  # type: ignore[arg-type]


def _without_place(relay: Relay, rows: Sequence[Row], beginning: Beginning) -> None:
    """A planted defect: the place follows in a transaction of its own."""
    for transaction in (rows, ()):
        relay._producer.begin_transaction()
        for row in transaction:
            relay._produce(row.topic, row.key, row.value, row.headers)
        if not transaction:
            place = Place(rows[-1].number, rows[-1].id, beginning.id)
            relay._produce(RELAY_PLACES, relay.feed.name.encode(), place.as_json(), {})
        faults.reach("relay.sent")
        relay._producer.commit_transaction()
        faults.reach("relay.committed")
    relay.place = place


def _replace(name: str, function: Callable[..., Any]) -> None:
    assert hasattr(Relay, name), f"{name} has another name now: the planted defect would be none"
    setattr(Relay, name, function)


DISARM: dict[str, Callable[[], None]] = {"place": lambda: _replace("_publish", _without_place)}


def work(settings: Settings, name: str, until: int) -> None:
    """Publish with one relay until row `until` is published."""
    with database.connect(settings, autocommit=True) as connection:
        feed = TableFeed(connection, name)
        create_topic(settings, KafkaUser.RELAY, feed.topic, {})
        with Relay(settings, KafkaUser.RELAY, feed) as relay:
            while relay.place is None or relay.place.number < until:
                if not relay.publish():
                    threading.Event().wait(0.05)
                log.warning("published to %s", relay.place)


def main(name: str, until: str, *disarmed: str) -> int:
    for each in disarmed:
        DISARM[each]()
    while True:
        try:
            work(Settings(), name, int(until))
            log.warning("done")
            return 0
        except (psycopg.Error, ServiceDown) as error:
            log.warning("failed: %s: %s", type(error).__name__, error)
            threading.Event().wait(0.2)
        except (Fenced, Resync) as error:
            log.warning("%s: %s", type(error).__name__, error)
            return FENCED if isinstance(error, Fenced) else RESYNC


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
