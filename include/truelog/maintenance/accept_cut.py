"""`truelog archive accept-cut`: lets readers continue in a log that has lost records which they had already read.

The archive decides what stays. If it is past the cut, its records stay, because Kafka had acknowledged them. The
records that Kafka has accepted since the cut have offsets that the archive has passed. They are appended again at the
end of the log, so each of them is counted once. If only views are past the cut, the log stays as it is, and these views
have counted records that are lost. In each partition that was cut:

1. Store a plan, so that a command that was interrupted does the same when it is repeated. From `trusted_from` on,
   readers may read the log. No reader that has read lost records is past this offset.
2. Append fillers until the log has reached this offset.
3. If the archive is past the cut, append the records between the cut and this offset again. A header with their first
   coordinates lets a repeated command skip the records that were appended already.
4. If the archive is past the cut, move it to this offset.
5. Store the decision. Readers take the records below this offset from the archive only. If the log stays as it is, its
   new records have the offsets of lost records, so exclusions of lost records are deleted.

A compacted topic keeps the last record of each key. If the archive is past the cut, everything since the cut is
therefore appended again, in the same order, even records that no reader has passed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from pyiceberg.exceptions import NoSuchTableError

from truelog.archive.catalog_pointer import load_table
from truelog.archive.commit import Append, commit
from truelog.archive.table import Progress, identifier, open_catalog
from truelog.control import application, lease, log_cuts
from truelog.control.log_cuts import OpenCut
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.leader_epochs import take_epochs
from truelog.log.positions import Positions
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import Connection, connect
from truelog.support import faults
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_FILLER = "truelog-filler"
_MOVED = "truelog-moved"
_FLUSH_SECONDS = 60.0

Headers = list[tuple[str, Any]]


@dataclass(frozen=True)
class Plan:
    """How the cuts of one partition are accepted."""

    trusted_from: int
    moves: bool  # whether the archive is past the cut, and the log's records are appended again
    lost: int  # records that views had counted and that neither the log nor the archive has
    views: tuple[str, ...]  # views that have counted other records than the archive


@dataclass(frozen=True)
class AcceptedCut:
    """The result for one partition. `lost` and `views` are those of the plan."""

    topic: str
    partition: int
    cut_at: int
    trusted_from: int
    moved: int  # records that were appended again
    lost: int
    views: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self)


def accept_cuts(settings: Settings, topic: str | None, report: Callable[[AcceptedCut], None]) -> list[AcceptedCut]:
    """Accept the open cuts of one topic, or of all topics.

    Raises:
        Fenced: an application is running. Stop all applications first.
        ReadsOnly: the events are another environment's, which must accept the cut.
    """
    settings.require_own_events("the acceptance of a cut")
    done: list[AcceptedCut] = []
    with ExitStack() as stack, connect(settings, autocommit=True) as connection:
        for name in application.application_names(settings):
            stack.callback(lease.take_lease(settings, name, code=lease.COMMAND).release)
        broker = topics.client(settings)
        for cut in log_cuts.open_cuts(connection):
            if topic in (None, cut.topic):
                done.append(_accept(settings, broker, connection, cut))
                report(done[-1])
    return done


def _accept(settings: Settings, broker: AdminClient, connection: Connection, cut: OpenCut) -> AcceptedCut:
    archive = _progress(settings, cut)
    if cut.plan is None:
        plan = _plan(settings, broker, connection, cut, archive)
        log_cuts.store_plan(connection, cut, asdict(plan))  # 1
    else:
        plan = Plan(**{**cut.plan, "views": tuple(cut.plan["views"])})
    faults.reach("accept_cut.planned")
    first = plan.trusted_from
    producer = open_producer({**settings.kafka(), "acks": "all", "enable.idempotence": True})
    while (end := topics.ends(broker, [cut.topic]).at(cut.topic, cut.partition)) < first:
        _append(producer, cut, [(b"filler", None, [(_FILLER, b"")])] * (first - end))  # 2
    faults.reach("accept_cut.filled")
    moved = _move(settings, producer, cut, first, end) if plan.moves else 0  # 3
    faults.reach("accept_cut.moved")
    if plan.moves and archive is not None and archive.positions.get(cut.partition, 0) <= first:
        _advance_archive(settings, broker, archive, cut, first)  # 4
    faults.reach("accept_cut.archived")
    with connection.transaction():
        log_cuts.accept(connection, cut, first, by_hand())  # 5
        if not plan.moves:
            connection.execute(
                'DELETE FROM truelog.exclusion WHERE (topic_id, partition) = (%s, %s) AND "offset" >= %s',
                (cut.topic_id, cut.partition, cut.end),
            )
    return AcceptedCut(cut.topic, cut.partition, cut.end, first, moved, plan.lost, plan.views)


def _progress(settings: Settings, cut: OpenCut) -> Progress | None:
    """How far the topic is archived; None if this topic was never archived."""
    with open_catalog(settings) as catalog:
        try:
            progress = Progress.of(load_table(catalog, identifier(cut.topic)).metadata)
        except NoSuchTableError:
            return None
    return progress if progress.topic_id == cut.topic_id else None


def _plan(
    settings: Settings, broker: AdminClient, connection: Connection, cut: OpenCut, archive: Progress | None
) -> Plan:
    rows = connection.execute(
        "SELECT view, next_offset, leader_epoch FROM truelog.position WHERE topic_id = %s AND partition = %s",
        (cut.topic_id, cut.partition),
    ).fetchall()
    past = {(view, position) for view, position, epoch in rows if cut.is_past(position, epoch)}
    archived = archive.positions.get(cut.partition, 0) if archive else 0
    epoch = archive.epochs.get(cut.partition) if archive else None
    lost_to = max((position for _, position in past), default=cut.end)
    if not cut.is_past(archived, epoch):
        return Plan(lost_to, False, lost_to - cut.end, tuple(sorted({view for view, _ in past})))
    first = max([archived, *(position for _, position, _ in rows)])
    if topics.compacted_topics(settings, [cut.topic]):
        first = max(first, topics.ends(broker, [cut.topic]).at(cut.topic, cut.partition))
    went_on = {view for view, position, _ in rows if position > cut.end and (view, position) not in past}
    other = went_on | {view for view, position in past if position > archived}
    return Plan(first, True, max(0, lost_to - archived), tuple(sorted(other)))


def _move(settings: Settings, producer: Producer, cut: OpenCut, first: int, end: int) -> int:
    """Append the records in [cut, first) again, unless an earlier call has appended them. Return their number.

    Raises:
        ServiceDown: an open transaction hides records below `end`.
    """
    done = {mark for each in _read(settings, cut, first, end) if (mark := _mark_of(each)) is not None}
    earlier = len(done)

    def missing() -> Iterator[tuple[Any, Any, Headers]]:
        for message in _read(settings, cut, cut.end, first):
            headers = headers_of(message)
            here = f"{cut.topic_id}/{cut.partition}/{message.offset()}/{message.leader_epoch()}".encode()
            mark = _mark_of(message) or here
            if mark not in done and _FILLER not in dict(headers):
                done.add(mark)
                yield message.key(), message.value(), [*((n, v) for n, v in headers if n != _MOVED), (_MOVED, mark)]

    return earlier + _append(producer, cut, missing())


def _read(settings: Settings, cut: OpenCut, begin: int, end: int) -> Iterator[Message]:
    return messages(settings, cut.topic, cut.partition, begin, end)


def _mark_of(message: Message) -> bytes | None:
    """The first coordinates of a record that was appended again."""
    found: bytes | None = dict(headers_of(message)).get(_MOVED)
    return found


def _append(producer: Producer, cut: OpenCut, records: Iterable[tuple[Any, Any, Headers]]) -> int:
    """Append the records, and return their number when Kafka has acknowledged all of them.

    Raises:
        ServiceDown: Kafka did not accept a record.
    """
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.extend([error] if error else [])

    count = 0
    for key, value, headers in records:
        count += 1
        while True:
            try:
                producer.produce(cut.topic, value, key, partition=cut.partition, headers=headers, on_delivery=delivered)
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(_FLUSH_SECONDS) or errors:
        raise ServiceDown(f"Kafka did not accept all records {errors[:1]}. Run `truelog archive accept-cut` again.")
    return count


def _advance_archive(settings: Settings, broker: AdminClient, archive: Progress, cut: OpenCut, first: int) -> None:
    here = Positions({cut.topic: {cut.partition: first}}, {cut.topic: cut.topic_id})
    epochs = {cut.partition: take_epochs(broker, here)[cut.topic, cut.partition]}
    begin, end = archive.positions, {**archive.positions, cut.partition: first}
    with open_catalog(settings) as catalog:
        commit(catalog, Append(cut.topic, cut.topic_id, begin, end, {}, (), lost=True, epochs=epochs))
