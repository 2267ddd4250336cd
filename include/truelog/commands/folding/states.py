"""The state of a key: what the log says up to the reader's positions, and the accepted events beyond them.

Whoever changes the state of a key or decides on it holds the lock of its row.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

from truelog.commands.declaration import Fold, Payload, State
from truelog.commands.events import LogEvent, payloads
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection, read_value
from truelog.support.errors import TruelogError
from truelog.support.faults import reach


class FoldFailed(TruelogError):
    """A fold cannot read an event, which is a defect of the file that contains the fold."""


class KeyName(NamedTuple):
    """A key: the event type, and the value of the type's key field."""

    event: str
    key: str


@dataclass(frozen=True)
class KeyState:
    """The state of a key, and its version: the number of the key's events, in the log or accepted."""

    state: State
    version: int


def lock_keys(connection: Connection, keys: Iterable[KeyName]) -> None:
    """Lock the rows of the keys until the transaction ends. All sessions lock in sorted order, so none deadlocks."""
    ordered = sorted(set(keys))
    events, names = [each.event for each in ordered], [each.key for each in ordered]
    connection.execute(
        "INSERT INTO truelog.command_key (event, key) SELECT * FROM unnest(%s::text[], %s::text[]) "
        "ON CONFLICT DO NOTHING",
        (events, names),
    )
    reach("command.made")
    connection.execute(
        "SELECT FROM truelog.command_key WHERE (event, key) IN (SELECT * FROM unnest(%s::text[], %s::text[])) "
        'ORDER BY event COLLATE "C", key COLLATE "C" FOR UPDATE',
        (events, names),
    )


def read_logged(connection: Connection, keys: Collection[KeyName]) -> dict[KeyName, KeyState]:
    """The states of locked keys as the log says."""
    rows = connection.execute(
        "SELECT event, key, state, events FROM truelog.command_key "
        "WHERE (event, key) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
        _columns(keys),
    )
    return {KeyName(event, key): KeyState(state, events) for event, key, state, events in rows}


def read_pending(connection: Connection, keys: Collection[KeyName]) -> list[LogEvent]:
    """The accepted events of locked keys that the reader has not read in the log, in the order of their numbers."""
    rows = connection.execute(
        "SELECT event_id, event, key, value FROM truelog.command_event "
        'WHERE "offset" IS NULL AND (event, key) IN (SELECT * FROM unnest(%s::text[], %s::text[])) ORDER BY number',
        _columns(keys),
    )
    return [LogEvent(*row) for row in rows]


def lock_count(connection: Connection, event: str) -> None:
    """Let no other session count the keys of an event type until the transaction ends."""
    connection.execute("SELECT truelog.hold_keys_in_use(%s)", (event,))


def count_in_use(connection: Connection, event: str) -> int:
    """How many keys of an event type have a state, or may get one from accepted events that the reader has not read."""
    lock_count(connection, event)
    return int(
        read_value(
            connection,
            "SELECT count(*) FROM truelog.command_key AS k WHERE event = %s AND (state <> '{}' OR EXISTS ("
            'SELECT FROM truelog.command_event WHERE "offset" IS NULL AND (event, key) = (k.event, k.key)))',
            (event,),
        )
    )


def write_logged(connection: Connection, states: Mapping[KeyName, KeyState]) -> None:
    """Store the states of locked keys."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE truelog.command_key SET state = %s, events = %s WHERE (event, key) = (%s, %s)",
            [(json.dumps(each.state), each.version, *name) for name, each in states.items()],
        )


def current(
    connection: Connection,
    types: EventTypes,
    folds: Mapping[str, Fold],
    keys: Collection[KeyName],
    counted: Iterable[str] = (),
) -> "States":
    """The states of locked keys with all accepted events, and the number of keys in use of some event types."""
    in_use = {event: count_in_use(connection, event) for event in sorted(counted)}
    states = States(types, folds, read_logged(connection, keys), in_use)
    states.add(read_pending(connection, keys))
    return states


class States:
    """The states of some locked keys during a transaction.

    Added events are decoded together when a state that they change is read, because one call of the decoder takes about
    as long for many events as for one.

    in_use: the number of keys in use, by event type.
    """

    def __init__(
        self,
        types: EventTypes,
        folds: Mapping[str, Fold],
        states: Mapping[KeyName, KeyState],
        in_use: Mapping[str, int] | None = None,
    ) -> None:
        self._types = types
        self._folds = folds
        self._states = dict(states)
        self.in_use = Counter(in_use)
        self._added: list[LogEvent] = []  # not folded yet
        self._changed = Counter[KeyName]()  # how many of these events each key has

    def __getitem__(self, name: KeyName) -> KeyState:
        """The state of a key. It raises what `fold` raises."""
        if name in self._changed:
            self.fold()
        return self._states[name]

    def version(self, name: KeyName) -> int:
        """The version of a key."""
        return self._states[name].version + self._changed[name]

    def add(self, events: Sequence[LogEvent]) -> None:
        """Add accepted events, in their order."""
        self._added += events
        self._changed.update(KeyName(each.event, each.key) for each in events)

    def fold(self) -> None:
        """Fold all added events.

        Raises:
            FoldFailed: a fold cannot read one of them. No state has changed.
        """
        after: dict[KeyName, KeyState] = {}
        for each, payload in zip(self._added, payloads(self._types, self._added), strict=True):
            name = KeyName(each.event, each.key)
            before = after.get(name, self._states[name])
            after[name] = KeyState(_applied(self._folds[name.event], before.state, payload), before.version + 1)
        self._states.update(after)
        self._added.clear()
        self._changed.clear()


def _applied(fold: Fold, state: State, payload: Payload) -> State:
    """The state after an event. It raises no other error than FoldFailed, which no decision raises."""
    try:
        return fold.apply(state, payload)
    except Exception as error:
        raise FoldFailed(f"the fold of {fold.event} failed on an event: {type(error).__name__}") from error


def folded(fold: Fold, before: KeyState, events: Sequence[Mapping[str, object]]) -> KeyState:
    """The state after further events of the log.

    Raises:
        FoldFailed: the fold cannot read one of them.
    """
    return KeyState(reduce(partial(_applied, fold), events, before.state), before.version + len(events))


def _columns(keys: Collection[KeyName]) -> tuple[list[str], list[str]]:
    return [each.event for each in keys], [each.key for each in keys]
