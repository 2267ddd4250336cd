"""The ledger of erasures in PostgreSQL, which is written before anything is destroyed.

It has keyed hashes, names of fields and topics, and numbers. It does not name the person, and constraints
keep free text out. A process that changes it holds `exclusive`, so that one erasure runs at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any
from uuid import UUID

from truelog.erasure.erasure import Erasure
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.storage.database import Connection, read_value
from truelog.storage.locks import Locks
from truelog.support.errors import NotReady, Stale


class Step(IntEnum):
    """The steps of an erasure, in their order (`docs/decisions/087-erasure.md`)."""

    RECORDED = 1
    PUBLISHED = 2
    ARCHIVED = 3
    COUNTED = 4
    REWRITTEN = 5
    EXPIRED = 6
    PARTIALS = 7
    VIEWS = 8
    COPIES = 9
    PROVED = 10


@dataclass(frozen=True)
class CoveredDay:
    """The covered records of one partition and one log day."""

    topic: str
    partition: int
    log_day: datetime
    records: int


@dataclass(frozen=True)
class Entry:
    """A row of the ledger, with the number of covered records by topic.

    deleted: the output topics that the erasure has deleted, because no view wrote them.
    """

    erasure: Erasure
    step: Step
    recorded_at: datetime
    advanced_at: datetime
    records: Mapping[str, int]
    deleted: Sequence[str] = ()

    @property
    def is_finished(self) -> bool:
        return self.step is Step.PROVED


@contextmanager
def exclusive(connection: Connection) -> Iterator[None]:
    """Wait until no other process runs an erasure. The end of the session ends it too."""
    connection.execute(f"SELECT pg_advisory_lock({Locks.ERASURES})")
    try:
        yield
    finally:
        connection.execute(f"SELECT pg_advisory_unlock({Locks.ERASURES})")


def record(connection: Connection, wanted: Erasure) -> Erasure:
    """Write an erasure into the ledger, and return it.

    If an unfinished one has the same subjects in the same topics, return that one instead: it is to be continued.
    """
    for step, known in _load(connection):
        same = known.subjects == wanted.subjects and known.fields == wanted.fields
        if step < Step.PROVED and same and known.ends.ids == wanted.ends.ids:
            return known
    restore(connection, wanted, Step.RECORDED)
    return wanted


def restore(connection: Connection, erasure: Erasure, step: Step, *, adopted: bool = False) -> bool:
    """Write an erasure at this step unless the ledger has it. Returns whether the ledger lacked it."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO truelog.erasure (id, step, secret_check, adopted) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (erasure.id, step, erasure.secret_check, adopted),
        )
        if not cursor.rowcount:
            return False
        cursor.executemany(
            "INSERT INTO truelog.erasure_subject (erasure, field, hash) VALUES (%s, %s, %s)",
            [(erasure.id, each.field, each.hash) for each in sorted(erasure.subjects)],
        )
        cursor.executemany(
            "INSERT INTO truelog.erasure_end (erasure, topic, partition, topic_id, end_offset, fields) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            [
                (erasure.id, t, p, erasure.ends.ids[t], erasure.ends.at(t, p), list(erasure.fields[t]))
                for t, p in erasure.ends.partitions()
            ],
        )
    return True


def entries(connection: Connection) -> list[Entry]:
    """All erasures, oldest first."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT e.id, e.recorded_at, e.advanced_at, coalesce((SELECT jsonb_object_agg(topic, records) FROM ("
        "SELECT topic, sum(records) AS records FROM truelog.erasure_count WHERE erasure = e.id GROUP BY topic"
        ") c), '{}'), e.deleted_topics FROM truelog.erasure e"
    ).fetchall()
    times = {number: rest for number, *rest in rows}
    return [Entry(each, step, *times[each.id]) for step, each in _load(connection) if each.id in times]


def step_of(connection: Connection, erasure: Erasure) -> Step:
    """The last finished step of an erasure in the ledger."""
    return Step(read_value(connection, "SELECT step FROM truelog.erasure WHERE id = %s", (erasure.id,)))


def finish(connection: Connection, erasure: Erasure, step: Step) -> None:
    """Record that a step is finished, which the one before it must be. To finish a step again changes nothing.

    Raises:
        Stale: an earlier step is not finished.
    """
    updated = connection.execute(
        "UPDATE truelog.erasure SET step = %s, advanced_at = now() WHERE id = %s AND step = %s",
        (step, erasure.id, step - 1),
    )
    if not updated.rowcount and (found := step_of(connection, erasure)) < step:
        raise Stale(f"erasure {erasure.id} has finished step {found.name}, so it cannot finish step {step.name} yet.")


def begin_again(connection: Connection, erasure: Erasure) -> None:
    """Let an erasure be performed again from its event on, because a backup was restored."""
    connection.execute(
        "UPDATE truelog.erasure SET step = least(step, %s), adopted = true, advanced_at = now() WHERE id = %s",
        (Step.PUBLISHED, erasure.id),
    )


def is_adopted(connection: Connection, erasure: Erasure) -> bool:
    """Whether a backup was restored after the erasure, so that the archive may show a part of it already."""
    return bool(read_value(connection, "SELECT adopted FROM truelog.erasure WHERE id = %s", (erasure.id,)))


def unfinished(connection: Connection) -> list[Erasure]:
    """The erasures that were begun and must be continued, oldest first."""
    return [each for step, each in _load(connection) if step < Step.PROVED]


def interrupted(connection: Connection) -> list[str]:
    """The ids of the unfinished erasures; none if a process performs erasures now."""
    if not read_value(connection, f"SELECT pg_try_advisory_lock({Locks.ERASURES})"):
        return []
    connection.execute(f"SELECT pg_advisory_unlock({Locks.ERASURES})")
    return [str(each.id) for each in unfinished(connection)]


def record_counts(connection: Connection, erasure: Erasure, counts: Iterable[CoveredDay]) -> None:
    """Store how many records an erasure covers. Numbers that are stored stay: the records may be rewritten already."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.erasure_count (erasure, topic, partition, log_day, records) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [(erasure.id, each.topic, each.partition, each.log_day, each.records) for each in counts],
        )


def counts(connection: Connection, erasure: Erasure) -> list[CoveredDay]:
    """The covered records by topic, partition and log day."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT topic, partition, log_day, records FROM truelog.erasure_count WHERE erasure = %s ORDER BY 1, 2, 3",
        (erasure.id,),
    ).fetchall()
    return [CoveredDay(*row) for row in rows]


def record_deleted(connection: Connection, erasure: Erasure, topics: Iterable[str]) -> None:
    """Store that an erasure deletes these output topics."""
    connection.execute(
        "UPDATE truelog.erasure SET deleted_topics = ARRAY("
        "SELECT DISTINCT unnest(deleted_topics || %s::text[]) ORDER BY 1) WHERE id = %s",
        (list(topics), erasure.id),
    )


def rewritten(connection: Connection) -> frozenset[str]:
    """The erasures that the archive shows. A reader that wants to name them later asks before it reads."""
    return _that_reached(connection, Step.REWRITTEN)


def in_views(connection: Connection) -> frozenset[str]:
    """The erasures that the archive and the views show. What is made from both later names no one whom they cover."""
    return _that_reached(connection, Step.VIEWS)


def _that_reached(connection: Connection, step: Step) -> frozenset[str]:
    rows = connection.execute("SELECT id::text FROM truelog.erasure WHERE step >= %s", (step,)).fetchall()
    return frozenset(str(number) for (number,) in rows)


def require_known(connection: Connection, known: frozenset[str]) -> None:
    """Require that views show no other erasures until the transaction ends: the step COPIES deletes what it stores.

    Raises:
        NotReady: views show an erasure that is not in `known`.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT step FROM truelog.erasure WHERE id <> ALL(%s::uuid[]) FOR SHARE", (list(known),)
    ).fetchall()
    if any(step >= Step.VIEWS for (step,) in rows):
        raise NotReady("an erasure has changed the views meanwhile, so nothing was stored. Repeat the command.")


def shown(connection: Connection) -> frozenset[str] | None:
    """The erasures that all of the archive shows; None while one is being rewritten, so that some topics show it.

    What was read between two equal answers was read under these erasures.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id::text, step FROM truelog.erasure WHERE step >= %s", (Step.COUNTED,)
    ).fetchall()
    return None if any(step == Step.COUNTED for _, step in rows) else frozenset(number for number, _ in rows)


def erased_below(connection: Connection, positions: Positions) -> Positions:
    """The offsets below which only the archive lacks covered records, in the topics of these positions."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT x.topic, x.partition, max(x.end_offset), x.topic_id FROM truelog.erasure_end x "
        "JOIN truelog.erasure e ON e.id = x.erasure WHERE e.step >= %s AND x.topic_id = ANY(%s) GROUP BY 1, 2, 4",
        (Step.REWRITTEN, list(positions.ids.values())),
    ).fetchall()
    return Positions.of_rows(rows)


def unknown(connection: Connection, begin: Positions, end: Positions, known: frozenset[str]) -> list[str]:
    """The erasures that may cover records in [begin, end), that the archive shows, and that are not known."""
    places = [(end.ids[topic], partition, begin.at(topic, partition)) for topic, partition in end.partitions()]
    rows = connection.execute(
        "SELECT DISTINCT e.id::text FROM unnest(%s::text[], %s::integer[], %s::bigint[]) AS b (id, partition, start) "
        "JOIN truelog.erasure_end x ON (x.topic_id, x.partition) = (b.id, b.partition) AND x.end_offset > b.start "
        "JOIN truelog.erasure e ON e.id = x.erasure WHERE e.step >= %s AND e.id <> ALL(%s::uuid[]) ORDER BY 1",
        (*([each[n] for each in places] for n in range(3)), Step.REWRITTEN, list(known)),
    ).fetchall()
    return [str(number) for (number,) in rows]


@dataclass(frozen=True)
class TouchedDay:
    """A log day in which an erasure covers records, and whether these are erased in the archive already."""

    erasure: str
    log_day: datetime
    is_rewritten: bool


def touched_days(connection: Connection, topics: Iterable[str]) -> list[TouchedDay]:
    """The log days of these topics in which erasures cover records."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT e.id::text, c.log_day, e.step >= %s FROM truelog.erasure e "
        "JOIN truelog.erasure_count c ON c.erasure = e.id WHERE c.topic = ANY(%s) ORDER BY 1, 2",
        (Step.REWRITTEN, list(topics)),
    ).fetchall()
    return [TouchedDay(*row) for row in rows]


def _load(connection: Connection) -> list[tuple[Step, Erasure]]:
    """The erasures with their last finished steps, oldest first, as of one moment."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT e.id, e.step, e.secret_check, s.subjects, t.ends FROM truelog.erasure e "
        "CROSS JOIN LATERAL (SELECT array_agg(ARRAY[field, encode(hash, 'hex')]) AS subjects "
        "FROM truelog.erasure_subject WHERE erasure = e.id) s "
        "CROSS JOIN LATERAL (SELECT jsonb_agg(jsonb_build_array(topic, partition, end_offset, topic_id, fields)) "
        "AS ends FROM truelog.erasure_end WHERE erasure = e.id) t ORDER BY e.number"
    ).fetchall()
    return [(Step(step), _erasure(number, *rest)) for number, step, *rest in rows]


def _erasure(
    number: UUID, check: bytes, subjects: Iterable[tuple[str, str]], ends: Iterable[tuple[Any, ...]]
) -> Erasure:
    rows = list(ends)
    fields: Mapping[str, tuple[str, ...]] = {topic: tuple(names) for topic, *_, names in rows}
    named = frozenset(Subject(field, bytes.fromhex(text)) for field, text in subjects)
    return Erasure(number, named, fields, Positions.of_rows(row[:4] for row in rows), check)
