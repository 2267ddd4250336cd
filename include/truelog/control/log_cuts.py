"""Cuts of the log: where Kafka has lost records that readers had already read, and what an operator decided.

An open cut stops every reader that is past it. After the cut is accepted (`truelog.maintenance.accept_cut`), readers
take the records before `trusted_from` from the archive only, because the log contains other records at these offsets.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from truelog.control import command_states
from truelog.log import leader_epochs
from truelog.log.leader_epochs import Cut, Epochs
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import LogCut
from truelog.support.settings import Settings


@dataclass(frozen=True)
class ReaderState:
    """The positions of a view or of the archive, and the leader epochs in which it reached them, if they are known."""

    name: str
    positions: Positions
    epochs: Epochs


@dataclass(frozen=True)
class OpenCut:
    """The open cuts of one partition: the log has ended at each of `ends`, in the epoch with the same index."""

    topic: str
    topic_id: str
    partition: int
    ends: tuple[int, ...]
    epochs: tuple[int, ...]
    plan: Mapping[str, Any] | None  # of an `accept-cut` that has not ended

    @property
    def end(self) -> int:
        """The lowest offset at which the log was cut."""
        return min(self.ends)

    def is_past(self, position: int, epoch: int | None) -> bool:
        """Whether a reader that reached the position in this epoch has read records that the log has lost."""
        cuts = zip(self.ends, self.epochs, strict=True)
        return any(end < position and (epoch is None or epoch <= cut_epoch) for end, cut_epoch in cuts)


def record_cuts(connection: Connection, cuts: Iterable[Cut], reader: str) -> None:
    """Record cuts that a reader has found; a cut is recorded once, however many readers find it."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.log_cut (topic, topic_id, partition, epoch, log_end, found_by) "
            "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(c.topic, c.topic_id, c.partition, c.epoch, c.end, reader) for c in cuts],
        )


def require_intact(settings: Settings, connection: Connection, reader: ReaderState, now: Epochs) -> None:
    """Require that the log, whose leader epochs are `now`, still has all records up to the reader's positions.

    Below an accepted cut, readers do not trust the log, so nothing is required of it.

    Raises:
        LogCut: the log has lost some of these records. The cuts are recorded.
    """
    if all(now.get(key, epoch) == epoch for key, epoch in reader.epochs.items()):
        return
    at, trusted = reader.positions, trusted_from(connection, reader.positions)
    doubtful = {key: epoch for key, epoch in reader.epochs.items() if at.at(*key) > trusted.at(*key)}
    try:
        leader_epochs.require_intact(settings, at, doubtful, now)
    except LogCut as cut:
        record_cuts(connection, cut.cuts, reader.name)
        raise


def open_cuts(connection: Connection) -> list[OpenCut]:
    """The cuts that are not accepted yet, one for each partition."""
    rows = connection.execute(
        "SELECT topic, topic_id, partition, array_agg(log_end ORDER BY log_end, epoch), "
        "array_agg(epoch ORDER BY log_end, epoch), (array_agg(plan) FILTER (WHERE plan IS NOT NULL))[1] "
        "FROM truelog.log_cut WHERE trusted_from IS NULL "
        "GROUP BY topic, topic_id, partition ORDER BY topic, partition"
    ).fetchall()
    return [OpenCut(topic, id_, p, tuple(ends), tuple(epochs), plan) for topic, id_, p, ends, epochs, plan in rows]


def trusted_from(connection: Connection, positions: Positions) -> Positions:
    """Where the trusted log begins in each partition of these topics that was ever cut."""
    rows = connection.execute(
        "SELECT topic, partition, max(trusted_from), topic_id FROM truelog.log_cut "
        "WHERE topic_id = ANY(%s) AND trusted_from IS NOT NULL GROUP BY topic, topic_id, partition",
        (list(positions.ids.values()),),
    ).fetchall()
    return Positions.of_rows(rows)


def store_plan(connection: Connection, cut: OpenCut, plan: Mapping[str, Any]) -> None:
    """Store how the partition's open cuts are being accepted."""
    connection.execute(
        "UPDATE truelog.log_cut SET plan = %s WHERE topic_id = %s AND partition = %s AND trusted_from IS NULL",
        (json.dumps(plan), cut.topic_id, cut.partition),
    )


def accept(connection: Connection, cut: OpenCut, first_trusted: int, doer: str) -> None:
    """Accept all open cuts of the partition, and withdraw the states of commands, which may contain lost records.

    The coordinates of lost events of commands are forgotten. The reader of the states stores them again if the log
    contains the events. An event without coordinates counts as accepted, so no name is given twice.
    """
    with connection.transaction():
        connection.execute(
            "UPDATE truelog.log_cut SET trusted_from = %s, accepted_at = now(), accepted_by = %s "
            "WHERE topic_id = %s AND partition = %s AND trusted_from IS NULL",
            (first_trusted, doer, cut.topic_id, cut.partition),
        )
        command_states.withdraw(connection, [cut.topic])
        connection.execute(
            'UPDATE truelog.command_event SET partition = NULL, "offset" = NULL '
            'WHERE (event, partition) = (%s, %s) AND "offset" >= %s',
            (cut.topic, cut.partition, cut.end),
        )
