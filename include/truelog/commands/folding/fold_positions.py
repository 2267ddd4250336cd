"""The positions of the folds: how far the states of keys contain the log, and by which code they were made.

A fold without positions has no states that count: it was never begun, or its states were withdrawn.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event as Flag

from truelog.control import command_states
from truelog.storage.database import Connection, read_value
from truelog.support.errors import PartitionsAdded, Stale

_PORTION = 5_000  # states
_PAUSE_SECONDS = 0.05

_HAS_POSITIONS = "SELECT EXISTS (SELECT FROM truelog.command_position WHERE event = %s)"
_HAS_STATES = "SELECT EXISTS (SELECT FROM truelog.command_key WHERE event = %s)"
_DELETE = """
    DELETE FROM truelog.command_key WHERE (event, key) IN (
        SELECT event, key FROM truelog.command_key WHERE event = %s LIMIT %s FOR UPDATE SKIP LOCKED
    )
"""


@dataclass
class Reading:
    """How far the topic of a fold is read, and the generation of its states."""

    topic_id: str
    generation: uuid.UUID
    offsets: dict[int, int]


@dataclass(frozen=True)
class FoldStatus:
    """How far a fold has read its topic, and the generation of its states."""

    generation: uuid.UUID
    code: str
    topic_id: str
    offsets: Mapping[int, int]


def begin_fold(
    connection: Connection, event: str, code: str, topic_id: str, first: Mapping[int, int]
) -> Reading | None:
    """Where the reader continues a fold. It begins with the first offsets unless its states count.

    None if there are states that do not count, which `delete_withdrawn` must delete first. States do not count if they
    were withdrawn, or were made by other code or from another topic. `first` contains the first offset of each
    partition that belongs to the log.

    Raises:
        PartitionsAdded: the topic has a partition that the positions lack.
    """
    while True:
        fold = statuses(connection).get(event)
        if fold and fold.topic_id == topic_id and (added := sorted(first.keys() - fold.offsets.keys())):
            raise PartitionsAdded(
                f"partitions were added to {event} ({', '.join(map(str, added))}), so the events of a key may be in "
                "two partitions without a common order, and its states are read no further. Declare a new event type, "
                "and let the commands use it."
            )
        if fold and (fold.code, fold.topic_id) == (code, topic_id):
            return Reading(topic_id, fold.generation, dict(fold.offsets))
        if not _begin(connection, event, code, topic_id, first):
            return None


def _begin(connection: Connection, event: str, code: str, topic_id: str, first: Mapping[int, int]) -> bool:
    """Begin the fold. False if there are states that do not count, which must be deleted first."""
    with connection.transaction():
        connection.execute(command_states.LOCK)
        connection.execute(
            "INSERT INTO truelog.command_fold (event, code, topic_id) VALUES (%s, '', '') ON CONFLICT DO NOTHING",
            (event,),
        )
        fold = connection.execute("SELECT code, topic_id FROM truelog.command_fold WHERE event = %s", (event,))
        if fold.fetchone() != (code, topic_id):
            command_states.withdraw(connection, [event])
        if not read_value(connection, _HAS_POSITIONS, (event,)) and read_value(connection, _HAS_STATES, (event,)):
            return False
        connection.execute(
            "UPDATE truelog.command_fold SET code = %s, topic_id = %s WHERE event = %s", (code, topic_id, event)
        )
        connection.execute(
            "INSERT INTO truelog.command_position (event, partition, next_offset) "
            "SELECT %s, * FROM unnest(%s::integer[], %s::bigint[]) ON CONFLICT DO NOTHING",
            (event, list(first), list(first.values())),
        )
    return True


def delete_withdrawn(connection: Connection, event: str, stopped: Flag) -> None:
    """Delete the withdrawn states of an event type, until none is left, a reader has begun the fold again, or stopped.

    A portion skips states that a decision has locked, so it waits for no decision.
    """
    while not stopped.is_set():
        if _delete_portion(connection, event):
            continue
        if read_value(connection, _HAS_POSITIONS, (event,)) or not read_value(connection, _HAS_STATES, (event,)):
            return
        stopped.wait(_PAUSE_SECONDS)


def _delete_portion(connection: Connection, event: str) -> int:
    """Delete some of the withdrawn states, and return their number."""
    with connection.transaction():
        # With this lock, no reader begins the fold.
        connection.execute("SELECT FROM truelog.command_fold WHERE event = %s FOR SHARE", (event,))
        if read_value(connection, _HAS_POSITIONS, (event,)):
            return 0
        return connection.execute(_DELETE, (event, _PORTION)).rowcount


def begun(connection: Connection) -> set[str]:
    """The event types whose folds were begun once, also if their states are withdrawn now."""
    return {str(event) for (event,) in connection.execute("SELECT event FROM truelog.command_fold").fetchall()}


def statuses(connection: Connection) -> dict[str, FoldStatus]:
    """How far each fold is, in one snapshot. A fold whose states are withdrawn is left out."""
    rows = connection.execute(
        "SELECT event, generation, code, topic_id, jsonb_object_agg(partition, next_offset) "
        "FROM truelog.command_fold JOIN truelog.command_position USING (event) GROUP BY event"
    )
    return {
        event: FoldStatus(generation, code, topic_id, {int(p): offset for p, offset in offsets.items()})
        for event, generation, code, topic_id, offsets in rows
    }


def require_current(connection: Connection, event: str, reading: Reading) -> None:
    """Raise Stale if the states are withdrawn, or were since the reading."""
    fold = statuses(connection).get(event)
    if fold is None or fold.generation != reading.generation:
        raise Stale(f"The states of {event} were withdrawn. The reader begins again.")


def lock_positions(connection: Connection, event: str, reading: Reading) -> None:
    """Lock the positions of a fold.

    Raises:
        Stale: they are not those of the reading, because the states were withdrawn, or another reader is running.
    """
    rows = connection.execute(
        "SELECT partition, next_offset FROM truelog.command_position AS p JOIN truelog.command_fold AS f USING (event) "
        "WHERE event = %s AND generation = %s ORDER BY partition FOR UPDATE OF p",
        (event, reading.generation),
    )
    stored: dict[int, int] = dict(rows)
    if stored != reading.offsets:
        raise Stale(
            f"The states of {event} are at {stored}, not at {reading.offsets}. They were withdrawn, or another reader "
            "is running. The reader begins again."
        )


def advance(connection: Connection, event: str, ends: Mapping[int, int]) -> None:
    """Store how far the locked positions have advanced."""
    connection.execute(
        "UPDATE truelog.command_position AS p SET next_offset = r.next_offset "
        "FROM unnest(%s::integer[], %s::bigint[]) AS r (partition, next_offset) "
        "WHERE p.event = %s AND p.partition = r.partition",
        (list(ends), list(ends.values()), event),
    )
