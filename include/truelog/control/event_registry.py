"""The registry of event versions: which version of an event type judges which records.

Every process decodes by the registry, never by the files in `include/events/`, which are only proposals. A version is
registered together with its cut, the end offsets of the topic at that moment:

1. Take the registry's lock exclusively.
2. Compare the database with the copy in the bucket. A database that was restored from a backup gets what it lacks.
3. Refuse a declaration that conflicts with an earlier version. If it changes one, say so in the copy.
4. Read the topic's end offsets. They are the cut. Read a new topic's first offsets, from which on it must be archived.
5. Commit the version and the cut to the database, then write the copy, then release the lock.

An environment that reads the events of another one registers nothing. It copies what the other one has registered
(`truelog.control.foreign_events`).

Several event types take each step together. A refused type takes no further step, and does not hold up the others.

Whoever judges records loads the types with `confirmed_types`, which refuses a database that the bucket is ahead of, and
writes a copy that a crash in step 5 has left out. So the bucket contains every version before it judges a record.

No process may judge a record past a cut that it does not know. `require_known` checks this after a process has read
the end of its batch and before it writes anything. The check waits for a running registration, because it takes the
lock too. If the check comes first, the registration reads the end offsets later, so its cut lies at or past the end of
the batch. If the registration comes first, the check sees the cut. Therefore the lock need not be held until the
process has written.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from truelog.control import event_store, foreign_events
from truelog.control.event_store import Registry
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema import event_version
from truelog.schema.event import EventType, EventTypes
from truelog.schema.event_version import Cut, EventHistory
from truelog.schema.frames.kept_schema import KeptSchema
from truelog.storage.database import Connection, connect, read_value
from truelog.storage.kept_sessions import kept
from truelog.support.errors import (
    BadDeclaration,
    BadInput,
    MeaningChanged,
    NotSetUp,
    RegistryBehind,
    ServiceDown,
    TopicRefused,
    TruelogError,
)
from truelog.support.settings import Settings

# A value that each registration changes.
_STATE = """
    SELECT md5(coalesce(string_agg(state, ' ' ORDER BY state COLLATE "C"), '')) FROM (
        SELECT concat_ws(' ', event, topic_id, reading, version, made_at) FROM truelog.event_cut
        UNION ALL SELECT concat_ws(' ', event, settings) FROM truelog.event_type
    ) AS registered (state)
"""


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
    registered, refused = _register(settings, [event_type])
    for reason in refused.values():
        raise reason
    return registered[event_type.name]


def register_all(settings: Settings, types: Collection[EventType]) -> dict[str, str]:
    """Register these event types; return the refused ones with their reasons, whose last version stays in force.

    Raises:
        ServiceDown: Kafka does not answer about a topic. Event types of other topics may have been registered.
    """
    _, refused = _register(settings, types) if types else ({}, {})
    return {name: str(reason) for name, reason in refused.items()}


def _register(
    settings: Settings, types: Collection[EventType]
) -> tuple[dict[str, Registered], dict[str, TruelogError]]:
    """The registered event types and the refusals, by name."""
    settings.require_own_events("the registration of an event type")
    registered = dict[str, Registered]()
    with event_store.locked(settings, *(each.name for each in types)) as registry:  # 1
        before, refused = _compatible(registry, types)
        changed = [before[each.name] for each in types if _changes(before.get(each.name), each)]
        event_store.announce(settings, registry, changed)
        broker = topics.client(settings)
        ends, missing = topics.ends_of_existing(broker, before)  # 4
        refused |= {name: TopicRefused(reason) for name, reason in missing.items()}
        new = [name for name, topic_id in ends.positions.ids.items() if before[name].topic_id != topic_id]
        begins = topics.begins_by_partition(broker, new)
        unanswered = {topic for topic, _ in (*ends.unknown, *begins.unknown)}
        for event_type in types:
            if (name := event_type.name) in before.keys() - refused.keys() - unanswered:
                bounds = begins.positions, ends.positions
                registered[name] = _stored(registry, before[name], event_type, *bounds)  # 5
    ends.whole()
    begins.whole()
    return registered, refused


def _compatible(
    registry: Registry, types: Collection[EventType]
) -> tuple[dict[str, EventHistory], dict[str, TruelogError]]:
    """The histories that the event types can continue, and the refusals, by name."""
    histories, refused = dict[str, EventHistory](), dict[str, TruelogError]()
    for event_type in types:
        try:
            history = registry.reconciled(event_type.name)  # 2
            event_version.require_compatible(event_type, history.declarations)  # 3
        except (BadDeclaration, RegistryBehind) as reason:
            refused[event_type.name] = reason
        else:
            histories[event_type.name] = history
    return histories, refused


def _changes(before: EventHistory | None, event_type: EventType) -> bool:
    """Whether the declaration differs from the one in force, so that a registration makes a cut."""
    if before is None or not before.cuts:
        return False
    in_force = before.declarations[before.version]
    return in_force != event_version.with_kept(event_version.declaration_of(event_type), in_force)


def _stored(
    registry: Registry, before: EventHistory, event_type: EventType, begins: Positions, ends: Positions
) -> Registered:
    known = _with_topic(before, ends.ids[before.name], begins.offsets.get(before.name, {}))
    after = _extended(known, event_version.declaration_of(event_type), begins, ends)
    after = replace(after, settings=event_version.settings_of(event_type))
    if after != before:
        registry.store(before, after)
    return Registered(after.event_type(), after.version > before.version)


def keep_schemas(settings: Settings, event: str, schemas: Collection[KeptSchema]) -> Registered:
    """Register a version that also keeps these schemas of the schema registry. Nothing changes if it keeps them all.

    Records of these schemas that are in the log already stay invalid until `truelog events rejudge`.

    Raises:
        BadInput: there is no such event type, producers do not write its records, or a number has another schema.
        ReadsOnly: the events are another environment's, which keeps their schemas.
        RegistryBehind: the database and the bucket have different versions.
        ServiceDown: Kafka does not answer.
        TopicRefused: the topic does not exist.
    """
    settings.require_own_events("the keeping of schemas")
    with event_store.locked(settings, event) as registry:
        before = registry.reconciled(event)
        if not before.cuts:
            raise BadInput(f"{event} is not a registered event type: see `truelog events list`.")
        newest = before.event_type()
        if newest.topic.internal:
            raise BadInput(f"{event}: only the platform writes to this topic, and it frames no record.")
        _require_same(registry.known.values(), schemas)
        keeping = replace(newest, frames=tuple(schemas))
        event_store.announce(settings, registry, [before] if _changes(before, keeping) else [])
        ends, missing = topics.ends_of_existing(topics.client(settings), [event])
        if not missing and not ends.unknown:
            return _stored(registry, before, keeping, Positions(), ends.positions)
    for reason in missing.values():
        raise TopicRefused(reason)
    raise ServiceDown(" ".join(ends.unknown.values()))


def _require_same(histories: Iterable[EventHistory], schemas: Collection[KeptSchema]) -> None:
    """Require that no event type keeps another schema under one of these numbers."""
    kept = {each.id: each for history in histories for each in history.kept()}
    for each in schemas:
        if kept.get(each.id, each) != each:
            raise BadInput(
                f"schema {each.id} was kept with another text, and its records are judged by that text. Does "
                "TRUELOG_SCHEMA_REGISTRY_URL name another registry than before?"
            )


def begin_reading(settings: Settings, event: str) -> EventType:
    """Begin another reading of the topic, in which the newest version judges all records from the first offset on.

    If the newest version judges all records already, nothing changes. An environment that reads the events of another
    one begins no reading. It takes that of the other one, which may have got later versions since.

    Raises:
        BadInput: the registry has no such event type.
        ReadsOnly: the events are another environment's, which has not begun another reading of this topic.
    """
    if settings.reads_events:
        foreign_events.copy(settings)
    with event_store.locked(settings, event) as registry:
        before = registry.reconciled(event)
        if not before.cuts:
            raise BadInput(f"{event} is not a registered event type: see `truelog events list`.")
        if len(before.in_force()) == 1 or (settings.reads_events and before.reading > 0):
            return before.event_type()
        settings.require_own_events(f"another reading of {event}")
        cut = Cut(before.topic_id, before.reading + 1, before.version, {}, before.began)
        after = replace(before, cuts=(*before.cuts, cut))
        registry.store(before, after)
    return after.event_type()


def restore(settings: Settings, *, dry_run: bool = False) -> list[str]:
    """Add what only the bucket has to a database that was restored from a backup; return the changed event types.

    Raises:
        RegistryBehind: the database and the bucket have different versions of an event type.
    """
    with event_store.locked(settings) as registry:
        behind = event_store.behind(registry.known, registry.copies)
        for name in behind if not dry_run else ():
            registry.reconciled(name)
    return behind


def load_types(connection: Connection) -> EventTypes:
    """The newest registered version of every event type, by name. Each carries its earlier versions.

    Raises:
        NotSetUp: no event type has been registered.
    """
    found = {name: history.event_type() for name, history in sorted(event_store.load(connection).items())}
    if not found:
        raise NotSetUp("no event type is registered: run `truelog up`.")
    return found


def event_types(settings: Settings) -> EventTypes:
    """The same as `load_types`, in a session that the process keeps."""
    with kept(settings) as connection:
        return load_types(connection)


def confirmed_types(settings: Settings) -> EventTypes:
    """The same, for a process that judges records: the copy in the bucket contains the same versions.

    Raises:
        RegistryBehind: the bucket contains versions or readings that the database lacks.
    """
    if settings.reads_events:
        foreign_events.copy(settings)
    copies = event_store.copies(settings)  # before the database, which gets a new version first
    with connect(settings) as connection:
        known, types = event_store.load(connection), load_types(connection)
    for name in event_store.behind(known, copies):
        raise RegistryBehind(
            f"{name}: the bucket contains event versions that the database lacks. Was the database restored from a "
            f"backup? Stop the archive, run `truelog archive adopt`, and start the archive again."
        )
    if unfinished := {*event_store.behind(copies, known), *event_store.interrupted(copies)}:
        with event_store.locked(settings, *unfinished) as registry:
            for name in unfinished:
                registry.reconciled(name)
    return types


class KnownTypes:
    """The same for a service that asks again and again. It loads them only if something was registered since then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._types: EventTypes = {}
        self._state: str | None = None

    def load(self) -> EventTypes:
        """The newest registered version of every event type, by name."""
        with kept(self._settings) as connection:
            state = str(read_value(connection, _STATE))  # first: a registration after it is noticed the next time
            if state != self._state:
                self._types, self._state = load_types(connection), state
        return self._types


def newest_versions(connection: Connection) -> dict[str, tuple[str, int, int]]:
    """The topic id, reading and version in force of each event type: a cheap way to notice a registration."""
    rows = connection.execute(
        "SELECT DISTINCT ON (event) event, topic_id, reading, version FROM truelog.event_cut ORDER BY event, id DESC"
    ).fetchall()
    return {event: (topic_id, reading, version) for event, topic_id, reading, version in rows}


def beginnings(connection: Connection) -> Positions:
    """Where each registered topic began when it was registered: from there on, every record must be archived."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT DISTINCT ON (event) event, topic_id, began FROM truelog.event_cut ORDER BY event, id DESC"
    ).fetchall()
    offsets = {event: event_version.offsets_from_data(began) for event, _, began in rows}
    return Positions(offsets, {event: topic_id for event, topic_id, _ in rows})


def histories(connection: Connection) -> dict[str, EventHistory]:
    """All versions and cuts of every event type, by name."""
    return event_store.load(connection)


def types_in_bucket(settings: Settings) -> EventTypes:
    """The same as `event_types`, from the copy in the bucket, for processes that cannot access the database."""
    found = {name: history.event_type() for name, history in event_store.copies(settings).items()}
    if not found:
        raise NotSetUp("the bucket has no copy of the event versions: run `truelog up`.")
    return found


def require_known(settings: Settings, connection: Connection, types: EventTypes, end: Positions) -> None:
    """Require that no cut unknown to these types lies below `end`.

    Call this after `end` has been read and before anything is written. The module's description says why this order
    suffices.

    Raises:
        MeaningChanged: an event type has an unknown version or reading that judges some records below `end`.
        ServiceDown: the environment whose events are read is registering a version.
    """
    if settings.reads_events:
        foreign_events.require_copied(settings, connection, end.offsets)
    with connection.transaction():
        connection.execute(event_store.SHARED_LOCK)
        # A separate statement, because a statement's snapshot is older than the lock that the statement waits for.
        rows = connection.execute(
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


def _extended(known: EventHistory, declaration: Mapping[str, Any], begins: Positions, ends: Positions) -> EventHistory:
    """The history with this declaration in force from `ends` on. A first version judges from the first offset."""
    in_force = known.declarations.get(known.version)
    declaration = event_version.with_kept(declaration, in_force or {})
    if in_force == declaration:
        return known
    number = known.version + 1
    first_offsets = dict(ends.offsets[known.name]) if known.cuts else {}
    began = known.began if known.cuts else begins.offsets[known.name]
    cut = Cut(ends.ids[known.name], known.reading, number, first_offsets, began)
    return replace(known, declarations={**known.declarations, number: declaration}, cuts=(*known.cuts, cut))


def _with_topic(before: EventHistory, topic_id: str, began: Mapping[int, int]) -> EventHistory:
    """The history with this topic, which begins with the newest version if it was created again."""
    if not before.cuts or before.topic_id == topic_id:
        return before
    return replace(before, cuts=(*before.cuts, Cut(topic_id, 0, before.version, {}, began)))
