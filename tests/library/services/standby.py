"""A database that refuses writes for a while, as a standby does after a failover to it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from psycopg import sql

from tests.deadline import until
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown


@contextmanager
def standby(connection: Connection) -> Iterator[None]:
    """Sessions that begin in this block can only read. The session of the caller can write."""
    database = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(database))
    try:
        yield
    finally:
        connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(database))


def wait_for_refusal(log: pytest.LogCaptureFixture) -> None:
    """Wait until a service has logged that the database refuses a write."""

    def refused() -> None:
        if "ReadOnlySqlTransaction" not in log.text:
            raise ServiceDown("no write was refused yet")

    until(refused, 30, "a refused write")


def wait_for_look(age: Callable[[Connection], float | None], connection: Connection) -> None:
    """Wait until a service has recorded that it looked for work in the last second."""

    def looked() -> None:
        if (seconds := age(connection)) is None or seconds > 1:
            raise ServiceDown("the service does not look")

    until(looked, 30, "a look")
