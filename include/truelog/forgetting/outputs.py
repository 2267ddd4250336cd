"""The outputs of views: after an erasure, the relay publishes what has changed, and the outbox forgets what was before.

An output topic that no view writes now would keep its rows for ever, so the erasure deletes it.

The outbox forgets nothing that the notifier has not read, if it follows the view. It goes on behind the
row that is published once more.

A repair has put the changed and the vanished rows into the outbox, as any transaction does. The keys of vanished rows
may name the person too. As soon as the relay has published these rows and one more, nothing needs them.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import psycopg

from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.forgetting.request import made_versions
from truelog.log import output_topic, topics
from truelog.maintenance.notifier_place import place_of_notifier, unnoticed
from truelog.relay.feed import RESYNC
from truelog.relay.place import read_places
from truelog.relay.view_feed import ViewFeed, topic_of
from truelog.schema.names import OUTPUT
from truelog.storage.database import Connection, allow_pauses, connect, read_value
from truelog.storage.locks import Locks
from truelog.support.errors import NotForgotten, ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox

_RELAY_SECONDS = 60.0
_LOCK_TIMEOUT = "5s"
_TROUBLE = "SELECT trouble FROM truelog.output WHERE (view, version) = (%s, %s)"
_LOOK_SECONDS = 60.0  # between the looks of the relay for quiet topics, and of Kafka for topics to compact
_TOPIC = re.compile(rf"{re.escape(OUTPUT)}(?P<view>[a-z][a-z0-9_]*)\.v(?P<version>[0-9]{{1,9}})")


def forget_published(settings: Settings, connection: Connection, views: Sequence[CompiledView]) -> None:
    """Wait until the outputs of these views are published, and delete what the outbox has of them.

    Raises:
        NotForgotten: the relay does not publish them, or the notifier does not read them, within a minute. Or another
            erasure holds one of them back, or one needs a resync, as after a restore.
    """
    published = [_Output(settings, connection, each) for each in views if each.view.publish]
    outputs = [each for each in published if each.feed.beginning() is not None]
    _require_not_held(connection, outputs)
    try:
        for step in (_Output.pass_by, _Output.require_passed):
            for each in outputs:
                until(partial(step, each), _RELAY_SECONDS, each.feed.name)
    except ServiceDown as down:
        raise NotForgotten(f"{down}. Start the services `relay` and `notifier`, then repeat the command.") from down
    for each in outputs:
        each.feed.trim(each.last, at_once=True)  # the notifier may not have read what came after it


def _require_not_held(connection: Connection, outputs: Sequence["_Output"]) -> None:
    """Raise NotForgotten if the relay would not publish an output, which it does only when no erasure holds it back."""
    held = hold.held_versions(connection)
    if names := sorted(each.compiled.name for each in outputs if (each.feed.view, each.feed.version) in held):
        raise NotForgotten(
            f"{', '.join(names)} is held back after a restore by another erasure. Finish that one first: see "
            "`truelog erasures list`, and `truelog status` if it is not there."
        )


def unwritten(settings: Settings, connection: Connection, erasure: Erasure) -> list[str]:
    """The output topics that no view writes now, and that may name the person: nothing removes their rows.

    Of a version that is gone, it is not known what it has read.
    """
    written = {topic_of(*each) for each in _written(connection)}
    rows = connection.execute("SELECT view, version FROM truelog.view").fetchall()
    known = {(str(view), int(str(version))) for view, version in rows}
    may_name = set(made_versions(connection, erasure))
    found = filter(None, map(_TOPIC.fullmatch, topics.existing_topics(topics.client(settings)) - written))
    of = {each[0]: (each["view"], int(each["version"])) for each in found}
    return sorted(topic for topic, version in of.items() if version in may_name or version not in known)


def delete_unwritten(settings: Settings, connection: Connection, erasure: Erasure) -> None:
    """Delete the output topics that no view writes now. The ledger names them first.

    A view that publishes again later begins with its whole table. None does so meanwhile, and merges go on.

    Raises:
        NotForgotten: an output begins at this moment, which may take long for a large table.
    """
    if not unwritten(settings, connection, erasure):
        return
    try:
        with _no_beginning(connection):
            if names := unwritten(settings, connection, erasure):
                with connect(settings, autocommit=True) as at_once:
                    ledger.record_deleted(at_once, erasure, names)
                output_topic.delete_topics(settings, KafkaUser.ERASER, names)
    except psycopg.errors.LockNotAvailable as error:
        raise NotForgotten(
            "the output of a view begins at this moment, and topics of outputs are to be deleted. Repeat the command "
            "in some minutes."
        ) from error


@contextmanager
def _no_beginning(connection: Connection) -> Iterator[None]:
    """A transaction in which no output begins. Beginnings queue behind it, so it does not wait for long."""
    with connection.transaction():
        allow_pauses(connection)  # Kafka may need longer than a session may be idle
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        connection.execute(f"SELECT pg_advisory_xact_lock({Locks.OUTPUTS})")
        yield


def compacted_at(
    settings: Settings, connection: Connection, erasure: Erasure, since: datetime
) -> dict[str, datetime | None]:
    """For each output of the erasure, when Kafka has compacted all that was published before a time. None is never.

    A record is removed when the segment with it was closed and compacted, and its key when that has happened again
    after the time that a tombstone stays. The relay writes to a quiet topic, so that segments are closed.
    """
    made, existing = set(made_versions(connection, erasure)), topics.existing_topics(topics.client(settings))
    names = sorted({topic_of(*each) for each in _written(connection) if each in made} & existing)
    found = {name: output_topic.compaction(settings, name) for name in names}
    quiet = settings.output_compaction_seconds + _LOOK_SECONDS
    seconds = {
        name: None if each.limit is None
        else 2 * (each.segment + quiet + each.limit + _LOOK_SECONDS) + each.tombstones + quiet
        for name, each in found.items()
    }  # fmt: skip
    return {name: None if each is None else since + timedelta(seconds=each) for name, each in seconds.items()}


def _written(connection: Connection) -> list[tuple[str, int]]:
    """The versions of views that publish."""
    rows = connection.execute("SELECT view, version FROM truelog.output WHERE beginning IS NOT NULL").fetchall()
    return [(str(view), int(str(version))) for view, version in rows]


@dataclass
class _Output:
    settings: Settings
    connection: Connection
    compiled: CompiledView
    last: int = 0  # the number that the relay is to reach

    @property
    def feed(self) -> ViewFeed:
        return ViewFeed(self.settings, self.connection, self.compiled.name, self.compiled.view.version)

    def place(self) -> int:
        """The number of the last row that is published."""
        try:
            place = read_places(self.settings).get(self.feed.name)
        except TopicRefused:  # no relay has ever published anything
            return 0
        return 0 if place is None else place.number

    def pass_by(self) -> None:
        published = self.read()
        with self.connection.transaction():
            with unnoticed(self.connection, self.compiled):
                last = outbox.pass_by(self.connection, self.compiled, published)
            if last is None:
                raise ServiceDown("the last rows are not published, or the notifier has not read them, yet")
        self.last = last

    def require_passed(self) -> None:
        if self.read() < self.last:
            raise ServiceDown("some rows are not published, or the notifier has not read them, yet")

    def read(self) -> int:
        """The number of the last row that is published, and that the notifier has read if it follows this version.

        Raises:
            NotForgotten: the relay cannot go on.
        """
        trouble = str(read_value(self.connection, _TROUBLE, (self.feed.view, self.feed.version)) or "")
        if trouble.startswith(RESYNC):
            view = self.feed.view
            raise NotForgotten(f"{view} needs `truelog output resync {view}`. Then repeat the command. {trouble}")
        place, notified = self.place(), place_of_notifier(self.connection, self.feed.view, self.feed.version)
        return place if notified is None else min(place, notified)
