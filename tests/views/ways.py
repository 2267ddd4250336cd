"""Events in, rows out: one list of events taken by a view in every way in which it may come.

All ways go through the lab of the laws at once, as cases of one run: a Spark job costs a second, whatever it holds.
"""

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from tests.laws.events import START, Record
from tests.laws.lab import Lab
from truelog import View, instants
from truelog.database import names

WAYS = ("batch", "stream", "shuffled")

Row = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A record as a producer sends it: its topic, and its bytes."""

    topic: str
    value: bytes


def sent(topic: str, **fields: Any) -> Sent:
    """An event of that type; an id and a time are made up where none is given."""
    given = {"event_id": "an-id", "occurred_at": START} | fields
    return Sent(topic, json.dumps(given, default=instants.text).encode())


def at(time: str) -> datetime:
    """`at("10:00:05")`: that time, UTC, on the day on which all examples happen."""
    return datetime.combine(START, datetime.strptime(time, "%H:%M:%S").time(), UTC)


@dataclass
class Ways:
    """Runs a view over events in every way, and remembers the rows, so that each way can be asked by itself."""

    ran: dict[tuple[str, tuple[Sent, ...]], dict[str, list[Row]]] = field(default_factory=dict)

    def rows(self, lab: Lab, name: str, view: View, events: list[Sent]) -> dict[str, list[Row]]:
        asked = (name, tuple(events))
        if asked not in self.ran:
            self.ran[asked] = _every_way(lab, name, view, events)
        return self.ran[asked]


def _every_way(lab: Lab, name: str, view: View, events: list[Sent]) -> dict[str, list[Row]]:
    """Rebuilt at once; each event its own micro-batch; the same in another order and over several partitions."""
    shuffled = random.Random(len(events)).sample(events, len(events))
    in_order = [Record(e.topic, 0, e.value, cut) for cut, e in enumerate(events)]
    out_of_order = [Record(e.topic, cut % 3, e.value, cut) for cut, e in enumerate(shuffled)]
    lab.compare_all(name, view, [in_order, out_of_order])
    return {
        "batch": rows(lab, name, view, 0),
        "stream": rows(lab, name, view, 0, streamed=True),
        "shuffled": rows(lab, name, view, 1, streamed=True),
    }


def rows(lab: Lab, name: str, view: View, case: int, *, streamed: bool = False) -> list[Row]:
    """The rows of a case that the lab ran, as readers see them, in the order of the key."""
    shown = lab.compiled(name, view).shown
    query = sql.SQL("SELECT {shown} FROM {table} WHERE case_id = %s ORDER BY {key}").format(
        shown=sql.SQL(", ").join(sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in shown.items()),
        table=sql.Identifier("recon", f"{name}_by_case_v{view.version}{'_streamed' if streamed else ''}"),
        key=names(list(view.key)),
    )
    with lab.connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, (case,)).fetchall()
