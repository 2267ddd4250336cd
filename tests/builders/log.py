"""What the archive and the streams have recorded about the log."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from psycopg.types.json import Jsonb

from tests.builders.rows import NO_TIME, before_now, insert, insert_missing
from truelog.log.positions import Positions
from truelog.storage.database import Connection


def a_log_day(
    connection: Connection, topic: str, day: float, *, topic_id: str, partition: int = 0, first_offset: int = 0
) -> None:
    """The first offset of a log day, which begins at the second `day`."""
    columns = {"topic": topic, "topic_id": topic_id, "partition": partition, "day": int(day)}
    insert(connection, "log_day", **columns, first_offset=first_offset)


def a_tick(connection: Connection, topic_id: str, offset: int, time: datetime, ends: Positions) -> None:
    """A tick, which may have been stored already."""
    insert_missing(connection, "tick", topic_id=topic_id, offset=offset, time=time, ends=ends.as_json())


def late_records(connection: Connection, topic: str, records: int) -> None:
    insert(connection, "straggler", topic=topic, records=records)


def an_audit(connection: Connection, faults: Sequence[str] = (), *, ago: timedelta = NO_TIME) -> None:
    """An audit of the archive that found these faults."""
    insert(connection, "audit", faults=list(faults), finished_at=before_now(ago))


def a_replay(connection: Connection, topic_id: str, offset: int, *, target: str, doer: str = "oncall") -> None:
    """A dead letter of partition 0 that is reserved to be sent again."""
    letter = {"topic_id": topic_id, "partition": 0, "offset": offset}
    insert(connection, "replay", **letter, target=target, begin="[{}, {}]", doer=doer)


def move_tick(connection: Connection, topic_id: str, offset: int, by: timedelta) -> None:
    """A stored tick has another time than the archive's tick from now on."""
    query = 'UPDATE truelog.tick SET time = time + %s WHERE (topic_id, "offset") = (%s, %s)'
    assert connection.execute(query, (by, topic_id, offset)).rowcount == 1


def forget_ticks(connection: Connection, topic_id: str, since: int = 0) -> None:
    """Delete the stored ticks from this offset on."""
    connection.execute('DELETE FROM truelog.tick WHERE topic_id = %s AND "offset" >= %s', (topic_id, since))


def age_wrong_clocks(connection: Connection, topic_id: str) -> None:
    """The wrong clocks of a topic were found a day ago."""
    query = "UPDATE truelog.wrong_clock SET found_at = now() - interval '1 day' WHERE topic_id = %s"
    connection.execute(query, (topic_id,))


def forget_exclusions(connection: Connection, view: str) -> None:
    connection.execute("DELETE FROM truelog.exclusion WHERE view = %s", (view,))


def move_cut(connection: Connection, event: str, version: int, first_offsets: dict[str, int]) -> None:
    """A version judges the records from other offsets on."""
    query = "UPDATE truelog.event_cut SET first_offsets = %s WHERE (event, version) = (%s, %s)"
    assert connection.execute(query, (Jsonb(first_offsets), event, version)).rowcount == 1
