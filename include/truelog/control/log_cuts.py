"""Cuts of the log: where Kafka has lost records that readers had already read, and what an operator decided.

An open cut stops every reader that is past it. After the cut is accepted (`truelog.maintenance.accept_cut`), readers
take the records before `trusted_from` from the archive only, because the log has other records at these offsets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from truelog.log.leader_epochs import Cut
from truelog.log.positions import Positions
from truelog.storage.database import Connection


@dataclass(frozen=True)
class OpenCut:
    """A cut that is not accepted yet: the log of this partition ended at `end`."""

    topic: str
    topic_id: str
    partition: int
    end: int


def record_cuts(connection: Connection, cuts: Iterable[Cut], reader: str) -> None:
    """Record cuts that a reader has found; a cut is recorded once, however many readers find it."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.log_cut (topic, topic_id, partition, epoch, log_end, found_by) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(c.topic, c.topic_id, c.partition, c.epoch, c.end, reader) for c in cuts],
        )


def open_cuts(connection: Connection) -> list[OpenCut]:
    """The lowest open cut of each partition."""
    rows = connection.execute(
        "SELECT topic, topic_id, partition, min(log_end) FROM truelog.log_cut WHERE trusted_from IS NULL "
        "GROUP BY topic, topic_id, partition ORDER BY topic, partition"
    ).fetchall()
    return [OpenCut(*row) for row in cast(list[tuple[str, str, int, int]], rows)]


def trusted_from(connection: Connection, positions: Positions) -> Positions:
    """Where the trusted log begins in each partition of these topics that was ever cut."""
    rows = connection.execute(
        "SELECT topic, partition, max(trusted_from), topic_id FROM truelog.log_cut "
        "WHERE topic_id = ANY(%s) AND trusted_from IS NOT NULL GROUP BY topic, topic_id, partition",
        (list(positions.ids.values()),),
    ).fetchall()
    return Positions.of_rows(rows)


def accept(connection: Connection, cut: OpenCut, first_trusted: int, doer: str) -> None:
    """Accept all open cuts of the partition."""
    connection.execute(
        "UPDATE truelog.log_cut SET trusted_from = %s, accepted_at = now(), accepted_by = %s "
        "WHERE topic_id = %s AND partition = %s AND trusted_from IS NULL",
        (first_trusted, doer, cut.topic_id, cut.partition),
    )
