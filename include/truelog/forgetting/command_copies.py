"""The command log and the states of keys: what they keep of a person whose events are erased from the log.

Rows stay, because the relay continues at their numbers, and receipts lead to them. They lose what may name the person:
the event, the key, the reason of a refusal, and what repeats an answer for the same idempotency key.
"""

from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import Any
from uuid import UUID

import pyarrow as pa

from truelog.commands.decision import ACCEPTED
from truelog.commands.folding import fold_positions
from truelog.control import command_states
from truelog.erasure.erasure import Erasure, Erasures
from truelog.log.positions import Positions
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection
from truelog.support.errors import NotForgotten, ServiceDown
from truelog.support.wait import until

ERASED = "erased"
_PORTION = 5_000  # rows
_READER_SECONDS = 60.0

_WAITING = """
    SELECT DISTINCT event FROM truelog.command_event WHERE event = ANY(%s) AND "offset" IS NULL ORDER BY event
"""
_EVENTS = """
    SELECT number, receipt, partition, "offset", value, convert_to(key, 'UTF8') FROM truelog.command_event
    WHERE event = %s AND "offset" IS NOT NULL AND value <> '' ORDER BY number
"""
_DECISIONS = """
    SELECT receipt, key, coalesce(idempotency_key, ''), coalesce(answer ->> 'refused', answer ->> 'conflict', '')
    FROM truelog.command
    WHERE at < (SELECT recorded_at FROM truelog.erasure WHERE id = %s) AND body_sha256 <> '' ORDER BY at
"""
_FORGET_DECISIONS = """
    UPDATE truelog.command SET key = '', idempotency_key = NULL, body_sha256 = '', answer = CASE status
        WHEN %s THEN answer ELSE jsonb_build_object('refused', %s::text, 'version', answer -> 'version') END
    WHERE receipt = ANY(%s)
"""


def require_read(connection: Connection, ends: Positions) -> None:
    """Wait until the reader of the folds has found all accepted events that may be below the ends.

    While the log has an event, the reader finds it there, and notes its place. Later, no part of the platform knows
    that the log has it.

    Raises:
        NotForgotten: the reader does not reach the ends within a minute.
    """
    try:
        until(partial(_require_read, connection, ends), _READER_SECONDS, "the events of commands")
    except ServiceDown as down:
        raise NotForgotten(f"{down}. Start the services `commands` and `relay`, then repeat the command.") from down


def _require_read(connection: Connection, ends: Positions) -> None:
    waiting = [str(event) for (event,) in connection.execute(_WAITING, (list(ends.ids),)).fetchall()]
    found = fold_positions.statuses(connection) if waiting else {}
    if behind := [each for each in waiting if not _has_read(found.get(each), ends, each)]:
        raise ServiceDown(f"accepted events of {', '.join(behind)} are not found in the log yet")


def _has_read(fold: fold_positions.FoldStatus | None, ends: Positions, event: str) -> bool:
    if fold is None or fold.topic_id != ends.ids[event]:
        return False
    return all(fold.offsets.get(partition, 0) >= end for partition, end in ends.offsets[event].items())


def forget_commands(connection: Connection, types: EventTypes, erasures: Erasures) -> None:
    """Forget the subjects of one erasure in the command log, and make the states of the keys again from the log."""
    [erasure] = erasures.all
    for topic in erasure.fields:
        _forget_events(connection, types, erasures, topic)
    _forget_decisions(connection, _naming(connection, erasure, erasures))
    command_states.withdraw(connection, erasure.fields)
    for event in erasure.fields:
        fold_positions.delete_withdrawn(connection, event, Event())


def _forget_events(connection: Connection, types: EventTypes, erasures: Erasures, topic: str) -> None:
    """Forget the covered events of a topic with the decisions on them: a repetition no longer finds empty events."""
    [erasure] = erasures.all
    for rows in _portions(connection, _EVENTS, topic):
        numbers, found, partitions, offsets, values, keys = zip(*rows, strict=True)
        columns = {
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
        }
        records = pa.RecordBatch.from_pydict(columns)
        covered = erasures.covered(types[topic], erasure.ends.ids[topic], records)
        with connection.transaction():
            connection.execute(
                "UPDATE truelog.command_event SET value = '', key = '' WHERE number = ANY(%s)",
                ([number for number, is_covered in zip(numbers, covered, strict=True) if is_covered],),
            )
            receipts = {receipt for receipt, is_covered in zip(found, covered, strict=True) if is_covered}
            _forget_decisions(connection, receipts)


def _forget_decisions(connection: Connection, receipts: set[UUID]) -> None:
    connection.execute(_FORGET_DECISIONS, (int(ACCEPTED), ERASED, list(receipts)))


def _naming(connection: Connection, erasure: Erasure, erasures: Erasures) -> set[UUID]:
    """The receipts of the earlier decisions whose keys or reason name a subject.

    A key that is a number names a subject only as a whole. Without its idempotency key, a repeated command would be
    decided twice, so those of other people must stay.
    """
    return {
        receipt
        for rows in _portions(connection, _DECISIONS, erasure.id)
        for receipt, *texts in rows
        if any(erasures.names_subject(each) for each in texts) or any(map(erasures.is_subject, texts[:2]))
    }


def _portions(connection: Connection, query: str, parameter: object) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query, a few at a time. A plain cursor would load them all."""
    with connection.cursor("portions", withhold=True) as cursor:
        cursor.execute(query.encode(), (parameter,))
        while rows := cursor.fetchmany(_PORTION):
            yield rows
