"""`truelog archive accept-cut`: lets readers continue in a log that has lost records which they had already read.

What was read stays: the archive and the views have records that Kafka acknowledged. The records that Kafka has accepted
since the cut have offsets that the readers have passed. They are appended again at the end of the log, so each of them
is counted once. In each partition that was cut:

1. Determine the furthest position of any reader. From this offset on, the log is trusted.
2. Append fillers, which no reader reads, until the log has reached this offset.
3. Append the records between the cut and this offset again. A header with their first coordinates lets a repeated
   command skip the records that were appended already.
4. Move the archive to this offset. Records that only views had read are recorded as an accepted loss.
5. Store the decision. Readers take the records below this offset from the archive only.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from truelog.archive.archive_commit import Append, commit
from truelog.archive.archive_table import archived_positions, open_catalog
from truelog.control import application, lease, log_cuts
from truelog.control.log_cuts import OpenCut
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.log.leader_epochs import take_epochs
from truelog.log.positions import Positions
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_FILLER = "truelog-filler"
_MOVED = "truelog-moved"
_FLUSH_SECONDS = 60.0


@dataclass(frozen=True)
class AcceptedCut:
    """The result for one partition."""

    topic: str
    partition: int
    cut_at: int
    trusted_from: int
    moved: int  # records that were appended again
    lost: int  # records that views had counted and that neither the log nor the archive has
    views: tuple[str, ...]  # views that had counted lost records

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return asdict(self)


def accept_cuts(settings: Settings, topic: str | None, report: Callable[[AcceptedCut], None]) -> list[AcceptedCut]:
    """Accept the open cuts of one topic, or of all topics.

    Raises:
        Fenced: an application is running. Stop all applications first.
    """
    done: list[AcceptedCut] = []
    with ExitStack() as stack, connect(settings, autocommit=True) as connection:
        for name in application.application_names(settings):
            stack.callback(lease.take_lease(settings, name).release)
        broker = topics.client(settings)
        for cut in log_cuts.open_cuts(connection):
            if topic in (None, cut.topic):
                done.append(_accept(settings, broker, connection, cut))
                report(done[-1])
    return done


def _accept(settings: Settings, broker: AdminClient, connection: Connection, cut: OpenCut) -> AcceptedCut:
    archived = archived_positions(settings, [cut.topic])
    read = _views(connection, cut)
    first = max([archived.at(cut.topic, cut.partition), *read.values()])  # 1
    producer = Producer({**settings.kafka(), "acks": "all", "enable.idempotence": True})
    while (end := topics.ends(broker, [cut.topic]).at(cut.topic, cut.partition)) < first:
        _append(producer, cut, [(b"filler", b"", [(_FILLER, b"")])] * (first - end))  # 2
    moved = _move(settings, producer, cut, first, end)  # 3
    lost = first - archived.at(cut.topic, cut.partition)
    _advance_archive(settings, broker, archived, cut, first)  # 4
    log_cuts.accept(connection, cut, first, by_hand())  # 5
    behind = tuple(sorted(view for view, position in read.items() if lost and position > first - lost))
    return AcceptedCut(cut.topic, cut.partition, cut.end, first, moved, lost, behind)


def _views(connection: Connection, cut: OpenCut) -> dict[str, int]:
    """The position of each view in the partition."""
    rows = connection.execute(
        "SELECT view, max(next_offset) FROM truelog.position WHERE topic_id = %s AND partition = %s GROUP BY view",
        (cut.topic_id, cut.partition),
    ).fetchall()
    return {str(view): int(str(position)) for view, position in rows}


def _move(settings: Settings, producer: Producer, cut: OpenCut, first: int, end: int) -> int:
    """Append the records in [cut, first) again, unless an earlier call has appended them."""
    done = {value for each in _read(settings, cut, first, end) for name, value in _headers(each) if name == _MOVED}
    moved = []
    for message in _read(settings, cut, cut.end, first):
        headers = _headers(message)
        mark = f"{cut.topic_id}/{cut.partition}/{message.offset()}/{cut.end}".encode()
        if mark not in done and _FILLER not in {name for name, _ in headers}:
            moved.append((message.key(), message.value(), [*headers, (_MOVED, mark)]))
    _append(producer, cut, moved)
    return len(moved)


def _read(settings: Settings, cut: OpenCut, begin: int, end: int) -> Iterator[Message]:
    return messages(settings, cut.topic, cut.partition, begin, end)


def _headers(message: Message) -> list[tuple[str, Any]]:
    return list(message.headers() or [])  # type: ignore[arg-type]


def _append(producer: Producer, cut: OpenCut, records: list[tuple[Any, Any, list[tuple[str, Any]]]]) -> None:
    for key, value, headers in records:
        producer.produce(cut.topic, value, key, partition=cut.partition, headers=headers)
        producer.poll(0)
    if producer.flush(_FLUSH_SECONDS):
        raise ServiceDown("Kafka did not accept all records. Run `truelog archive accept-cut` again.")


def _advance_archive(settings: Settings, broker: AdminClient, archived: Positions, cut: OpenCut, first: int) -> None:
    if cut.topic not in archived.offsets:
        return
    begin = archived.offsets[cut.topic]
    here = Positions({cut.topic: {cut.partition: first}}, {cut.topic: cut.topic_id})
    epochs = {cut.partition: take_epochs(broker, here)[cut.topic, cut.partition]}
    end = {**begin, cut.partition: first}
    with open_catalog(settings) as catalog:
        commit(catalog, Append(cut.topic, cut.topic_id, begin, end, {}, (), lost=True, epochs=epochs))
