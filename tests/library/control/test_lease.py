"""The lease under load: what blocks a new holder, and what does not."""

from collections.abc import Iterator

import psycopg
import pytest

from truelog.control import lease
from truelog.control.lease import Lease
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

NAME = "leased"


@pytest.fixture
def held(migrated: Settings) -> Iterator[Lease]:
    taken = lease.take_lease(migrated, NAME)
    yield taken
    taken.release()


@pytest.fixture
def merging(migrated: Settings, held: Lease) -> Iterator[Connection]:
    """A session in the middle of a merge, which has checked the lease."""
    with connect(migrated) as opened:
        lease.require_lease(opened, held.holder)
        yield opened
        opened.rollback()


def test_a_merge_in_progress_does_not_delay_the_end_of_a_batch(connection: Connection, merging: Connection) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '2s'")
        lease.record_batch(connection, lease.Holder(NAME, 1))
        lease.record_code(connection, lease.Holder(NAME, 1), "code")


def test_a_merge_in_progress_blocks_a_new_holder_even_after_the_end_of_a_batch(
    connection: Connection, merging: Connection, held: Lease
) -> None:
    lease.record_batch(connection, held.holder)
    succeed = "UPDATE truelog.lease SET epoch = epoch + 1 WHERE application = %s"
    connection.execute("SET lock_timeout = '300ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        connection.execute(succeed, (NAME,))
    merging.rollback()
    connection.execute(succeed, (NAME,))
