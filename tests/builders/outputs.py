"""Outputs of views: their outbox, and how far the relay is."""

import uuid
from datetime import timedelta

from tests.builders.rows import before_now, insert
from tests.deadline import until
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView


def deploy_and_settle(connection: Connection, compiled: CompiledView) -> None:
    """Deploy a view, and wait until its output has begun or ended: vacuum may hold a lock of the table meanwhile."""

    def require_settled() -> None:
        if not deploy.deploy_table(connection, compiled):
            raise ServiceDown(f"a lock of {compiled.name} is held")

    until(require_settled, 30, "the lock of the table")


def an_output(connection: Connection, view: str, *, sent: int = 0, trouble: str = "", ago: timedelta) -> None:
    """An output of a view with one row, which a transaction of some time ago put into the outbox."""
    begun = {"beginning": uuid.uuid4(), "first": 1}
    insert(connection, "output", view=view, version=1, number=1, sent=sent, trouble=trouble, **begun)
    insert(connection, "output_step", view=view, version=1, last=1, positions="{}", made_at=before_now(ago))
    insert(connection, "outbox", view=view, version=1, number=1, step=1, key="[]")


def the_relay_looked(connection: Connection, ago: timedelta) -> None:
    """The relay last looked some time ago."""
    forget_relay(connection)
    insert(connection, "relay", looked_at=before_now(ago))


def forget_relay(connection: Connection) -> None:
    connection.execute("DELETE FROM truelog.relay")


def forget_outputs(connection: Connection) -> None:
    connection.execute("TRUNCATE truelog.output, truelog.output_step, truelog.outbox")


def forget_rows(connection: Connection, view: str) -> None:
    """Delete the published rows of an output, as the relay does after an hour."""
    connection.execute("DELETE FROM truelog.output_step WHERE view = %s", (view,))
    connection.execute("DELETE FROM truelog.outbox WHERE view = %s", (view,))


def older(connection: Connection, ago: timedelta) -> None:
    """Let the transactions of all outputs be as old as this."""
    connection.execute("UPDATE truelog.output_step SET made_at = now() - %s", (ago,))


def store_trace(connection: Connection, view: str, number: int, traceparent: str) -> None:
    """The transaction that ends with this row is sampled, and the relay has published it."""
    update = "UPDATE truelog.output_step SET traceparent = %s WHERE (view, last) = (%s, %s)"
    assert connection.execute(update, (traceparent, view, number)).rowcount == 1


def another_history(connection: Connection) -> None:
    """The rows of all outboxes belong to other transactions than the published rows."""
    connection.execute("UPDATE truelog.output_step SET id = gen_random_uuid()")
