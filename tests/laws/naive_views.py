"""Naive views, one for each way in which a row depends on events: added up, folded in order, matched, without copies.

A state grows by events and never loses one, as in the kernel. So a state that has counted a person cannot forget them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Event = Mapping[str, Any]
Place = tuple[int, int]  # partition, offset
Rows = dict[tuple[str, str], Any]


@dataclass(frozen=True)
class Placed:
    """A valid event and its place in the log."""

    place: Place
    event: Event


def merged(before: Rows, events: Iterable[Placed]) -> Rows:
    """All tables of all views after these further events, in the order of their places in each partition."""
    rows = dict(before)
    for each in events:
        _add_up(rows, each)
        _fold(rows, each)
        _match(rows, each)
        _count_once(rows, each)
    return rows


def _add_up(rows: Rows, each: Placed) -> None:
    key = ("cell", each.event["thing"])
    count, greatest, people = rows.get(key, (0, "", frozenset()))
    person = each.event["person_id"]
    rows[key] = (count + 1, max(greatest, person), people | {person})


def _fold(rows: Rows, each: Placed) -> None:
    key = ("inputs", each.event["thing"])
    inputs = tuple(sorted((*rows.get(key, ()), (each.place, each.event["person_id"]))))
    rows[key] = inputs
    rows["fold", each.event["thing"]] = "".join(person for _, person in inputs)


def _match(rows: Rows, each: Placed) -> None:
    """Counts the people who hold a thing that someone else holds too."""
    thing = each.event["thing"]
    holder = ("holder", f"{thing} {each.event['person_id']}")
    rows[holder] = max(each.place, rows.get(holder, each.place))
    holders = sum(1 for table, key in rows if table == "holder" and key.startswith(f"{thing} "))
    if holders > 1:
        rows["matches", thing] = holders * (holders - 1)


def _count_once(rows: Rows, each: Placed) -> None:
    seen = ("seen", f"{each.place[0]} {each.event['event_id']}")
    if seen not in rows:
        rows[seen] = each.place
        key = ("once", each.event["person_id"])
        rows[key] = rows.get(key, 0) + 1


def repaired(streamed: Rows, rebuilt: Rows) -> Rows:
    """The differing keys of each table, replaced by the rebuild's rows."""
    differing = {key for key in streamed.keys() | rebuilt.keys() if streamed.get(key) != rebuilt.get(key)}
    kept = {key: row for key, row in streamed.items() if key not in differing}
    return kept | {key: rebuilt[key] for key in differing if key in rebuilt}
