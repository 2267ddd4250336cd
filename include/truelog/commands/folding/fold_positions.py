"""The positions of the folds: how far the states of keys contain the log, and by which code they were made."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from truelog.commands.catalogue import Catalogue
from truelog.control import event_registry
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown, Stale
from truelog.support.settings import Settings
from truelog.support.wait import until

_CONFIRM_SECONDS = 10.0


@dataclass
class Reading:
    """How far the topic of a fold is read."""

    topic_id: str
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FoldStatus:
    """How far a fold has read its topic, and the generation of its states."""

    generation: uuid.UUID
    code: str
    topic_id: str
    offsets: Mapping[int, int]


def begin(
    connection: Connection, settings: Settings, catalogue: Catalogue, events: Collection[str]
) -> dict[str, Reading]:
    """Where the reader continues the folds of these event types. One with other code or another topic begins again."""
    ends, began = topics.ends(topics.client(settings), events), event_registry.beginnings(connection)
    for event in sorted(events):
        first = {partition: began.at(event, partition) for partition in ends.offsets[event]}
        make_fold(connection, event, catalogue.codes[event], ends.ids[event], first)
    readings = {event: Reading(each.topic_id, dict(each.offsets)) for event, each in statuses(connection).items()}
    return {event: readings[event] for event in events}


def make_fold(connection: Connection, event: str, code: str, topic_id: str, first: Mapping[int, int]) -> None:
    """Make the states of a fold, unless they were made by the same code from the same topic.

    `first` contains the first offset of each partition that belongs to the log.
    """
    with connection.transaction():
        made = connection.execute(
            "INSERT INTO truelog.command_fold (event, code, topic_id) VALUES (%s, %s, %s) "
            "ON CONFLICT (event) DO UPDATE SET code = excluded.code, topic_id = excluded.topic_id, "
            "generation = gen_random_uuid() "
            "WHERE (command_fold.code, command_fold.topic_id) <> (excluded.code, excluded.topic_id)",
            (event, code, topic_id),
        )
        if made.rowcount:
            connection.execute("DELETE FROM truelog.command_position WHERE event = %s", (event,))
            connection.execute("DELETE FROM truelog.command_key WHERE event = %s", (event,))
        connection.execute(
            "INSERT INTO truelog.command_position (event, partition, next_offset) "
            "SELECT %s, * FROM unnest(%s::integer[], %s::bigint[]) ON CONFLICT DO NOTHING",
            (event, list(first), list(first.values())),
        )


def begin_again(connection: Connection, events: Iterable[str]) -> None:
    """Make the states of these event types again, because the log that they were made from has changed.

    A running reader fails, and the next one begins with an empty fold. Until it has read the log, nothing is decided.
    """
    names = sorted(events)
    with connection.transaction():
        connection.execute(
            "UPDATE truelog.command_fold SET generation = gen_random_uuid() WHERE event = ANY(%s)", (names,)
        )
        connection.execute("DELETE FROM truelog.command_position WHERE event = ANY(%s)", (names,))
        connection.execute("DELETE FROM truelog.command_key WHERE event = ANY(%s)", (names,))


def statuses(connection: Connection) -> dict[str, FoldStatus]:
    """How far each fold is, in one snapshot."""
    rows = connection.execute(
        "SELECT event, generation, code, topic_id, jsonb_object_agg(partition, next_offset) "
        "FROM truelog.command_fold JOIN truelog.command_position USING (event) GROUP BY event"
    )
    return {
        event: FoldStatus(generation, code, topic_id, {int(p): offset for p, offset in offsets.items()})
        for event, generation, code, topic_id, offsets in rows
    }


def lock_positions(connection: Connection, event: str, reading: Reading) -> None:
    """Lock the positions of a fold.

    Raises:
        Stale: they are not those of the reading, because another reader is running.
    """
    rows = connection.execute(
        "SELECT partition, next_offset FROM truelog.command_position WHERE event = %s ORDER BY partition FOR UPDATE",
        (event,),
    )
    stored: dict[int, int] = dict(rows)
    if stored != reading.offsets:
        raise Stale(f"The states of {event} are at {stored}, not at {reading.offsets}. Is another reader running?")


def advance(connection: Connection, event: str, ends: Mapping[int, int]) -> None:
    """Store how far the locked positions have advanced."""
    connection.execute(
        "UPDATE truelog.command_position AS p SET next_offset = r.next_offset "
        "FROM unnest(%s::integer[], %s::bigint[]) AS r (partition, next_offset) "
        "WHERE p.event = %s AND p.partition = r.partition",
        (list(ends), list(ends.values()), event),
    )


def confirm(
    connection: Connection, settings: Settings, catalogue: Catalogue, events: Collection[str]
) -> dict[str, uuid.UUID]:
    """The generations of the folds of these event types, as soon as their states contain the log up to its present end.

    An open transaction belongs to the log, because it may be about to commit.

    Raises:
        ServiceDown: the states do not contain the log within some seconds, or Kafka does not answer.
    """
    ends = topics.ends(topics.client(settings), events)
    generations: dict[str, uuid.UUID] = {}

    def read() -> None:
        found = statuses(connection)
        behind = [each for each in ends.offsets if not _contains(found.get(each), catalogue.codes[each], ends, each)]
        if behind:
            raise ServiceDown(f"{', '.join(behind)} have not been read to the end. Is the service `commands` running?")
        generations.update({event: found[event].generation for event in ends.offsets})

    until(read, _CONFIRM_SECONDS, "the states of commands")
    return generations


def _contains(fold: FoldStatus | None, code: str, ends: Positions, event: str) -> bool:
    """Whether the states of the fold were made by this code from this topic, up to the ends."""
    if fold is None or (fold.code, fold.topic_id) != (code, ends.ids[event]):
        return False
    return all(fold.offsets.get(partition, 0) >= end for partition, end in ends.offsets[event].items())
