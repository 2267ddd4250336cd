"""A captured table with a column of each type, and how its values arrive."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from psycopg.rows import dict_row

from runtime.postgresql import admin
from tests.deadline import until
from tests.scenes.captured_shop import CapturedShop, changes_of
from truelog.capture import comparison, connector, snapshot, source_table, worker
from truelog.log import topics
from truelog.schema.change import Change
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_event
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NAME = "kinds"
DECLARATION = """
from datetime import datetime
from truelog import Change, Topic
TOPIC = Topic(key="id", subject=(), partitions=1, retention="7 days", compacted=True, source="public.kinds")
class Kinds(Change):
    id: int | None = None
    small: int | None = None
    whole: int | None = None
    single: float | None = None
    double: float | None = None
    instant: datetime | None = None
    local: datetime | None = None
    day: datetime | None = None
    note: str | None = None
    short: str | None = None
    number: str | None = None
    price: str | None = None
    uid: str | None = None
    document: str | None = None
    binary_document: str | None = None
    mood: str | None = None
    bytes: str | None = None
    tags: list[str] | None = None
    codes: list[str] | None = None
"""
TABLE = (
    "CREATE TYPE mood AS ENUM ('good', 'so so')",
    "CREATE TABLE kinds (id bigint PRIMARY KEY, small smallint, whole integer, single real, double double precision, "
    "instant timestamptz, local timestamp, day date, note text, short varchar(9), number numeric, price numeric(9, 2), "
    "uid uuid, document json, binary_document jsonb, mood mood, bytes bytea, tags text[], codes varchar(9)[])",
)
LONG = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n)"
LONG_TAGS = "(SELECT array_agg(md5(n::text)) FROM generate_series(1, 400) n)"
ROWS = {
    "nothing but a key": "INSERT INTO kinds (id) VALUES (1)",
    "usual values": """INSERT INTO kinds VALUES (2, 1, 2, 0.1, 0.1, '2020-02-29 12:00:00.000001+02',
        '2020-02-29 23:59:59.999999', '2020-02-29', 'ä "b" \n\t', 'x', 12.50, 12.5,
        '6B29FC40-CA47-1067-B31D-00DD010662DA', '{"a" : [1,  null], "a": 2}', '{"b": 1.10, "a": "ä"}', 'so so',
        '\\x00ff10', '{"a,b", "", "c\\"d", "NULL", ä}', '{x,y}')""",
    "the least values": """INSERT INTO kinds VALUES (-9223372036854775808, -32768, -2147483648, '-3.4028235e38',
        '-1.7976931348623157e308', '0001-01-01 00:00:00+00', '0001-01-01', '0001-01-01', '', '', -1e40, -9999999.99,
        '00000000-0000-0000-0000-000000000000', 'null', '{}', 'good', '', '{}', '{}')""",
    "the greatest values": """INSERT INTO kinds VALUES (9223372036854775807, 32767, 2147483647, '3.4028235e38',
        '1.7976931348623157e308', '9999-12-31 23:59:59.999999+00', '9999-12-31 23:59:59.999999', '9999-12-31', 'z',
        'zzzzzzzzz', 1e-40, 9999999.99, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '[]', '[]', 'good', '\\xff',
        '{z}', '{z}')""",
    "the smallest number": "INSERT INTO kinds (id, double) VALUES (3, '5e-324')",
    "numbers that Java and PostgreSQL write as different decimals": "INSERT INTO kinds (id, single) VALUES "
    "(6, '1e-45'), (7, '-3e-45'), (8, '1.1754944e-38'), (9, '2e-44')",
    "an array that begins with another number": "INSERT INTO kinds (id, tags) VALUES (10, '[5:6]={a,b}')",
    "long values": f"INSERT INTO kinds (id, note, binary_document, bytes, tags) "
    f"SELECT 4, {LONG}, to_jsonb({LONG_TAGS}), decode({LONG}, 'hex'), {LONG_TAGS}",
    "long values that an update leaves alone": f"INSERT INTO kinds (id, note, binary_document, bytes, tags) "
    f"SELECT 5, {LONG}, to_jsonb({LONG_TAGS}), decode({LONG}, 'hex'), {LONG_TAGS}",
}
NESTED = "INSERT INTO kinds (id, codes) VALUES (30, '{{a,b},{c,d}}')"
NEVER = {
    "double": "INSERT INTO kinds (id, double) VALUES (21, 'NaN')",
    "single": "INSERT INTO kinds (id, single) VALUES (22, '-Infinity')",
    "day": "INSERT INTO kinds (id, day) VALUES (23, 'infinity')",
    "instant": "INSERT INTO kinds (id, instant) VALUES (24, '0044-03-15 00:00:00+00 BC')",
    "tags": "INSERT INTO kinds (id, tags) VALUES (25, '{a,NULL}')",
    "codes": "INSERT INTO kinds (id, codes) VALUES (26, '{{{a},{b}}}')",
}


@dataclass(frozen=True)
class Kinds:
    """The table, and the records of its topic."""

    settings: Settings
    event_type: EventType

    def run(self, *statements: str) -> None:
        with admin(self.settings, self.settings.source_database) as session:
            for each in statements:
                session.execute(each.encode())

    def table(self) -> dict[int, dict[str, Any]]:
        """The rows of the table, with each value in the form that a view has."""
        with comparison._session(self.settings.source()) as session, session.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(
                comparison._table_rows(self.event_type, comparison._types(session, self.event_type))
            ).fetchall()
        return {each.pop("row_key"): _with_reals(each) for each in rows}

    def changes(self) -> list[dict[str, Any]]:
        """Wait for a message that is later than the table's changes, and return all records, decoded."""
        with comparison._session(self.settings.source()) as session:
            [[end]] = session.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
        found: list[dict[str, Any]] = []

        def captured() -> None:
            found[:] = changes_of(self.settings, self.event_type)
            if max((each["source_lsn"] or 0 for each in found), default=0) < end:
                raise ServiceDown("the changes have not reached the topic")

        until(captured, 60, "the changes of the table")
        return found


def row_of(event: dict[str, Any]) -> dict[str, Any]:
    return _with_reals({name: event[name] for name in _columns(event)})


def _with_reals(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its `real` as a `real`, whatever decimal number it was written as."""
    return row if row["single"] is None else row | {"single": np.float32(row["single"])}


def _columns(event: dict[str, Any]) -> list[str]:
    own = {*Change.model_fields, "event_time", "event_date", "invalid", "broker_time"}
    return [name for name in event if name not in own]


@contextmanager
def captured_kinds(shop: CapturedShop, folder: Path) -> Iterator[Kinds]:
    """The table with its first rows, captured by a connector of its own."""
    (folder / f"{NAME}.py").write_text(DECLARATION)
    event_type = load_event(folder / f"{NAME}.py")
    kinds = Kinds(shop.settings, event_type)
    kinds.run(*TABLE, *ROWS.values(), NESTED)
    with admin(shop.settings, shop.settings.source_database) as session:
        for each in source_table.preparation(session, event_type, shop.settings.source_user):
            session.execute(each)
        session.execute(source_table.create_publication(shop.settings.names, event_type))
        assert source_table.problem(session, shop.settings.names, event_type) is None
    topics.sync_topics(shop.settings, {NAME: event_type})
    worker.apply(shop.settings, connector.configuration(shop.settings, event_type, 1))
    try:
        yield kinds
    finally:
        worker.ask(shop.settings, "DELETE", f"/connectors/{NAME}")
        with admin(shop.settings, shop.settings.source_database) as session:
            snapshot._drop_slot(session, source_table.publication(shop.settings.names, event_type))
