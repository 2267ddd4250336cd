"""Polls the brokers, PostgreSQL and the archive once, and samples the lag of every reader.

A poll reads, in this order:

1. The beginning and the retention of each partition.
2. The positions of the readers.
3. The end of each partition, and then the end for readers of committed records, which an open transaction holds back.
4. The time of each reader's first unread record.

In any other order, retention could delete records between two steps and a reader would appear to be behind them, a
reader could appear to be past the end of the log, or new records could look like an open transaction.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from confluent_kafka.admin import AdminClient

from truelog.apps import reader_positions
from truelog.apps.reader_positions import ReaderPosition
from truelog.archive.table import ArchivePosition
from truelog.control import application, log_cuts, view_tables
from truelog.control.application import ARCHIVE
from truelog.lag.history import ReaderPoll
from truelog.lag.unread import Lag, Partition, lags
from truelog.lag.verdict import Sample
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topics import PartitionOffsets
from truelog.schema.names import TICKS
from truelog.storage import db_snapshot
from truelog.storage.kept_sessions import kept
from truelog.support.settings import Settings


@dataclass(frozen=True)
class PolledReader:
    """The positions of a view or of the archive, and the time at which its application last finished a batch."""

    version: int
    at: Positions
    batch_at: float | None


PolledReaders = dict[str, PolledReader]
ListReaders = Callable[[Settings], PolledReaders]


def polled_views(settings: Settings) -> PolledReaders:
    """All views that have a table and a stream, read from one database snapshot."""
    with db_snapshot.read_snapshot(settings) as connection:
        positions = reader_positions.view_positions(connection, view_tables.streamed_views(settings, connection))
        batches = {
            name: _batch_at(application.load_status(connection, name))
            for name in application.application_names(settings)
        }
    return {
        view: _reader(position, batches[application.application_of_view(settings, view)])
        for view, position in positions.items()
        if position.version
    }


def polled_archive(settings: Settings, archive: ArchivePosition | None = None) -> PolledReaders:
    """The archive, or nothing if no event type is registered. A process that polls again and again gives `archive`."""
    with db_snapshot.read_snapshot(settings) as connection:
        batch_at = _batch_at(application.load_status(connection, ARCHIVE))
    position = ReaderPosition(0, (archive or ArchivePosition()).load(settings))
    return {ARCHIVE: _reader(position, batch_at)} if position.positions.offsets else {}


def poll_once(
    settings: Settings, broker: AdminClient, declared: Iterable[str], list_readers: ListReaders
) -> tuple[PolledReaders, list[ReaderPoll]]:
    """The readers, and one reading for each reader. `declared` lists the topics that readers may read.

    The readers' positions cover only the topics that still exist under the same id.
    """
    existing = (set(declared) & topics.existing_topics(broker)) - {TICKS}
    begins, retention = topics.begins_by_partition(broker, existing), topics.retention_seconds(broker, existing)  # 1
    readers = list_readers(settings)  # 2
    now = time.time()  # a reader at the end has every record that reached the log before the end was read
    ends = topics.ends_by_partition(broker, existing)  # 3
    committed = topics.committed_ends_by_partition(broker, existing).positions
    log = PartitionBounds(begins, ends, retention, _cuts(settings), committed)
    current = {name: replace(reader, at=log.current(reader.at)) for name, reader in readers.items()}
    by_reader = lags(settings, {name: reader.at for name, reader in current.items()}, log.known_ends)  # 4
    return current, [
        ReaderPoll(name, reader.version, now, reader.batch_at, log.samples(reader, by_reader[name], now))
        for name, reader in readers.items()
    ]


@dataclass(frozen=True)
class PartitionBounds:
    """The bounds of each partition on the brokers. `unknown` contains the reason for each partition without bounds."""

    begins: PartitionOffsets
    ends: PartitionOffsets
    retention: Mapping[str, float | None]
    cuts: Mapping[tuple[str, int], int] = field(default_factory=dict)  # by topic id and partition
    committed: Positions = field(default_factory=Positions)  # the ends for readers of committed records, if known

    @cached_property
    def unknown(self) -> Mapping[Partition, str]:
        return {**self.begins.unknown, **self.ends.unknown}

    @cached_property
    def known_ends(self) -> Positions:
        """The ends of the partitions whose beginning and end are known."""
        ends = self.ends.positions
        known = {t: {p: o for p, o in by.items() if (t, p) not in self.unknown} for t, by in ends.offsets.items()}
        return Positions(known, ends.ids)

    def current(self, at: Positions) -> Positions:
        """The positions on topics that still exist under the same id."""
        return at.only(topic for topic in at.offsets if not self._unusable(at, topic))

    def samples(self, reader: PolledReader, lags: Mapping[Partition, Lag], now: float) -> dict[Partition, Sample]:
        """A sample for each partition of the reader's topics. `lags` contains the lag in each known partition."""
        blind = {partition: reason for partition, reason in self.unknown.items() if partition[0] in reader.at.offsets}
        for partition in reader.at.partitions():
            if reason := self._unusable(reader.at, partition[0]):
                blind[partition] = reason
        seen = {partition: self._sample(reader, partition, lag, now) for partition, lag in lags.items()}
        return seen | {p: Sample(now, batch_at=reader.batch_at, blind=reason) for p, reason in blind.items()}

    def _sample(self, reader: PolledReader, partition: Partition, lag: Lag, now: float) -> Sample:
        position, topic_id = reader.at.at(*partition), self.known_ends.ids[partition[0]]
        cut = self.cuts.get((topic_id, partition[1]))
        return Sample(
            at=now,
            position=position,
            cut_at=cut if cut is not None and cut < position else None,
            earliest=self.begins.positions.at(*partition),
            end=self.known_ends.at(*partition),
            seconds=round(lag.seconds, 3),
            batch_at=reader.batch_at,
            retention=self.retention[partition[0]],
            topic_id=topic_id,
            committed_end=self.committed.offsets.get(partition[0], {}).get(partition[1]),
        )

    def _unusable(self, at: Positions, topic: str) -> str:
        """Why the positions on a topic cannot be compared with the log, or an empty string if they can."""
        ids = self.known_ends.ids
        if topic not in ids:
            return f"{topic} is not declared, or does not exist on the brokers"
        if at.ids.get(topic, ids[topic]) != ids[topic]:
            return f"{topic} was deleted and created again: the positions belong to the old topic"
        return ""


def _cuts(settings: Settings) -> dict[tuple[str, int], int]:
    with kept(settings) as connection:
        return {(each.topic_id, each.partition): each.end for each in log_cuts.open_cuts(connection)}


def _reader(position: ReaderPosition, batch_at: float | None) -> PolledReader:
    return PolledReader(position.version, reader_positions.without_ticks(position.positions), batch_at)


def _batch_at(status: application.ApplicationStatus) -> float | None:
    return status.batch_at.timestamp() if status.batch_at else None
