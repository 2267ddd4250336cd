"""Published views without Spark: real tables whose changes go into their outboxes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import sql
from pyspark.sql.types import BooleanType, DataType, IntegerType, StringType, TimestampType

from tests.builders.outputs import deploy_and_settle
from truelog import View
from truelog.kernel import merge
from truelog.measures.value import Value
from truelog.storage.database import Connection, names
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.table import Table
from truelog.views.patterns import Patterns
from truelog.views.searches import Searches

HITS, MATCHES = Searches(sources={}), Patterns(sources={}, most=1)
COLUMNS = {  # of each view: the key, and the other columns
    "search_hits": (HITS.key, HITS.values),
    "matches": (MATCHES.key, MATCHES.values),
    "cart": (("cart_id",), ("product", "quantity")),
    "sensor_alerts": (("sensor_id", "hour", "number"), ("readings", "is_last")),
}
TIME = "2026-03-01T03:00:00+00:00"
_NUMBERS = ("search_version", "rule_version", "quantity", "number", "readings")
_FLAGS = ("is_last",)
_TIMES = ("logged_at", "span_end", "hour", "event_time", "first_time", "last_time", "settled_after")


class FoundRows:
    """A deployed view. Each `change` is a transaction like a merge's."""

    def __init__(self, connection: Connection, name: str, *, publish: bool = True) -> None:
        key, values = COLUMNS[name]
        view = View(
            reads=("click",),
            transform=lambda click: click,
            key=key,
            measures={each: Value() for each in values},
            publish=publish,
        )
        types: dict[str, DataType] = {each: _type(each) for each in (*key, *values)}
        self.connection, self.name, self.key = connection, name, key
        self.compiled = CompiledView((Table(name, view, types, "found rows"),))
        deploy_and_settle(connection, self.compiled)

    def change(self, *rows: dict[str, Any], removed: tuple[dict[str, Any], ...] = ()) -> None:
        """Set these rows, and remove others, in one transaction."""
        table = sql.Identifier("state", self.compiled.own.name)
        with self.connection.transaction():
            merge.lock(self.connection, self.compiled)
            for row in (*removed, *rows):
                where = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(each)) for each in self.key)
                values = [row[each] for each in self.key]
                self.connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(table, where), values)
            for row in rows:
                places = sql.SQL(", ").join([sql.Placeholder()] * len(row))
                insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table, names(row), places)
                self.connection.execute(insert, list(row.values()))
            outbox.record_changes(self.connection, self.compiled)

    def empty(self) -> None:
        self.connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("state", self.compiled.own.name)))


@contextmanager
def found_rows(connection: Connection, name: str) -> Iterator[FoundRows]:
    view = FoundRows(connection, name)
    yield view
    view.empty()
    FoundRows(connection, name, publish=False)


def hit(document: str, search: str = "outages", version: int = 1, logged_at: str = TIME) -> dict[str, Any]:
    """A row of `search_hits`."""
    row = {"document": document, "logged_at": logged_at, "search": search, "search_version": version}
    return row | {"event_type": "post", "event_time": TIME, "snippet": f"Kafka is down: {document}"}


def match(
    match_id: str, entity_id: str = "ann", outcome: str = "found", settled_after: str | None = None
) -> dict[str, Any]:
    """A row of `matches`."""
    row: dict[str, Any] = {"entity_id": entity_id, "entity": "customer", "span_end": TIME, "match_id": match_id}
    row |= {"rule": "fraud", "rule_version": 1}
    row |= {"outcome": outcome, "first_time": TIME, "last_time": TIME, "settled_after": settled_after}
    return row | {"events": "[]", "shown": '{"amount": 12.50}'}


def cart(cart_id: str, quantity: int, product: str = "lamp") -> dict[str, Any]:
    """A row of `cart`."""
    return {"cart_id": cart_id, "product": product, "quantity": quantity}


def run(readings: int, *, is_last: bool) -> dict[str, Any]:
    """A row of `sensor_alerts`."""
    return {"sensor_id": "s1", "hour": TIME, "number": 1, "readings": readings, "is_last": is_last}


def _type(column: str) -> DataType:
    if column in _NUMBERS:
        return IntegerType()
    if column in _FLAGS:
        return BooleanType()
    return TimestampType() if column in _TIMES else StringType()
