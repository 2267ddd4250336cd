"""The beginning of a fold, as the reader begins it when it is not stopped."""

from collections.abc import Mapping
from threading import Event

from truelog.commands.folding.fold_positions import Reading, begin_fold, delete_withdrawn
from truelog.storage.database import Connection


def make_fold(connection: Connection, event: str, code: str, topic_id: str, first: Mapping[int, int]) -> Reading:
    """Where the reader continues a fold, when states that do not count are deleted."""
    while (reading := begin_fold(connection, event, code, topic_id, first)) is None:
        delete_withdrawn(connection, event, Event())
    return reading
