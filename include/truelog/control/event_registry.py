"""The registry of event versions: which version of an event type judges which records.

Every process decodes by the registry, never by the files in `include/events/`, which are only proposals. A version is
registered together with its cut, the end offsets of the topic at that moment:

1. Take the registry's lock exclusively.
2. Compare the database with the copy in the bucket. A database that was restored from a backup gets what it lacks.
3. Refuse a declaration that conflicts with an earlier version.
4. Read the topic's end offsets. They are the cut.
5. Commit the version and the cut to the database, then write the copy, then release the lock.

Whoever judges records loads the types with `confirmed_types`, which refuses a database that the bucket is ahead of, and
writes a copy that a crash in step 5 has left out. So the bucket has every version before it judges a record.

No process may judge a record past a cut that it does not know. `require_known` checks this after a process has read
the end of its batch and before it writes anything. The check waits for a running registration, because it takes the
lock too. If the check comes first, the registration reads the end offsets later, so its cut lies at or past the end of
the batch. If the registration comes first, the check sees the cut. Therefore the lock need not be held until the
process has written.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from psycopg.types.json import Jsonb

from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema import event_version
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import Cut, EventHistory
from truelog.storage import bucket
from truelog.storage.database import Connection, connect
from truelog.support import faults
from truelog.support.errors import (
    BadDeclaration,
    BadInput,
    MeaningChanged,
    NotSetUp,
    RegistryBehind,
    TopicRefused,
)
from truelog.support.settings import Settings

FOLDER = "_events"  # in the bucket

_LOCK = "SELECT pg_advisory_lock(hashtext('truelog.event_version'))"  # until the connection closes
log = logging.getLogger(__name__)

_SHARED_LOCK = "SELECT pg_advisory_xact_lock_shared(hashtext('truelog.event_version'))"


@dataclass(frozen=True)
class Registered:
    """The newest version of an event type, and whether this registration made it."""

    event_type: EventType
    is_new: bool


def register(settings: Settings, event_type: EventType) -> Registered:
    """Register the declaration of an event type, whose topic must exist.

    A declaration that is in force already makes no new version. Topic settings and quality are always taken over.

    Raises:
        BadDeclaration: the declaration conflicts with an earlier version. Nothing has changed.
        RegistryBehind: the database and the bucket have different versions.
        TopicRefused: the topic does not exist.
        ServiceDown: Kafka does not answer.
    """
    declaration = event_version.declaration_of(event_type)
    with _locked(settings) as connection:  # 1
        before = _reconciled(settings, connection, event_type.name)  # 2
        event_version.require_compatible(event_type, before.declarations)  # 3
        ends = topics.end_offsets(settings, [event_type.name])  # 4
        after = _extended(before, declaration, ends)
        after = replace(after, settings=event_version.settings_of(event_type))
        if after != before:
            _store(settings, connection, before, after)  # 5
    return Registered(after.event_type(), after.version > before.version)


def begin_reading(settings: Settings, event: str) -> EventType:
    """Begin another reading of the topic, in which the newest version judges all records from the first offset on.

    If the newest version judges all records already, nothing changes.

    Raises:
        BadInput: the registry has no such event type.
    """
    with _locked(settings) as connection:
        before = _reconciled(settings, connection, event)
        if not before.cuts:
            raise BadInput(f"{event} is not a registered event type: see `truelog events list`.")
        if len(before.in_force()) == 1:
            return before.event_type()
        cut = Cut(before.topic_id, before.reading + 1, before.version, {})
        after = replace(before, cuts=(*before.cuts, cut))
        _store(settings, connection, before, after)
    return after.event_type()


def restore(settings: Settings, *, dry_run: bool = False) -> list[str]:
    """Add what only the bucket has to a database that was restored from a backup; return the changed event types.

    Raises:
        RegistryBehind: the database and the bucket have different versions of an event type.
    """
    with _locked(settings) as connection:
        known = _load(connection)
        behind = [name for name, copy in _copies(settings).items() if not _of(known, name).continues(copy)]
        for name in behind if not dry_run else ():
            _reconciled(settings, connection, name)
    return sorted(behind)


def register_all(settings: Settings, types: Iterable[EventType]) -> dict[str, str]:
    """Register these event types; return the refused ones with their reasons, whose last version stays in force."""
    refused = {}
    for event_type in types:
        try:
            register(settings, event_type)
        except (BadDeclaration, RegistryBehind, TopicRefused) as error:
            refused[event_type.name] = str(error)
    return refused


def require_compatible(connection: Connection, types: Iterable[EventType]) -> None:
    """Refuse declarations that conflict with registered versions, before anything changes.

    Raises:
        BadDeclaration: the message names the field and both types.
    """
    histories = _load(connection)
    for each in types:
        if each.name in histories:
            event_version.require_compatible(each, histories[each.name].declarations)


def load_types(connection: Connection) -> EventTypes:
    """The newest registered version of every event type, by name. Each carries its earlier versions.

    Raises:
        NotSetUp: no event type has been registered.
    """
    found = {name: history.event_type() for name, history in sorted(_load(connection).items())}
    if not found:
        raise NotSetUp("no event type is registered: run `truelog up`.")
    return found


def event_types(settings: Settings) -> EventTypes:
    """The same as `load_types`, on a connection of its own."""
    with connect(settings) as connection:
        return load_types(connection)


def confirmed_types(settings: Settings) -> EventTypes:
    """The same, for a process that judges records: the copy in the bucket has the same versions.

    Raises:
        RegistryBehind: the bucket has versions or readings that the database lacks.
    """
    copies = _copies(settings)  # before the database, which gets a new version first
    with connect(settings) as connection:
        known, types = _load(connection), load_types(connection)
    for name, copy in copies.items():
        if not _of(known, name).continues(copy):
            raise _behind(name)
    if unfinished := [name for name, each in known.items() if not _of(copies, name).continues(each)]:
        with _locked(settings) as connection:
            for name in unfinished:
                _reconciled(settings, connection, name)
    return types


def newest_versions(connection: Connection) -> dict[str, tuple[str, int, int]]:
    """The topic id, reading and version in force of each event type: a cheap way to notice a registration."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT ON (event) event, topic_id, reading, version FROM truelog.event_cut ORDER BY event, id DESC"
    ).fetchall()
    return {event: (topic_id, reading, version) for event, topic_id, reading, version in rows}


def histories(connection: Connection) -> dict[str, EventHistory]:
    """All versions and cuts of every event type, by name."""
    return _load(connection)


def types_in_bucket(settings: Settings) -> EventTypes:
    """The same as `event_types`, from the copy in the bucket, for processes that cannot access the database."""
    found = {name: history.event_type() for name, history in _copies(settings).items()}
    if not found:
        raise NotSetUp("the bucket has no copy of the event versions: run `truelog up`.")
    return found


def require_known(connection: Connection, types: EventTypes, end: Positions) -> None:
    """Require that no cut unknown to these types lies below `end`.

    Call this after `end` has been read and before anything is written. The module's description says why this order
    suffices.

    Raises:
        MeaningChanged: an event type has an unknown version or reading that judges some records below `end`.
    """
    with connection.transaction():
        connection.execute(_SHARED_LOCK)
        # A separate statement, because a statement's snapshot is older than the lock that the statement waits for.
        rows: list[tuple[Any, ...]] = connection.execute(
            "SELECT event, topic_id, reading, version, first_offsets FROM truelog.event_cut WHERE event = ANY(%s)",
            (list(end.offsets),),
        ).fetchall()
    for event in end.offsets.keys() & types.keys():
        if types[event].topic_id not in ("", end.ids.get(event, "")) and event in end.ids:
            raise MeaningChanged(f"{event} was deleted and created again. The process must start again.")
    for event, topic_id, *found, first_offsets in rows:
        if topic_id != end.ids.get(event, topic_id) or found <= _known(types, event, topic_id):
            continue
        cuts = event_version.offsets_from_data(first_offsets)
        if any(cuts.get(partition, 0) < offset for partition, offset in end.offsets[event].items()):
            reading, version = found
            raise MeaningChanged(
                f"{event} has version {version} in reading {reading}, which this process does not know and which "
                f"judges records below {dict(end.offsets[event])}. The process must start again to load the version."
            )


def _known(types: EventTypes, event: str, topic_id: str) -> list[int]:
    """The newest reading and version of this topic that the types know. Types from files know none."""
    known = types.get(event)
    return [known.reading, known.version] if known is not None and known.topic_id == topic_id else [-1, -1]


def _extended(before: EventHistory, declaration: Mapping[str, Any], ends: Positions) -> EventHistory:
    """The history with this declaration in force from `ends` on. A first version judges from the first offset."""
    known = _with_topic(before, ends.ids[before.name])
    if known.declarations.get(known.version) == declaration:
        return known
    number = known.version + 1
    first_offsets = dict(ends.offsets[before.name]) if known.cuts else {}
    cut = Cut(ends.ids[before.name], known.reading, number, first_offsets)
    return replace(known, declarations={**known.declarations, number: declaration}, cuts=(*known.cuts, cut))


def _with_topic(before: EventHistory, topic_id: str) -> EventHistory:
    """The history with this topic, which begins with the newest version if it was created again."""
    if not before.cuts or before.topic_id == topic_id:
        return before
    return replace(before, cuts=(*before.cuts, Cut(topic_id, 0, before.version, {})))


@contextmanager
def _locked(settings: Settings) -> Iterator[Connection]:
    """Exclude all other registrations and checks until the end of the block, even between transactions."""
    with connect(settings, autocommit=True) as connection:
        connection.execute(_LOCK)
        yield connection


def _reconciled(settings: Settings, connection: Connection, name: str) -> EventHistory:
    """The history of an event type, after the database and the bucket have got what the other has."""
    known, copy = _of(_load(connection), name), _of(_copies(settings, name), name)
    if known.continues(copy):
        if not copy.continues(known):
            _write_copy(settings, known)
        return known
    if not copy.continues(known):
        raise RegistryBehind(
            f"{name}: the database and the bucket have different versions of this event type. Was the database "
            f"restored from a backup, and the type changed by an earlier release? Restore a later backup."
        )
    restored = replace(copy, settings=known.settings or copy.settings)
    _insert(connection, known, restored)
    log.warning("%s: version %s and reading %s came from the bucket", name, restored.version, restored.reading)
    return restored


def _of(histories: Mapping[str, EventHistory], name: str) -> EventHistory:
    return histories.get(name, EventHistory(name))


def _behind(name: str) -> RegistryBehind:
    return RegistryBehind(
        f"{name}: the bucket has event versions that the database lacks. Was the database restored from a backup? "
        f"Stop the archive, run `truelog archive adopt`, and start the archive again."
    )


def _copies(settings: Settings, prefix: str = "") -> dict[str, EventHistory]:
    """The copies in the bucket, by name."""
    client, found = bucket.s3_client(settings), {}
    for each in bucket.list_objects(client, settings.s3_bucket, f"{FOLDER}/{prefix}"):
        content = client.get_object(Bucket=settings.s3_bucket, Key=each["Key"])["Body"].read()
        history = EventHistory.from_dict(json.loads(content))
        found[history.name] = history
    return found


def _store(settings: Settings, connection: Connection, before: EventHistory, after: EventHistory) -> None:
    """Write what is new to the database, and the whole history to the bucket."""
    _insert(connection, before, after)
    faults.reach("registry.before_copy")
    _write_copy(settings, after)


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
    for number in after.declarations.keys() - before.declarations.keys():
        connection.execute(
            "INSERT INTO truelog.event_version (event, version, declaration) VALUES (%s, %s, %s)",
            (after.name, number, Jsonb(after.declarations[number])),
        )
    for cut in after.cuts[len(before.cuts) :]:
        connection.execute(
            "INSERT INTO truelog.event_cut (event, topic_id, reading, version, first_offsets) "
            "VALUES (%s, %s, %s, %s, %s)",
            (
                after.name,
                cut.topic_id,
                cut.reading,
                cut.version,
                Jsonb(event_version.offsets_as_data(cut.first_offsets)),
            ),
        )


def _write_copy(settings: Settings, history: EventHistory) -> None:
    bucket.s3_client(settings).put_object(
        Bucket=settings.s3_bucket,
        Key=f"{FOLDER}/{history.name}.json",
        Body=json.dumps(history.as_dict(), sort_keys=True).encode(),
        ContentType="application/json",
    )


def _load(connection: Connection) -> dict[str, EventHistory]:
    with connection.transaction():
        connection.execute(_SHARED_LOCK)  # so that all three queries see the same registrations
        types: list[tuple[Any, ...]] = connection.execute("SELECT event, settings FROM truelog.event_type").fetchall()
        versions: list[tuple[Any, ...]] = connection.execute(
            "SELECT event, version, declaration FROM truelog.event_version ORDER BY version"
        ).fetchall()
        cuts: list[tuple[Any, ...]] = connection.execute(
            "SELECT event, topic_id, reading, version, first_offsets FROM truelog.event_cut ORDER BY id"
        ).fetchall()
    return {
        name: EventHistory(name, settings, _versions_of(name, versions), _cuts_of(name, cuts))
        for name, settings in types
    }


def _versions_of(name: str, rows: list[tuple[Any, ...]]) -> dict[int, Mapping[str, Any]]:
    return {number: declaration for event, number, declaration in rows if event == name}


def _cuts_of(name: str, rows: list[tuple[Any, ...]]) -> tuple[Cut, ...]:
    return tuple(
        Cut(topic_id, reading, version, event_version.offsets_from_data(offsets))
        for event, topic_id, reading, version, offsets in rows
        if event == name
    )
