"""Run a view over a list of events in every way: as a batch, as a stream, and as a shuffled stream.

All ways are cases in one run of the laws' lab, because a Spark job takes a second regardless of its size.
"""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from tests.laws.events import START, Record
from tests.laws.lab import PARTITIONS, Lab
from tests.laws.with_case import CASE
from truelog import Group, View
from truelog.log.ticks import TOPIC as TICKS
from truelog.storage.database import names
from truelog.support import timestamps
from truelog.views.compiled_view import CompiledView
from truelog.views.copies import SEEN

WAYS = ("batch", "stream", "shuffled")
_MOST = 5  # micro-batches of an example, because each takes seconds

Row = dict[str, Any]
Relations = dict[str | None, list[Row]]  # by relation; None is the view itself


@dataclass(frozen=True)
class Sent:
    """A record as a producer sends it: its topic and its bytes, and when the broker appends it."""

    topic: str
    value: bytes
    appended_at: datetime = START

    @property
    def second(self) -> int:
        """When the broker appends the record, from `START` on."""
        return round((self.appended_at - START).total_seconds())


def sent(topic: str, **fields: Any) -> Sent:
    """An event of the topic's type, with a default id and a default time."""
    defaults = {"event_id": "an-id", "occurred_at": START}
    return Sent(topic, json.dumps(defaults | fields, default=timestamps.to_text).encode())


def ticked(time: str) -> Sent:
    """A tick at that time, which counts at the end of the events."""
    return Sent(TICKS, b"", at(time))


def at(time: str) -> datetime:
    """`at("10:00:05")`: that time in UTC, on the day of all examples."""
    return datetime.combine(START, datetime.strptime(time, "%H:%M:%S").time(), UTC)


@dataclass
class Ways:
    """Runs a view over events in every way and caches the rows, so that each way can be a separate test."""

    cached: dict[tuple[str, tuple[Sent, ...]], dict[str, Relations]] = field(default_factory=dict)

    def relations(self, lab: Lab, name: str, view: View, events: list[Sent]) -> dict[str, Relations]:
        key = (name, tuple(events))
        if key not in self.cached:
            self.cached[key] = _every_way(lab, name, view, events)
        return self.cached[key]


def _every_way(lab: Lab, name: str, view: View, events: list[Sent]) -> dict[str, Relations]:
    """Rebuild in one batch; stream the events in micro-batches; stream them shuffled over several partitions.

    If there are few events, each is a micro-batch.
    """
    clock = max((e.appended_at for e in events if e.topic == TICKS), default=None)
    events = [e for e in events if e.topic != TICKS]
    shuffled = random.Random(len(events)).sample(events, len(events))
    cuts = [number * min(_MOST, len(events)) // len(events) for number in range(len(events))]
    in_order = [Record(e.topic, 0, e.value, cut, e.second) for cut, e in zip(cuts, events, strict=True)]
    out_of_order = [Record(e.topic, number % 3, e.value, cuts[number], e.second) for number, e in enumerate(shuffled)]
    lab.compare_all(name, view, [in_order, out_of_order])
    read = Reader(lab, name, view, clock)
    return {"batch": read(0), "stream": read(0, "_streamed"), "shuffled": read(1, "_streamed")}


@dataclass(frozen=True)
class Reader:
    """Reads lab cases the way readers see them: the view ordered by key, and relations ordered by their columns.

    Relations see the `clock` as the clock of the log.
    """

    lab: Lab
    name: str
    view: View
    clock: datetime | None = None

    def __call__(self, case: int, streamed: str = "") -> Relations:
        tables = [self._as_shown(each, case, streamed) for each in self.compiled.tables]
        as_shown = sql.SQL("WITH {} ").format(sql.SQL(", ").join(tables))
        named = {"view": "shown"} | {each.side: f"shown_{each.side}" for each in self.compiled.sides}
        named["clock"] = sql.Literal(self.clock).as_string(self.lab.connection)
        queries = {None: sql.SQL("SELECT * FROM shown ORDER BY {}").format(names(list(self.view.key)))} | {
            relation: sql.SQL(f"SELECT * FROM ({select.format(**named)}) AS row ORDER BY row")
            for relation, select in self.view.present.items()
        }
        with self.lab.connection.cursor(row_factory=dict_row) as cursor:
            return {relation: cursor.execute(as_shown + query).fetchall() for relation, query in queries.items()}

    def _as_shown(self, table: CompiledView, case: int, streamed: str) -> sql.Composed:
        """One of the view's tables, as readers see it, without the case."""
        columns = {column: shown for column, shown in table.shown.items() if column != CASE}
        of_case = sql.SQL("{} = {}").format(sql.Identifier(CASE), case)
        if table.side == SEEN:  # no two cases share a partition
            of_case = sql.SQL("partition / {} = {}").format(PARTITIONS, case)
        elif isinstance(self.view, Group):  # the case is a prefix of the group's first column
            first = self.view.by[0]
            columns[first] = f'substr("{first}", {len(str(case)) + 2})'
            of_case = sql.SQL("{} LIKE {}").format(sql.Identifier(first), f"{case}|%")
        of_case = sql.SQL("{} AND {}").format(of_case, sql.SQL(table.shown_if))
        shown = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in columns.items())
        return sql.SQL("{} AS (SELECT {} FROM {} WHERE {})").format(
            sql.Identifier(f"shown_{table.side}" if table.side else "shown"),
            sql.SQL(", ").join(shown),
            sql.Identifier("recon", f"{table.table}{streamed}"),
            of_case,
        )

    @cached_property
    def compiled(self) -> CompiledView:
        return self.lab.by_case(self.name, self.view)
