"""The epochs of captured tables. A new snapshot begins a new epoch, which closes every row that it does not contain.

The database has the epoch of each table. A restored database may have an earlier one than the records in the log.
"""

from collections.abc import Iterable, Mapping

from truelog.log import range_reader, topics
from truelog.log.admin_client import missing_topics
from truelog.log.positions import Range
from truelog.schema.change import epoch_of
from truelog.storage.database import Connection, read_value
from truelog.support.settings import KafkaUser, Settings

_PORTION = 1_000  # offsets
_SECONDS = 10.0


def begin(connection: Connection, event_type: str, at_least: int = 1) -> int:
    """The epoch of a table. If it was less, `at_least` begins."""
    connection.execute(
        "INSERT INTO truelog.capture (event_type, epoch) VALUES (%s, %s) ON CONFLICT (event_type) DO UPDATE "
        "SET epoch = excluded.epoch, since = now() WHERE capture.epoch < excluded.epoch",
        (event_type, at_least),
    )
    return int(read_value(connection, "SELECT epoch FROM truelog.capture WHERE event_type = %s", (event_type,)))


def begin_next(connection: Connection, event_type: str, newest: int) -> int:
    """Begin an epoch behind that of a table and behind `newest`, and return its number."""
    begin(connection, event_type, newest)
    advance = "UPDATE truelog.capture SET epoch = epoch + 1, since = now() WHERE event_type = %s RETURNING epoch"
    return int(read_value(connection, advance, (event_type,)))


def newest(settings: Settings, event_type: str) -> int:
    """The epoch at the end of a table's topic, which has the epochs in order; 0 if the topic has no change.

    Compaction may have left portions of the topic without a change.
    """
    broker = topics.client(settings)
    if missing_topics(broker, [event_type], _SECONDS):
        return 0
    first = topics.begins(broker, [event_type]).at(event_type, 0)
    end = topics.ends(broker, [event_type]).at(event_type, 0)
    while end > first:
        begin = max(first, end - _PORTION)
        portion = range_reader.read(settings.kafka(KafkaUser.READER), [Range(event_type, 0, begin, end)])
        found = max((epoch_of(value) for records in portion for value in records["value"].to_pylist()), default=0)
        if found:
            return found
        end = begin
    return 0


def record_refused(connection: Connection, reasons: Mapping[str, str | None]) -> None:
    """Record why each of these tables is not captured; None if it is."""
    for event_type, reason in reasons.items():
        begin(connection, event_type)
        connection.execute("UPDATE truelog.capture SET refused = %s WHERE event_type = %s", (reason, event_type))


def refused(connection: Connection, event_types: Iterable[str]) -> dict[str, str]:
    """The reason for each of these tables that is not captured."""
    query = "SELECT event_type, refused FROM truelog.capture WHERE refused IS NOT NULL AND event_type = ANY(%s)"
    return dict(connection.execute(query, (list(event_types),)).fetchall())
