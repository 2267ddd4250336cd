"""Another database of the tests' PostgreSQL server, as another Truelog on this server has."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import copy_database, drop_database
from truelog.support.settings import Settings


@contextmanager
def neighbour(settings: Settings) -> Iterator[Settings]:
    """An empty database of the same server and with the same roles; dropped afterwards."""
    name = f"{settings.database_name}_neighbour"
    copy_database(settings, "template1", name)
    try:
        yield settings.model_copy(update={"database_name": name})
    finally:
        drop_database(settings, name)
