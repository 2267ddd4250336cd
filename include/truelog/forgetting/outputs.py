"""The outputs of views: after an erasure, the relay publishes what has changed, and the outbox forgets what was before.

The outbox forgets nothing that the notifier has not read, if it follows the view. It goes on behind the
row that is published once more.

A repair has put the changed and the vanished rows into the outbox, as any transaction does. The keys of vanished rows
may name the person too. As soon as the relay has published these rows and one more, nothing needs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from truelog.log import topics
from truelog.maintenance.notifier_place import place_of_notifier, unnoticed
from truelog.relay.place import read_places
from truelog.relay.view_feed import ViewFeed, topic_of
from truelog.schema.names import OUTPUT
from truelog.storage.database import Connection
from truelog.support.errors import NotForgotten, ServiceDown, TopicRefused
from truelog.support.settings import Settings
from truelog.support.wait import until
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox

_RELAY_SECONDS = 60.0


def forget_published(settings: Settings, connection: Connection, views: Sequence[CompiledView]) -> None:
    """Wait until the outputs of these views are published, and delete what the outbox has of them.

    Raises:
        NotForgotten: the relay does not publish them, or the notifier does not read them, within a minute.
    """
    published = [_Output(settings, connection, each) for each in views if each.view.publish]
    outputs = [each for each in published if each.feed.beginning() is not None]
    try:
        for step in (_Output.pass_by, _Output.require_passed):
            for each in outputs:
                until(partial(step, each), _RELAY_SECONDS, each.feed.name)
    except ServiceDown as down:
        raise NotForgotten(f"{down}. Start the services `relay` and `notifier`, then repeat the command.") from down
    for each in outputs:
        each.feed.trim(each.last, at_once=True)  # the notifier may not have read what came after it


def unwritten(settings: Settings, connection: Connection) -> list[str]:
    """The output topics that no view writes now, so that nothing removes their rows."""
    rows = connection.execute("SELECT view, version FROM truelog.output WHERE beginning IS NOT NULL").fetchall()
    existing = topics.existing_topics(topics.client(settings))
    return sorted(each for each in existing - {topic_of(*row) for row in rows} if each.startswith(OUTPUT))


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
        """The number of the last row that is published, and that the notifier has read if it follows this version."""
        place, notified = self.place(), place_of_notifier(self.connection, self.feed.view, self.feed.version)
        return place if notified is None else min(place, notified)
