"""The command log: decides commands and stores their decisions, all in one transaction.

`docs/decisions/076-commands.md` gives the reasons for the order of the statements, which the code numbers.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import psycopg

from truelog.commands.catalogue import Catalogue
from truelog.commands.decision import ACCEPTED, Outcome, decide, key_names
from truelog.commands.feed import WRITTEN
from truelog.commands.folding import states
from truelog.commands.folding.states import States
from truelog.commands.request import CommandRequest, Sender
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection, read_value
from truelog.support.errors import BadDeclaration, TruelogError
from truelog.support.faults import reach

Generations = Mapping[str, uuid.UUID]  # of each fold


class FoldChanged(TruelogError):
    """The states of these event types have another generation than the session has seen complete."""

    def __init__(self, events: Collection[str]) -> None:
        super().__init__(f"the states of {', '.join(events)} are made again from the log")
        self.events = events


@dataclass(frozen=True)
class Stored:
    """A decision in the command log. A decision without a receipt is not stored."""

    status: int
    answer: Mapping[str, Any]
    receipt: uuid.UUID | None = None
    body_sha256: bytes = b""

    @property
    def is_accepted(self) -> bool:
        return self.status == ACCEPTED


_Known = dict[Sender, Stored]
_OTHER_BODY = Stored(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    {"error": "this idempotency key belongs to another command; use a new key for each command"},
)


@dataclass(frozen=True)
class _Decided:
    receipt: uuid.UUID
    request: CommandRequest
    outcome: Outcome


def decide_all(
    connection: Connection,
    catalogue: Catalogue,
    types: EventTypes,
    generations: Generations,
    requests: Sequence[CommandRequest],
) -> list[Stored]:
    """Decide the commands in their order. After the return, PostgreSQL has the decisions.

    Raises:
        FoldChanged: the states of some keys must be confirmed again. Nothing was stored.
        FoldFailed: a fold cannot read an event of one of these commands, or an earlier one. Nothing was stored.
    """
    answers: list[Stored] | None = None
    keys = sorted({name for each in requests for name in key_names(each)})
    while answers is None:
        with connection.transaction() as transaction:
            states.lock_keys(connection, keys)  # 1
            reach("command.locked")
            _require_generations(connection, generations, {each.event for each in keys})  # 2
            reach("command.confirmed")
            known = _read_known(connection, requests)  # 3
            reach("command.remembered")
            counted = {each.command.fold.event for each in requests if each.command.most is not None}
            current = states.current(connection, types, catalogue.folds, keys, counted)  # 4
            reach("command.read")
            answers, decided = _decide_each(types, current, known, requests, _now(connection))
            first = _draw_numbers(connection, sum(len(each.outcome.events) for each in decided))  # 5
            reach("command.numbered")
            if not _write_decisions(connection, decided):
                # Another collector has stored a decision with the same idempotency key, for another command or key.
                answers = None
                raise psycopg.Rollback(transaction)
            reach("command.decided")
            _write_events(connection, decided, first)  # 6
            reach("command.written")
    reach("command.committed")  # 7
    return answers


def _require_generations(connection: Connection, generations: Generations, events: Collection[str]) -> None:
    rows = connection.execute(
        "SELECT event, generation FROM truelog.command_fold WHERE event = ANY(%s) ORDER BY event FOR SHARE",
        (sorted(events),),
    )
    found: dict[str, uuid.UUID] = dict(rows)
    if changed := [e for e in sorted(events) if e not in found or found[e] != generations.get(e)]:
        raise FoldChanged(changed)


def _read_known(connection: Connection, requests: Sequence[CommandRequest]) -> _Known:
    """The stored decisions with the idempotency keys of the requests."""
    senders = [each.sender for each in requests if each.sender.idempotency_key is not None]
    rows = connection.execute(
        "SELECT sender, idempotency_key, status, answer, receipt, body_sha256 FROM truelog.command "
        "WHERE (sender, idempotency_key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
        ([each.name for each in senders], [each.idempotency_key for each in senders]),
    )
    return {Sender(name, key): Stored(*stored) for name, key, *stored in rows}


def _decide_each(
    types: EventTypes, current: States, known: _Known, requests: Sequence[CommandRequest], now: datetime
) -> tuple[list[Stored], list[_Decided]]:
    """The answer for each request, and the new decisions."""
    answers, decided = list[Stored](), list[_Decided]()
    for request in requests:
        earlier = known.get(request.sender) if request.sender.idempotency_key is not None else None
        if earlier is not None:
            answers.append(earlier if earlier.body_sha256 == request.body_sha256 else _OTHER_BODY)
            continue
        try:
            outcome = decide(types, current, request, now)
        except BadDeclaration as bad:
            answers.append(Stored(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(bad)}))
            continue
        receipt = uuid.uuid4()
        answer = {"command": request.name, "receipt": str(receipt), **outcome.answer}
        decided.append(_Decided(receipt, request, replace(outcome, answer=answer)))
        answers.append(Stored(outcome.status, answer, receipt, request.body_sha256))
        known[request.sender] = answers[-1]
    current.fold()  # no event is accepted that its fold cannot read
    return answers, decided


def _draw_numbers(connection: Connection, count: int) -> int:
    """The first of this many numbers. Until the transaction ends, no other session can draw or write a decision."""
    return int(
        read_value(
            connection,
            "UPDATE truelog.command_number SET last = last + %s RETURNING last - %s + 1",
            (count, count),
        )
    )


def _write_decisions(connection: Connection, decided: Sequence[_Decided]) -> bool:
    """Write the decisions. False if an idempotency key is in use."""
    if not decided:
        return True
    written = connection.execute(
        "INSERT INTO truelog.command (receipt, command, key, sender, idempotency_key, body_sha256, status, answer) "
        "SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::smallint[], "
        "%s::jsonb[]) ON CONFLICT (sender, idempotency_key) DO NOTHING",
        _columns(map(_decision_row, decided)),
    )
    return written.rowcount == len(decided)


def _decision_row(decided: _Decided) -> tuple[object, ...]:
    request, outcome = decided.request, decided.outcome
    by = (request.sender.name, request.sender.idempotency_key, request.body_sha256)
    return (decided.receipt, request.name, request.key, *by, int(outcome.status), json.dumps(outcome.answer))


def _write_events(connection: Connection, decided: Sequence[_Decided], first: int) -> None:
    rows = [(each.receipt, event) for each in decided for event in each.outcome.events]
    if not rows:
        return
    connection.execute(
        "INSERT INTO truelog.command_event (number, receipt, event_id, event, key, value) "
        "SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::bytea[])",
        _columns(
            (number, receipt, each.event_id, each.event, each.key, each.value)
            for number, (receipt, each) in enumerate(rows, first)
        ),
    )
    connection.execute(f"NOTIFY {WRITTEN}")


def _columns(rows: Iterable[tuple[object, ...]]) -> list[list[object]]:
    """The columns of some rows, because one statement with columns takes less time than a statement for each row."""
    return [list(column) for column in zip(*rows, strict=True)]


def _now(connection: Connection) -> datetime:
    """PostgreSQL's time in whole milliseconds, like the broker's time, so that the broker's time is not earlier.

    All collectors have this clock in common. By its own clock, a collector could accept events that no reader counts.
    """
    now: datetime = read_value(connection, "SELECT date_trunc('milliseconds', clock_timestamp())")
    return now.astimezone(UTC)
