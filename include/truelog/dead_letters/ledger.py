"""The replay ledger: which dead letters were sent again, and to which offsets.

A row in PostgreSQL reserves a dead letter before it is sent, and contains the end offsets of the target topic at that
time. If the sender dies before it confirms the reservation, its successor searches the log from those offsets for the
dead letter's coordinates, which every replayed record has in a header. The search continues in the archive if the log
has dropped records.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from truelog.archive.analyst import open_dataset
from truelog.archive.table import archived_positions, open_catalog
from truelog.control import event_registry
from truelog.dead_letters.store import Coordinates
from truelog.log import kafka_reader, topics
from truelog.log.positions import Positions
from truelog.schema.event import EventType
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind
from truelog.support.settings import Settings
from truelog.support.wait import until

HEADER = "truelog.dead-letter"  # the coordinates of the dead letter that a record replays

_LETTER = re.compile(r"([^:]+):(\d{1,9}):(\d{1,18})")
_READABLE_SECONDS = 60.0  # how long a search waits for the transactions of other producers

Place = tuple[int, int]  # partition and offset in the target topic


@dataclass(frozen=True)
class Reservation:
    """A dead letter that was sent or is about to be sent. `place` is None until the sender has confirmed it."""

    letter: Coordinates
    topic: str
    begin: Positions  # the end of the target topic when the dead letter was reserved
    place: Place | None


def find_reservations(connection: Connection, letters: Iterable[Coordinates]) -> dict[Coordinates, Reservation]:
    """The reservations of these dead letters."""
    ids, partitions, offsets = zip(*letters, strict=True) if letters else ((), (), ())
    rows = connection.execute(
        f'{_SELECT} JOIN unnest(%s::text[], %s::integer[], %s::bigint[]) AS wanted (topic_id, partition, "offset") '
        'USING (topic_id, partition, "offset")',
        (list(ids), list(partitions), list(offsets)),
    ).fetchall()
    return {found.letter: found for found in map(_reservation, rows)}


def unconfirmed(connection: Connection) -> list[Reservation]:
    """The reservations whose sender has not confirmed them."""
    return [_reservation(row) for row in connection.execute(f"{_SELECT} WHERE sent_offset IS NULL").fetchall()]


def reserve(connection: Connection, letters: Mapping[Coordinates, str], ends: Positions, doer: str) -> None:
    """Reserve dead letters, each with its target topic, before they are sent."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO truelog.replay (topic_id, partition, "offset", target, "begin", doer) '
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [(*letter, topic, ends.only([topic]).with_ids(), doer) for letter, topic in letters.items()],
        )


def confirm(connection: Connection, sent: Mapping[Coordinates, Place]) -> None:
    """Record where the log contains the replayed records."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE truelog.replay SET sent_partition = %s, sent_offset = %s, sent_at = now() "
            'WHERE (topic_id, partition, "offset") = (%s, %s, %s)',
            [(*place, *letter) for letter, place in sent.items()],
        )


def release(connection: Connection, letters: Sequence[Coordinates]) -> None:
    """Remove the reservations of dead letters that were not sent."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            'DELETE FROM truelog.replay WHERE (topic_id, partition, "offset") = (%s, %s, %s) AND sent_offset IS NULL',
            letters,
        )


def settle(connection: Connection, settings: Settings, types: Mapping[str, EventType]) -> dict[Coordinates, str]:
    """Confirm or release each unconfirmed reservation, and return the rest with the reasons.

    The caller must have excluded every other sender, so that no record can still arrive in the log.
    """
    unknown = dict[Coordinates, str]()
    by_topic = dict[tuple[str, str], list[Reservation]]()
    for each in unconfirmed(connection):
        by_topic.setdefault((each.topic, each.begin.ids[each.topic]), []).append(each)
    existing = topics.existing_topics(topics.client(settings))
    for (topic, topic_id), reservations in by_topic.items():
        if topic in types and topic in existing and topics.topic_ids(settings, [topic])[topic] == topic_id:
            found = _search(settings, types[topic], reservations)
            confirm(connection, found)
            release(connection, [each.letter for each in reservations if each.letter not in found])
        else:
            why = f"an interrupted replay may have sent it to {topic}, which was deleted since"
            unknown |= {each.letter: why for each in reservations}
    return unknown


def restore(settings: Settings) -> int:
    """Add the replays that a database from a backup lacks, and return their number.

    Every record of the archive is searched, and then the log from the end of the archive. Run it again after a crash.
    """
    broker, added = topics.client(settings), 0
    with connect(settings, autocommit=True) as connection:
        registered = event_registry.histories(connection)
        for topic in topics.existing_topics(broker) & registered.keys():
            places = _archived_places(settings, registered[topic].event_type(), ds.field("headers").is_valid())
            begin = topics.begins(broker, [topic]).latest(archived_positions(settings, [topic]))
            places |= _logged_places(settings, begin, topics.ends(broker, [topic]))
            added += _add(connection, topic, begin.ids[topic], places)
    return added


def _add(connection: Connection, topic: str, topic_id: str, places: Mapping[str, Place]) -> int:
    """Add confirmed rows for the dead letters that have none, and confirm the others."""
    added = 0
    for letter, (partition, offset) in places.items():
        found = _LETTER.fullmatch(letter)
        if found is None:  # another producer wrote the header
            continue
        begin = Positions({topic: {partition: offset}}, {topic: topic_id})
        added += connection.execute(
            'INSERT INTO truelog.replay (topic_id, partition, "offset", target, "begin", doer, sent_partition, '
            "sent_offset, sent_at) VALUES (%s, %s, %s, %s, %s, 'archive adopt', %s, %s, now()) "
            'ON CONFLICT (topic_id, partition, "offset") DO UPDATE SET sent_partition = excluded.sent_partition, '
            "sent_offset = excluded.sent_offset, sent_at = now() WHERE replay.sent_offset IS NULL",
            (found[1], int(found[2]), int(found[3]), topic, begin.with_ids(), partition, offset),
        ).rowcount
    return added


def _search(settings: Settings, event_type: EventType, reservations: Sequence[Reservation]) -> dict[Coordinates, Place]:
    """The places of the replayed records, from the log and, below the log's first offsets, from the archive."""
    topic, broker = event_type.name, topics.client(settings)
    begin = reservations[0].begin
    for each in reservations:
        begin = begin.earliest(each.begin)
    first, ends = topics.begins(broker, [topic]), topics.ends(broker, [topic])
    places = dict[str, Place]()
    until(
        lambda: places.update(_logged_places(settings, begin.latest(first), ends)),
        _READABLE_SECONDS,
        f"the records of {topic}",
    )
    if dropped := begin.ranges_to(first):
        if not archived_positions(settings, [topic]).covers(first):
            raise ArchiveBehind(f"the archive of {topic} has not reached the first record in the log yet")
        for part in dropped:
            inside = (ds.field("offset") >= part.start) & (ds.field("offset") < part.end)
            places |= _archived_places(settings, event_type, inside & (ds.field("partition") == part.partition))
    return {each.letter: places[str(each.letter)] for each in reservations if str(each.letter) in places}


def _logged_places(settings: Settings, begin: Positions, ends: Positions) -> dict[str, Place]:
    places = dict[str, Place]()
    for part in begin.ranges_to(ends):
        for message in kafka_reader.messages(settings, part.topic, part.partition, part.start, part.end):
            places |= _places(kafka_reader.headers_of(message), (part.partition, message.offset() or 0))
    return places


def _archived_places(settings: Settings, event_type: EventType, condition: ds.Expression) -> dict[str, Place]:
    places = dict[str, Place]()
    with open_catalog(settings) as catalog:
        columns = ["partition", "offset", "headers"]
        for batch in open_dataset(catalog, event_type).to_batches(columns=columns, filter=condition):
            for partition, offset, headers in zip(*map(pa.Array.to_pylist, batch.columns), strict=True):
                places |= _places([(each["key"], each["value"]) for each in headers or ()], (partition, offset))
    return places


def _places(headers: Iterable[tuple[str, bytes | str | None]], place: Place) -> dict[str, Place]:
    """The place of each dead letter that the headers name."""
    ours = (value for key, value in headers if key == HEADER and isinstance(value, bytes))
    return {value.decode(errors="replace"): place for value in ours}


_SELECT = 'SELECT topic_id, partition, "offset", target, "begin", sent_partition, sent_offset FROM truelog.replay'


def _reservation(row: Sequence[Any]) -> Reservation:
    topic_id, partition, offset, target, begin, sent_partition, sent_offset = row
    place = None if sent_offset is None else (sent_partition, sent_offset)
    return Reservation(Coordinates(topic_id, partition, offset), target, Positions.from_text(begin), place)
