"""Begins the output of a view again with its whole table, because its topic and the database have different histories.

A database that was restored from a backup has smaller numbers than the topic. The new beginning has greater numbers
than both, and the relay first removes the keys that the table lacks. Readers of the topic arrive at the table again.
"""

from collections.abc import Mapping

from truelog.batch.batch_context import open_view
from truelog.kernel import merge
from truelog.relay.place import Place, read_places
from truelog.relay.view_feed import topic_of
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.errors import BadInput, TopicRefused
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.output import outbox

_FURTHER = "UPDATE truelog.output SET number = greatest(number, %s) WHERE (view, version) = (%s, %s)"


def resync(settings: Settings, view: str, doer: str) -> int:
    """Begin the output again, and return the version of the view.

    Raises:
        BadInput: the view does not publish.
        CodeChanged, NotMade: the view's table is not that of its file.
    """
    places = _places(settings)  # before Spark starts: Kafka may be down
    with open_view(settings, "truelog output", view) as (_, compiled), connect(settings, autocommit=True) as connection:
        if not compiled.view.publish:
            raise BadInput(f"{view} does not publish. Declare `publish=True` in its file.")
        deploy.require_same_code(connection, compiled)
        version = compiled.view.version
        place = places.get(topic_of(view, version))
        reached = place.number if place else 0
        with connection.transaction():
            merge.lock(connection, compiled)
            outbox.settle(connection, compiled)
            connection.execute(_FURTHER, (reached, view, version))
            outbox.begin(connection, compiled)
        about = f"version {version}, which was published to row {reached}"
        audit_trail.record_operation(connection, OperationKind.RESYNC, view, doer, about)
        return version


def _places(settings: Settings) -> Mapping[str, Place]:
    """The places of all relays. None if no relay has created their topic yet."""
    try:
        return read_places(settings)
    except TopicRefused:
        return {}
