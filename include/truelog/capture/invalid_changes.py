"""The rows of captured tables whose last change is invalid: their views have an earlier value, or lack the row.

The changes that came to a topic since the last look are judged as the stream judges them, and all changes again in
another reading of the event type. A later valid change of the row, a truncation, or the end of a later snapshot makes
the view right again. A look reads portions of the topic until its time is over, and the rows that are stored for the
keys of each portion.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import pyarrow as pa

from truelog.log import range_reader, topics
from truelog.log.positions import Range
from truelog.schema.change import key_text, row_and_place
from truelog.schema.event import EventType
from truelog.schema.event_version import judge
from truelog.schema.record_validation import TOMBSTONE
from truelog.storage.database import Connection, read_value
from truelog.support.settings import KafkaUser, Settings

_PORTION = 20_000  # offsets
_SHOWN = 3  # rows


@dataclass(frozen=True)
class InvalidChange:
    """The last change of a row, which is invalid. `key` is empty if the record does not say which row it changes."""

    key: str
    place: str
    reason: str


@dataclass(frozen=True)
class Judged:
    """A change. `key` is None if it is about no row. `closes` says whether every row with an earlier place is gone."""

    key: str | None
    place: str
    reason: str | None = None
    closes: bool = False


@dataclass(frozen=True)
class Summary:
    """The number of rows, the reasons of the first ones, and how many offsets of the topic were not judged yet."""

    rows: int = 0
    reasons: tuple[str, ...] = ()
    unjudged: int = 0


def follow(settings: Settings, connection: Connection, event_type: EventType, seconds: float) -> None:
    """Judge the changes that came since the last look, and record the rows whose last change is invalid.

    No portion of the topic begins after this many seconds, and the next look goes on there.
    """
    until = monotonic() + seconds
    while _follow_portion(settings, connection, event_type) and monotonic() < until:
        pass


def _follow_portion(settings: Settings, connection: Connection, event_type: EventType) -> bool:
    """Judge the next changes. False at the end of the topic, or if another look has begun another reading meanwhile."""
    name = event_type.name
    begin, end = _checked(connection, event_type), topics.end_offsets(settings, [name]).at(name, 0)
    first = topics.earliest_offsets(settings, [name]).at(name, 0)
    begin = first if begin > end else max(begin, first)  # a topic that was made again begins again
    until = min(end, begin + _PORTION)
    if begin == until:
        return False
    portion = range_reader.read(settings.kafka(KafkaUser.READER), [Range(name, 0, begin, until)])
    changes = [change for records in portion for change in judged(event_type, records)]
    with connection.transaction():
        advanced = connection.execute(
            "UPDATE truelog.capture SET checked_offset = %s, unjudged = %s "
            "WHERE event_type = %s AND checked_reading = %s",
            (until, end - until, name, event_type.reading),
        )
        if not advanced.rowcount:
            return False
        record(connection, name, changes)
    return until < end


def record(connection: Connection, name: str, changes: Sequence[Judged]) -> None:
    """Record what the changes of a table, in the order of the topic, say about its rows."""
    before = _of_keys(connection, name, {each.key for each in changes if each.key is not None})
    _store(connection, name, before, folded(changes, before))
    closed = max((each.place for each in changes if each.closes), default="")
    connection.execute("DELETE FROM truelog.invalid_change WHERE event_type = %s AND place < %s", (name, closed))


def load(connection: Connection, name: str) -> list[InvalidChange]:
    """The invalid changes of a table, by key."""
    query = "SELECT key, place, reason FROM truelog.invalid_change WHERE event_type = %s ORDER BY key"
    return [InvalidChange(*map(str, values)) for values in connection.execute(query, (name,)).fetchall()]


def summaries(connection: Connection, names: Iterable[str]) -> dict[str, Summary]:
    """What is known about the invalid changes of each of these tables, except tables that were never captured."""
    query = (
        "SELECT event_type, (SELECT count(*) FROM truelog.invalid_change AS i WHERE i.event_type = c.event_type), "
        "ARRAY(SELECT reason FROM truelog.invalid_change AS i WHERE i.event_type = c.event_type "
        "ORDER BY key LIMIT %s), unjudged FROM truelog.capture AS c WHERE event_type = ANY(%s)"
    )
    found = connection.execute(query, (_SHOWN, list(names))).fetchall()
    return {name: Summary(rows, tuple(dict.fromkeys(reasons)), unjudged) for name, rows, reasons, unjudged in found}


def judged(event_type: EventType, records: pa.RecordBatch) -> list[Judged]:
    """These records, which have the columns of `range_reader.RAW`, without tombstones."""
    found = []
    wanted = [str(event_type.topic.key), "source_place", "source_closes"]
    rows = judge(event_type, records, wanted).to_pylist()
    for value, row in zip(records["value"].to_pylist(), rows, strict=True):
        if row["invalid"] is None:
            key = None if row[wanted[0]] is None else key_text(row[wanted[0]])
            found.append(Judged(key, row["source_place"], closes=row["source_closes"]))
        elif row["invalid"] != TOMBSTONE:
            found.append(Judged(*row_and_place(event_type, value), row["invalid"]))
    return found


def folded(changes: Iterable[Judged], before: Mapping[str, InvalidChange]) -> dict[str, InvalidChange]:
    """The invalid changes after these changes."""
    found = dict(before)
    for each in changes:
        if each.closes:
            found = {key: row for key, row in found.items() if row.place >= each.place}
        elif each.key is not None and (each.key not in found or found[each.key].place <= each.place):
            found.pop(each.key, None)
            if each.reason is not None:
                found[each.key] = InvalidChange(each.key, each.place, each.reason)
    return found


def _checked(connection: Connection, event_type: EventType) -> int:
    """Up to where the changes were judged. In another reading of the event type, all of them are judged again."""
    with connection.transaction():
        begun = connection.execute(
            "UPDATE truelog.capture SET checked_offset = 0, checked_reading = %(reading)s "
            "WHERE event_type = %(name)s AND checked_reading <> %(reading)s",
            {"name": event_type.name, "reading": event_type.reading},
        ).rowcount
        if begun:
            connection.execute("DELETE FROM truelog.invalid_change WHERE event_type = %s", (event_type.name,))
        query = "SELECT checked_offset FROM truelog.capture WHERE event_type = %s"
        return int(read_value(connection, query, (event_type.name,)) or 0)


def _of_keys(connection: Connection, name: str, keys: Iterable[str]) -> dict[str, InvalidChange]:
    query = "SELECT key, place, reason FROM truelog.invalid_change WHERE event_type = %s AND key = ANY(%s)"
    found = connection.execute(query, (name, list(keys))).fetchall()
    return {str(key): InvalidChange(str(key), str(place), str(reason)) for key, place, reason in found}


def _store(
    connection: Connection, name: str, before: Mapping[str, InvalidChange], after: Mapping[str, InvalidChange]
) -> None:
    gone = list(before.keys() - after.keys())
    connection.execute("DELETE FROM truelog.invalid_change WHERE event_type = %s AND key = ANY(%s)", (name, gone))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.invalid_change (event_type, key, place, reason) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (event_type, key) DO UPDATE SET place = EXCLUDED.place, reason = EXCLUDED.reason",
            [(name, each.key, each.place, each.reason) for key, each in after.items() if before.get(key) != each],
        )
