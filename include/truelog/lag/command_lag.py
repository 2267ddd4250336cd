"""The lag of commands: which accepted events wait for the log, and which records the states of keys lack."""

from collections.abc import Mapping
from dataclasses import dataclass

from truelog.lag.history import ReaderPoll
from truelog.storage.database import Connection, read_value

# One index contains just these events, so the number of them needs no other page.
_NUMBER = 'SELECT count(*) FROM truelog.command_event WHERE "offset" IS NULL'
# A cut of the log may have lost earlier events, which wait for ever.
_OLDEST = """
    SELECT extract(epoch FROM now() - min(at))::float8 FROM truelog.command_event e WHERE "offset" IS NULL
        AND NOT EXISTS (SELECT FROM truelog.log_cut c WHERE c.topic = e.event AND c.accepted_at > e.at)
"""


@dataclass(frozen=True)
class Waiting:
    """The accepted events that have not been read in the log yet.

    `seconds` is the age of the oldest one since the last accepted cut of its log.
    """

    events: int
    seconds: float


@dataclass(frozen=True)
class FoldPlace:
    """How far the states of an event type's keys contain its topic. Withdrawn states have no offsets."""

    topic_id: str
    offsets: Mapping[int, int]


def waiting(connection: Connection) -> Waiting:
    oldest: float | None = read_value(connection, _OLDEST)
    return Waiting(waiting_events(connection), max(0.0, oldest or 0.0))


def waiting_events(connection: Connection) -> int:
    """How many accepted events wait."""
    return int(read_value(connection, _NUMBER))


def fold_places(connection: Connection) -> dict[str, FoldPlace]:
    """How far each fold of events has read its topic."""
    rows = connection.execute(
        "SELECT event, topic_id, "
        "coalesce(jsonb_object_agg(partition, next_offset) FILTER (WHERE partition IS NOT NULL), '{}') "
        "FROM truelog.command_fold LEFT JOIN truelog.command_position USING (event) "
        "GROUP BY event, topic_id ORDER BY event"
    )
    return {event: FoldPlace(topic_id, {int(p): offset for p, offset in by.items()}) for event, topic_id, by in rows}


def unread(event: str, place: FoldPlace, poll: ReaderPoll) -> int | None:
    """How many offsets, which the log had at the poll, are not read; None if the poll or withdrawn states cannot tell.

    Records of a transaction that was open at the poll do not count, because no reader of committed records gets them.
    """
    if not place.offsets:
        return None
    count = 0
    for partition, offset in place.offsets.items():
        sample = poll.samples.get((event, partition))
        if sample is None or sample.blind or sample.topic_id != place.topic_id:
            return None
        end = sample.end if sample.committed_end is None else min(sample.end, sample.committed_end)
        count += max(0, end - offset)
    return count
