"""The rows of captured tables whose last change is invalid: their views have an earlier value, or lack the row.

The changes that came to a topic since the last look are judged as the stream judges them. A later valid change of the
row, a truncation, or the end of a later snapshot makes the view right again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from truelog.log import range_reader, topics
from truelog.log.positions import Range
from truelog.schema.change import row_and_place
from truelog.schema.event import EventType
from truelog.schema.event_version import judge
from truelog.schema.record_validation import TOMBSTONE
from truelog.storage.database import Connection
from truelog.support.settings import KafkaUser, Settings

_MOST = 20_000  # offsets at each look


@dataclass(frozen=True)
class InvalidChange:
    """The last change of a row, which is invalid. `key` is empty if the record does not say which row it changes."""

    key: str
    place: str
    reason: str


def follow(settings: Settings, connection: Connection, event_type: EventType) -> None:
    """Judge the changes that came since the last look, and record the rows whose last change is invalid."""
    name = event_type.name
    begin, end = _checked(connection, name), topics.end_offsets(settings, [name]).at(name, 0)
    first = topics.earliest_offsets(settings, [name]).at(name, 0)
    begin = first if begin > end else max(begin, first)  # a topic that was made again begins again
    until = min(end, begin + _MOST)
    if begin == until:
        return
    before = load(connection, [name]).get(name, {})
    after = before
    for records in range_reader.read(settings.kafka(KafkaUser.READER), [Range(name, 0, begin, until)]):
        after = folded(event_type, records, after)
    with connection.transaction():
        _store(connection, name, before, after)
        connection.execute("UPDATE truelog.capture SET checked_offset = %s WHERE event_type = %s", (until, name))


def load(connection: Connection, names: Iterable[str]) -> dict[str, dict[str, InvalidChange]]:
    """The invalid changes of each of these tables, by key."""
    query = "SELECT event_type, key, place, reason FROM truelog.invalid_change WHERE event_type = ANY(%s) ORDER BY key"
    found: dict[str, dict[str, InvalidChange]] = {}
    for name, *values in connection.execute(query, (list(names),)).fetchall():
        change = InvalidChange(*map(str, values))
        found.setdefault(str(name), {})[change.key] = change
    return found


def folded(
    event_type: EventType, records: pa.RecordBatch, before: Mapping[str, InvalidChange]
) -> dict[str, InvalidChange]:
    """The invalid changes after these records, which have the columns of `range_reader.RAW`."""
    found = dict(before)
    wanted = [str(event_type.topic.key), "source_place", "source_closes"]
    judged = judge(event_type, records, wanted).to_pylist()
    for value, change in zip(records["value"].to_pylist(), judged, strict=True):
        if change["invalid"] == TOMBSTONE:
            continue
        if change["invalid"] is not None:
            key, place = row_and_place(event_type, value)
            if key not in found or found[key].place <= place:
                found[key] = InvalidChange(key, place, change["invalid"])
        elif change["source_closes"]:
            found = {key: each for key, each in found.items() if each.place >= change["source_place"]}
        elif (key := str(change[wanted[0]])) in found and found[key].place <= change["source_place"]:
            del found[key]
    return found


def _checked(connection: Connection, name: str) -> int:
    found = connection.execute("SELECT checked_offset FROM truelog.capture WHERE event_type = %s", (name,)).fetchone()
    return 0 if found is None else int(str(found[0]))


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
