"""The two places of the event registry: the database, and the copy in the bucket.

`event_registry` says in which order they change, and why.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.types.json import Jsonb

from truelog.control import command_states
from truelog.schema import event_version
from truelog.schema.event_version import Cut, EventHistory
from truelog.storage import bucket
from truelog.storage.database import Connection, connect
from truelog.storage.locks import HOLD_REGISTRATIONS, Locks
from truelog.support import faults
from truelog.support.errors import RegistryBehind
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FOLDER = "_events"  # in the bucket
SHARED_LOCK = f"SELECT {HOLD_REGISTRATIONS}"  # until the transaction ends

_LOCK = f"SELECT pg_advisory_lock({Locks.EVENT_VERSIONS})"  # until the connection closes
_REQUESTS = 8  # to the bucket at a time

_Argument = TypeVar("_Argument")
_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Registry:
    """Both places, as they are under the lock."""

    connection: Connection
    known: Mapping[str, EventHistory]  # to the database
    copies: Mapping[str, EventHistory]
    unwritten: dict[str, EventHistory] = field(default_factory=dict)  # copies that the database is ahead of

    def reconciled(self, name: str) -> EventHistory:
        """The history of an event type. The database gets what only the bucket contains.

        Raises:
            RegistryBehind: the two places have different versions.
        """
        known, copy = _of(self.known, name), _of(self.copies, name)
        if known.continues(copy):
            if not copy.continues(known) or copy.registering:  # a registration was interrupted
                self.unwritten[name] = known
            return known
        if not copy.continues(known):
            raise RegistryBehind(
                f"{name}: the database and the bucket have different versions of this event type. Was the database "
                f"restored from a backup, and the type changed by an earlier release? Restore a later backup."
            )
        restored = replace(copy, settings=known.settings or copy.settings, registering=False)
        if copy.registering:
            self.unwritten[name] = restored
        _insert(self.connection, known, restored)
        log.warning("%s: version %s and reading %s came from the bucket", name, restored.version, restored.reading)
        return restored

    def store(self, before: EventHistory, after: EventHistory) -> None:
        """Commit what is new to the database. The copy follows when the lock's block ends."""
        _insert(self.connection, before, after)
        self.unwritten[after.name] = after


def announce(settings: Settings, registry: Registry, histories: Collection[EventHistory]) -> None:
    """Say in the bucket that these event types may get a cut, before it is decided. The end of the block takes it back.

    An environment that reads the events of this one does not see its lock.
    """
    if histories:
        write_copies(settings, [replace(each, registering=True) for each in histories])
        registry.unwritten.update({each.name: each for each in histories})


@contextmanager
def locked(settings: Settings, *names: str) -> Iterator[Registry]:
    """Exclude all other registrations and checks until the end of the block, even between transactions.

    The registry has the copies of these event types, or all copies. If the block succeeds, copies that the database is
    ahead of are written. If it fails, the next reader writes them, because the lock may have been lost.
    """
    with connect(settings, autocommit=True) as connection:
        connection.execute(_LOCK)
        registry = Registry(connection, load(connection), copies(settings, *names))
        yield registry
        if registry.unwritten:
            faults.reach("registry.before_copy")
            write_copies(settings, registry.unwritten.values())


def interrupted(copies: Mapping[str, EventHistory]) -> list[str]:
    """The event types whose registration has not ended, or was interrupted."""
    return sorted(name for name, each in copies.items() if each.registering)


def behind(histories: Mapping[str, EventHistory], others: Mapping[str, EventHistory]) -> list[str]:
    """The event types that have something in the other place, but not in the first."""
    return [name for name, other in sorted(others.items()) if not _of(histories, name).continues(other)]


def _of(histories: Mapping[str, EventHistory], name: str) -> EventHistory:
    return histories.get(name, EventHistory(name))


def load(connection: Connection) -> dict[str, EventHistory]:
    """All event types in the database, by name."""
    with connection.transaction():
        connection.execute(SHARED_LOCK)  # so that all three queries see the same registrations
        types = connection.execute("SELECT event, settings FROM truelog.event_type").fetchall()
        versions = connection.execute(
            "SELECT event, version, declaration FROM truelog.event_version ORDER BY version"
        ).fetchall()
        cuts = connection.execute(
            "SELECT event, topic_id, reading, version, first_offsets, began FROM truelog.event_cut ORDER BY id"
        ).fetchall()
    return {
        name: EventHistory(name, settings, _versions_of(name, versions), _cuts_of(name, cuts))
        for name, settings in types
    }


def _versions_of(name: str, rows: list[tuple[Any, ...]]) -> dict[int, Mapping[str, Any]]:
    return {number: declaration for event, number, declaration in rows if event == name}


def _cuts_of(name: str, rows: list[tuple[Any, ...]]) -> tuple[Cut, ...]:
    return tuple(
        Cut(topic_id, reading, version, *map(event_version.offsets_from_data, offsets))
        for event, topic_id, reading, version, *offsets in rows
        if event == name
    )


def copies(settings: Settings, *names: str) -> dict[str, EventHistory]:
    """The copies of these event types in the bucket, or all copies, by name."""
    client, wanted = bucket.s3_client(settings), {key(name) for name in names}
    found = [each["Key"] for each in bucket.list_objects(client, settings.s3_bucket, f"{FOLDER}/")]
    return read_copies(client, settings.s3_bucket, [each for each in found if not wanted or each in wanted])


def read_copies(client: "S3Client", of_bucket: str, keys: Iterable[str]) -> dict[str, EventHistory]:
    """The copies with these keys in a bucket, by the names of their event types."""

    def read(copy: str) -> EventHistory:
        return EventHistory.from_dict(json.loads(client.get_object(Bucket=of_bucket, Key=copy)["Body"].read()))

    return {history.name: history for history in _together(read, keys)}


def key(event: str) -> str:
    """The key of a copy in the bucket."""
    return f"{FOLDER}/{event}.json"


def _insert(connection: Connection, before: EventHistory, after: EventHistory) -> None:
    with connection.transaction():
        _insert_rows(connection, before, after)
        faults.reach("registry.before_commit")


def _insert_rows(connection: Connection, before: EventHistory, after: EventHistory) -> None:
    connection.execute(
        "INSERT INTO truelog.event_type (event, settings) VALUES (%s, %s) "
        "ON CONFLICT (event) DO UPDATE SET settings = excluded.settings",
        (after.name, Jsonb(after.settings)),
    )
    if (after.topic_id, after.reading) != (before.topic_id, before.reading):
        command_states.withdraw(connection, [after.name])
    for number in after.declarations.keys() - before.declarations.keys():
        connection.execute(
            "INSERT INTO truelog.event_version (event, version, declaration) VALUES (%s, %s, %s)",
            (after.name, number, Jsonb(after.declarations[number])),
        )
    for cut in after.cuts[len(before.cuts) :]:
        connection.execute(
            "INSERT INTO truelog.event_cut (event, topic_id, reading, version, first_offsets, began) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            (
                after.name,
                cut.topic_id,
                cut.reading,
                cut.version,
                Jsonb(event_version.offsets_as_data(cut.first_offsets)),
                Jsonb(event_version.offsets_as_data(cut.began)),
            ),
        )


def write_copies(settings: Settings, histories: Iterable[EventHistory]) -> None:
    """Replace the copies of these event types in the bucket."""
    client = bucket.s3_client(settings)

    def write(history: EventHistory) -> None:
        client.put_object(
            Bucket=settings.s3_bucket,
            Key=key(history.name),
            Body=json.dumps(history.as_dict(), sort_keys=True).encode(),
            ContentType="application/json",
        )

    _together(write, histories)


def _together(request: Callable[[_Argument], _Answer], arguments: Iterable[_Argument]) -> list[_Answer]:
    """The answers to requests. Several requests wait at a time."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return list(pool.map(request, arguments))
