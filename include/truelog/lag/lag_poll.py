"""A poll: what the brokers, PostgreSQL and the archive say of every reader at one moment.

1. Where each partition begins, and for how long it is kept.
2. Where the readers stand.
3. Where each partition ends.
4. When the first record came that each reader has still to count.

In another order, a reader could be seen behind what retention took since, or past the end of the log.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from confluent_kafka.admin import AdminClient

from truelog.apps import reader_positions
from truelog.apps.reader_positions import ReaderPosition
from truelog.archive.archive_table import archived_positions
from truelog.control import application
from truelog.control.application import ARCHIVE
from truelog.lag.lag import Lag, Partition, lags
from truelog.lag.lag_history import Reading
from truelog.lag.lag_verdict import Sample
from truelog.log import ticks, topics
from truelog.log.positions import Positions
from truelog.log.topics import PartitionOffsets
from truelog.schema import event
from truelog.storage import db_snapshot
from truelog.support.settings import Settings
from truelog.views import catalogue


@dataclass(frozen=True)
class PolledReader:
    """A view or the archive: where it stands, and when its application last ended a batch."""

    version: int
    at: Positions
    batch_at: float | None


PolledReaders = dict[str, PolledReader]
ListReaders = Callable[[Settings], PolledReaders]


def polled_views(settings: Settings) -> PolledReaders:
    """Every view that has been made, in one snapshot of the database."""
    with db_snapshot.read_snapshot(settings) as connection:
        stood = reader_positions.view_positions(connection, catalogue.view_names(settings.views_folder))
        batches = {
            name: _batch_at(application.status(connection, name)) for name in application.application_names(settings)
        }
    made = {view: stand for view, stand in stood.items() if stand.version}
    return {view: _reader(stand, batches[application.application_of(settings, view)]) for view, stand in made.items()}


def polled_archive(settings: Settings) -> PolledReaders:
    """The archive; it has a reader's place once it has a table."""
    with db_snapshot.read_snapshot(settings) as connection:
        batch_at = _batch_at(application.status(connection, ARCHIVE))
    stand = ReaderPosition(0, archived_positions(settings, event.event_names()))
    return {ARCHIVE: _reader(stand, batch_at)} if stand.positions.offsets else {}


def poll_once(
    settings: Settings, broker: AdminClient, declared: Iterable[str], ask: ListReaders
) -> tuple[PolledReaders, list[Reading]]:
    """The readers that `ask` finds, and what is to be told of each; `declared` are the topics that they may read.

    The readers come with those of their positions that are of the topics as they are now.
    """
    there = (set(declared) & topics.existing_topics(broker)) - {ticks.TOPIC}
    begins, kept = topics.begins_by_partition(broker, there), topics.retention_seconds(broker, there)  # 1
    found = ask(settings)  # 2
    log = PartitionBounds(begins, topics.ends_by_partition(broker, there), kept)  # 3
    seen = {name: replace(reader, at=log.seen(reader.at)) for name, reader in found.items()}
    behind = lags(settings, {name: reader.at for name, reader in seen.items()}, log.told)  # 4
    now = time.time()
    return seen, [
        Reading(name, reader.version, now, reader.batch_at, log.samples(reader, behind[name], now))
        for name, reader in found.items()
    ]


@dataclass(frozen=True)
class PartitionBounds:
    """What the brokers say; of a partition of which they say nothing, its readers are told that alone."""

    begins: PartitionOffsets
    ends: PartitionOffsets
    kept: Mapping[str, float | None]

    @cached_property
    def untold(self) -> Mapping[Partition, str]:
        return {**self.begins.unknown, **self.ends.unknown}

    @cached_property
    def told(self) -> Positions:
        """Where the partitions end of which beginning and end are known."""
        ends = self.ends.positions
        known = {t: {p: o for p, o in by.items() if (t, p) not in self.untold} for t, by in ends.offsets.items()}
        return Positions(known, ends.ids)

    def seen(self, at: Positions) -> Positions:
        """Of the topics that are those on which the positions were made."""
        return at.only(topic for topic in at.offsets if not self._blind(at, topic))

    def samples(self, reader: PolledReader, behind: Mapping[Partition, Lag], now: float) -> dict[Partition, Sample]:
        """Of each partition of each topic that the reader reads; `behind` is its lag in those that are told."""
        blind = {place: why for place, why in self.untold.items() if place[0] in reader.at.offsets}
        blind |= {place: why for place in reader.at.partitions() if (why := self._blind(reader.at, place[0]))}
        seen = {place: self._sample(reader, place, lag, now) for place, lag in behind.items()}
        return seen | {place: Sample(now, batch_at=reader.batch_at, blind=why) for place, why in blind.items()}

    def _sample(self, reader: PolledReader, place: Partition, lag: Lag, now: float) -> Sample:
        return Sample(
            at=now,
            position=reader.at.at(*place),
            earliest=self.begins.positions.at(*place),
            end=self.told.at(*place),
            seconds=round(lag.seconds, 3),
            batch_at=reader.batch_at,
            retention=self.kept[place[0]],
            topic_id=self.told.ids[place[0]],
        )

    def _blind(self, at: Positions, topic: str) -> str:
        ids = self.told.ids
        if topic not in ids:
            return f"{topic} is not declared, or the brokers do not have it"
        if at.ids.get(topic, ids[topic]) != ids[topic]:
            return f"{topic} was deleted and made again: its positions are those of another log"
        return ""


def _reader(stand: ReaderPosition, batch_at: float | None) -> PolledReader:
    return PolledReader(stand.version, reader_positions.without_ticks(stand.positions), batch_at)


def _batch_at(status: application.Status) -> float | None:
    return status.batch_at.timestamp() if status.batch_at else None
