"""The limit of changed rows that wait for the relay, so that the disk never fills while the relay or Kafka is down.

The relay also leaves the rows of views that are held back after a restore.

Beyond the limit, the earliest transactions leave the outbox. The relay cannot go on there: the output is marked
`resync`, and begins again with the whole table by `truelog output resync`. Subscribers of changes and the notifier are
ahead of the relay, and read on. If the view is held back, the notifier goes on behind the present rows too. A
transaction that crosses the limit stays whole, such as the beginning of an output.

While the relay publishes a view, nothing leaves: it publishes a new beginning too, which may have more rows than the
limit.
"""

import logging

import psycopg

from truelog.erasure import hold
from truelog.lag import output_lag
from truelog.lag.output_lag import OutputLag
from truelog.relay.feed import RESYNC
from truelog.relay.view_feed import ViewFeed
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

INTERVAL_SECONDS = 15.0

_PATIENCE = "SET statement_timeout = '5min'"  # one transaction of a view may have many rows
_STEPS = 1_000  # transactions of a view that leave at once
# A relay that runs says by itself that it cannot go on, as soon as Kafka answers.
_MARK = "UPDATE truelog.output SET trouble = %s WHERE (view, version) = (%s, %s) AND trouble = ''"
_REASON = f"{RESYNC} over {{:,}} rows waited for the relay, and the earliest are gone"

log = logging.getLogger(__name__)


def keep(settings: Settings) -> None:
    """Keep the limit of each output. If PostgreSQL is down, the next attempt follows soon."""
    try:
        with connect(settings, autocommit=True) as connection:
            connection.execute(_PATIENCE)
            held = hold.held_versions(connection)
            for each in output_lag.outputs(connection):
                waits = each.is_relay_down or each.trouble or (each.view, each.version) in held
                if each.rows > settings.outbox_rows and waits:
                    _keep_one(settings, connection, each)
    except psycopg.Error as error:
        log.warning("The limit of waiting rows was not kept: %s", error)


def _keep_one(settings: Settings, connection: Connection, lag: OutputLag) -> None:
    """Keep the limit of one output. An error does not hold back the other outputs."""
    try:
        while _drop_earliest(settings, connection, lag):
            pass
    except psycopg.Error as error:
        log.warning("The limit of waiting rows of %s v%s was not kept: %s", lag.view, lag.version, error)


def _drop_earliest(settings: Settings, connection: Connection, lag: OutputLag) -> int:
    """Delete some of the earliest transactions beyond `outbox_rows` rows, and return how many rows left."""
    feed, reason = ViewFeed(settings, connection, lag.view, lag.version), _REASON.format(settings.outbox_rows)
    with connection.transaction():
        dropped = feed.trim(lag.number - settings.outbox_rows + 1, at_once=True, steps=_STEPS)
        if dropped and connection.execute(_MARK, (reason, lag.view, lag.version)).rowcount:
            log.warning("%s v%s: %s", lag.view, lag.version, reason)
    return dropped
