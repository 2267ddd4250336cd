"""Event files: the files in the events folder, which propose event types.

A new or changed file takes effect without a restart: `register_files` creates its topic and registers the event type,
and every process loads the registered types again. A file that cannot be used is recorded with the reason. It does not
stop anything, because the last registered version of its event type remains in force. A deleted file changes nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka.admin import AdminClient
from psycopg.rows import class_row

from truelog.control import command_states, event_registry, foreign_events
from truelog.control.view_tables import views_in_order
from truelog.log import topics
from truelog.schema import event_version
from truelog.schema.event import EventType
from truelog.schema.event_version import EventHistory
from truelog.schema.loading.events import load_proposals
from truelog.storage.database import Connection, storable
from truelog.storage.kept_sessions import kept
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BrokenFile:
    """An event type's file that cannot be used."""

    event: str
    reason: str
    since: datetime


def register_files(settings: Settings, broker: AdminClient | None = None) -> dict[str, str]:
    """Register every file that differs from the registry. Record and return why the other files cannot be used.

    If the events are those of another environment, copy what it has registered instead.

    Raises:
        ServiceDown: Kafka does not answer. Some files may have been registered.
    """
    proposals, broken = load_proposals(settings.events_folder)
    if settings.reads_events:
        broken |= _copy(settings, proposals)
    else:
        broken |= _register_changed(settings, broker or topics.client(settings), proposals)
    broken = {event: storable(reason) for event, reason in broken.items()}
    with kept(settings) as connection:
        if broken != {each.event: each.reason for each in broken_files(connection)}:
            record_broken(connection, broken)
    return broken


def _copy(settings: Settings, proposals: Mapping[str, EventType]) -> dict[str, str]:
    """Copy the event types of the other environment; return why files are not in force, or why types cannot be read."""
    refused = foreign_events.copy(settings)
    with kept(settings) as connection:
        registered = event_registry.histories(connection)
    for name, each in proposals.items():
        if name not in refused and (why := foreign_events.difference(settings, each, registered.get(name))):
            refused[name] = why
    return refused


def _register_changed(settings: Settings, broker: AdminClient, proposals: Mapping[str, EventType]) -> dict[str, str]:
    """Register the files that differ from the registry; return the refused ones with their reasons."""
    ids = topics.current_ids(broker, proposals.keys() & topics.existing_topics(broker))
    with kept(settings) as connection:
        registered = event_registry.histories(connection)
    changed = {n: each for n, each in proposals.items() if _differs(each, registered.get(n), ids.get(n))}
    if not changed:
        return {}
    harmed = _harmed(settings, broker, changed, ids)
    return harmed | _register(settings, {n: t for n, t in changed.items() if n not in harmed}, registered)


def _differs(proposed: EventType, registered: EventHistory | None, topic_id: str | None) -> bool:
    """Whether the file declares something new, or its topic was created again. A deleted topic stays deleted."""
    if registered is None or not registered.cuts or topic_id not in (None, registered.topic_id):
        return True
    in_force = registered.declarations[registered.version]
    declared = event_version.with_kept(event_version.declaration_of(proposed), in_force)
    return (in_force, registered.settings) != (declared, event_version.settings_of(proposed))


def _harmed(
    settings: Settings, broker: AdminClient, proposals: Mapping[str, EventType], ids: Mapping[str, str]
) -> dict[str, str]:
    """The event types with more partitions than their topics, if something depends on the order of a key's events.

    The events of a key could be in two partitions, so the view or the fold of commands would have to stop.
    """
    counts = topics.partition_counts(broker, proposals)
    grown = {name: proposals[name].topic.partitions for name, found in counts.items()}
    grown = {name: declared for name, declared in grown.items() if declared > counts[name]}
    with kept(settings) as connection:
        known = {ids[name]: name for name in grown if name in ids}
        ordered, folded = views_in_order(connection, known), command_states.folded(connection, known)
    readers = {name: ordered.get(name, []) for name in ordered.keys() | folded}
    readers |= {name: [*readers[name], "the fold of commands"] for name in folded}
    return {
        name: f"{name} has {counts[name]} partitions. With {grown[name]}, the events of a key would be in two of them "
        f"without a common order, on which {', '.join(names)} depends. Declare a new event type, and let a new "
        f"version of the view, or the commands, use it."
        for name, names in readers.items()
    }


def _register(
    settings: Settings, proposals: Mapping[str, EventType], registered: Mapping[str, EventHistory]
) -> dict[str, str]:
    """Register event types; return the refused ones with their reasons. Each step leaves out what was refused before.

    1. Refuse conflicts, before anything changes.
    2. Create or adjust the topics.
    3. Register the event types.
    """
    refused = _conflicts(proposals, registered)  # 1
    refused |= topics.sync_each(settings, {n: each for n, each in proposals.items() if n not in refused})  # 2
    accepted = [each for name, each in proposals.items() if name not in refused]
    refused |= event_registry.register_all(settings, accepted)  # 3
    for name in [name for name in proposals if name not in refused]:
        log.info("%s is registered", name)
    return refused


def _conflicts(proposals: Mapping[str, EventType], registered: Mapping[str, EventHistory]) -> dict[str, str]:
    """The event types that conflict with a registered version, with the reasons."""
    refused = {}
    for name in proposals.keys() & registered.keys():
        try:
            event_version.require_compatible(proposals[name], registered[name].declarations)
        except BadDeclaration as conflict:
            refused[name] = str(conflict)
    return refused


def record_broken(connection: Connection, broken: Mapping[str, str]) -> None:
    """Record exactly these event types, each with the reason, as the event types with a file that cannot be used."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM truelog.event_file WHERE event <> ALL(%s)", (list(broken),))
        cursor.executemany(
            "INSERT INTO truelog.event_file (event, reason) VALUES (%s, %s) "
            "ON CONFLICT (event) DO UPDATE SET reason = excluded.reason",
            list(broken.items()),
        )


def broken_files(connection: Connection) -> list[BrokenFile]:
    """Every event type whose file cannot be used, by name."""
    with connection.cursor(row_factory=class_row(BrokenFile)) as cursor:
        return cursor.execute("SELECT event, reason, since FROM truelog.event_file ORDER BY event").fetchall()
