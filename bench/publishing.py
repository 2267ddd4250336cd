"""How fast the relay publishes an outbox that is full, from the first published row to the last.

The outbox has what a stream under load leaves: transactions of a thousand rows. There is no stream beside it.
"""

from psycopg import sql

import runtime
from bench.cpu import Meter, used
from bench.ground import services
from bench.row import OURS, Row
from tests.beat import every
from tests.library.relay.published import Published, deployed
from truelog.kernel import merge
from truelog.storage.database import Connection, connect, read_value
from truelog.support.settings import Settings
from truelog.tables.output import outbox

STEPS, ROWS = 300, 1_000  # transactions of the view, and the rows that each changes

_KEYS = 20_000
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 600.0
_CHANGE = """
    INSERT INTO {} (product, amount)
    SELECT 'product-' || (%(begin)s::bigint + n) %% %(keys)s::bigint, %(begin)s::bigint + n
    FROM generate_series(1, %(rows)s::bigint) AS n
    ON CONFLICT (product) DO UPDATE SET amount = excluded.amount
"""
_SENT = "SELECT sent FROM truelog.output WHERE view = %s"


def run(settings: Settings) -> Row:
    """Measure the relay. `events_per_second` are rows."""
    with connect(settings, autocommit=True) as connection:
        view = deployed(settings, connection)
        for step in range(STEPS):
            _change(connection, view, step * ROWS)
        runtime.up(settings, ["relay"], tethered=True)
        [relay] = [each.pid for each in runtime.status(settings) if each.name == "relay" and each.pid]
        meter, first = Meter({**services(settings), "relay": relay}), None
        for now in every(_LOOK_SECONDS, within=_PATIENCE_SECONDS, what="the relay"):
            sent = int(read_value(connection, _SENT, (view.compiled.name,)))
            if first is None and sent:
                first = now, sent, meter.read()
            if sent == STEPS * ROWS:
                break
        assert first is not None
    began, already, before = first
    spent, published = used(before, meter.read()), STEPS * ROWS - already
    return Row(
        "relay of an output",
        OURS,
        published / (now - began),
        "alone",
        f"{published:,} rows in transactions of {ROWS:,}, by one relay with one topic",
        more={"seconds": now - began},
        cpu_us_per_event=spent.per_event(published),
        other_cores=spent.other_cores,
    )


def _change(connection: Connection, view: Published, begin: int) -> None:
    """A transaction of the view, as a merge."""
    with connection.transaction():
        merge.lock(connection, view.compiled)
        change = sql.SQL(_CHANGE).format(view.state)
        connection.execute(change, {"begin": begin, "keys": _KEYS, "rows": ROWS})
        outbox.record_changes(connection, view.compiled)
