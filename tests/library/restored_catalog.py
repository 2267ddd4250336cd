"""A catalog that was restored from a backup: the bucket contains newer versions of its tables."""

from collections.abc import Iterator
from contextlib import contextmanager

from truelog.storage.database import connect
from truelog.support.settings import Settings


@contextmanager
def restored(settings: Settings) -> Iterator[None]:
    """Restore the catalog's tables to their state before the block."""
    with connect(settings) as connection:
        found = connection.execute("SELECT * FROM iceberg.iceberg_tables").fetchall()
        connection.commit()
        yield
        connection.execute("DELETE FROM iceberg.iceberg_tables")
        places = ", ".join(["%s"] * len(found[0])) if found else ""
        for row in found:
            connection.execute(f"INSERT INTO iceberg.iceberg_tables VALUES ({places})".encode(), row)
