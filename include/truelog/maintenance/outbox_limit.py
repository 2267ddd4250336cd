"""The limit of changed rows that wait for the relay, so that an outage of the relay or of Kafka never fills the disk.

Beyond the limit, the earliest transactions leave the outbox. The relay cannot go on there: the output is marked
`resync`, and begins again with the whole table by `truelog output resync`. Subscribers of changes and the notifier are
ahead of the relay, and read on.

While the relay works, nothing leaves: it publishes a new beginning too, which may have more rows than the limit.
"""

import logging

import psycopg

from truelog.lag import output_lag
from truelog.lag.output_lag import OutputLag
from truelog.relay.view_feed import ViewFeed
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

INTERVAL_SECONDS = 15.0

_PATIENCE = "SET statement_timeout = '5min'"  # the first time, many rows may leave
# A relay that runs says by itself that it cannot go on, as soon as Kafka answers.
_MARK = "UPDATE truelog.output SET trouble = %s WHERE (view, version) = (%s, %s) AND trouble = ''"
_REASON = f"{output_lag.RESYNC} over {{:,}} rows waited for the relay, and the earliest are gone"

log = logging.getLogger(__name__)


def keep(settings: Settings) -> None:
    """Keep the limit of each output. If PostgreSQL is down, the next attempt follows soon."""
    try:
        with connect(settings, autocommit=True) as connection:
            connection.execute(_PATIENCE)
            for each in output_lag.outputs(connection):
                if each.rows > settings.outbox_rows and (each.is_relay_down or each.trouble):
                    _drop_earliest(settings, connection, each)
    except psycopg.Error as error:
        log.warning("The limit of waiting rows was not kept: %s", error)


def _drop_earliest(settings: Settings, connection: Connection, lag: OutputLag) -> None:
    """Delete the earliest transactions beyond `outbox_rows` rows."""
    reason = _REASON.format(settings.outbox_rows)
    if connection.execute(_MARK, (reason, lag.view, lag.version)).rowcount:
        log.warning("%s v%s: %s", lag.view, lag.version, reason)
    feed = ViewFeed(settings, connection, lag.view, lag.version)
    feed.trim(lag.number - settings.outbox_rows + 1, at_once=True)
