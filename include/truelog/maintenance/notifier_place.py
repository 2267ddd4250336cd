"""How far the notifier has read the outbox of a view, and what it must not take for changes.

The notifier is far above this package, and only its place in the database is known here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from truelog.kernel import merge
from truelog.storage.database import Connection, read_value
from truelog.support.errors import ServiceDown
from truelog.tables.compiled_view import CompiledView

_GO_BEHIND = """
    UPDATE truelog.notification_place p SET beginning = o.beginning, number = o.number FROM truelog.output o
    WHERE (o.view, o.version) = (p.view, p.version) AND (p.view, p.version) = (%s, %s)
"""


@contextmanager
def unnoticed(connection: Connection, compiled: CompiledView) -> Iterator[None]:
    """The notifier goes on behind what the block adds to the outbox, if it follows this version of the view.

    Use it in a transaction. No merge of the view runs until that ends.

    Raises:
        ServiceDown: the notifier has not read everything before.
    """
    merge.lock(connection, compiled)
    version = compiled.name, compiled.view.version
    found = connection.execute(
        "SELECT p.number < o.number FROM truelog.notification_place p "
        "JOIN truelog.output o USING (view, version, beginning) WHERE (view, version) = (%s, %s) FOR UPDATE OF p",
        version,
    ).fetchall()
    if found == [(True,)]:
        raise ServiceDown("there are changed rows, and the notifier has not read them yet")
    yield
    if found:
        connection.execute(_GO_BEHIND, version)


def place_of_notifier(connection: Connection, view: str, version: int) -> int | None:
    """The number of the last change of a version that the notifier has read; None if it does not follow the version."""
    query = "SELECT number FROM truelog.notification_place WHERE (view, version) = (%s, %s)"
    found: int | None = read_value(connection, query, (view, version))
    return found
