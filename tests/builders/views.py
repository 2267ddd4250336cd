"""Deployed versions of views, their positions, and what is stored about their lag."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql
from psycopg.types.json import Jsonb

from tests.builders.rows import NO_TIME, before_now, insert
from truelog.log.positions import Positions
from truelog.storage.database import Connection


def a_view(
    connection: Connection,
    view: str,
    version: int = 1,
    *,
    ago: timedelta = NO_TIME,
    reads: Iterable[str] | None = None,
    batch_only: bool = False,
    needs_order: bool | None = False,
) -> None:
    """A version of a view whose table was created some time ago. There is no table."""
    topics = None if reads is None else list(reads)
    made = before_now(ago)
    insert(
        connection,
        "view",
        view=view,
        version=version,
        fingerprint="",
        spark="",
        made_at=made,
        reads=topics,
        batch_only=batch_only,
        needs_order=needs_order,
    )


def is_gone(connection: Connection, view: str, *, ago: timedelta = NO_TIME) -> None:
    """The view's file was deleted some time ago, and readers no longer see the view."""
    removed = sql.SQL("UPDATE truelog.view SET removed_at = {}, shown = NULL WHERE view = %s").format(before_now(ago))
    connection.execute(removed, (view,))


def merged_to(
    connection: Connection, view: str, reached: Positions, version: int = 1, *, leader_epoch: int | None = None
) -> None:
    """The view has merged the log up to these positions, as later merges may do again."""
    query = (
        "INSERT INTO truelog.position (view, version, topic, partition, topic_id, next_offset, leader_epoch) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (view, version, topic, partition) "
        "DO UPDATE SET next_offset = excluded.next_offset, leader_epoch = excluded.leader_epoch"
    )
    for topic, partition in reached.partitions():
        place = (topic, partition, reached.ids[topic], reached.at(topic, partition))
        connection.execute(query, (view, version, *place, leader_epoch))


def a_lag_sample(
    connection: Connection,
    reader: str,
    partitions: Sequence[Mapping[str, Any]] = (),
    *,
    version: int = 1,
    at: sql.Composable | None = None,
) -> None:
    """A poll of a reader. It is not judged."""
    polled = Jsonb(list(partitions))
    insert(connection, "lag_sample", reader=reader, version=version, at=at or before_now(NO_TIME), partitions=polled)


def forget_samples(connection: Connection) -> None:
    connection.execute("TRUNCATE truelog.lag_sample")


def an_exclusion(
    connection: Connection,
    view: str,
    offset: int,
    *,
    version: int = 1,
    topic: str = "t",
    topic_id: str = "an-id",
    error: str = "",
    ago: timedelta = NO_TIME,
) -> None:
    """A record of partition 0 on which the view's transform failed some time ago."""
    judged = {"topic": topic, "topic_id": topic_id, "reading": 0, "partition": 0, "offset": offset}
    insert(connection, "exclusion", view=view, version=version, **judged, error=error, noticed_at=before_now(ago))


def an_oversized_group(connection: Connection, view: str, group: Sequence[Any], *, version: int = 1) -> None:
    """A group that has more inputs than its view allows."""
    insert(connection, "oversized_group", view=view, version=version, group=Jsonb(list(group)))


def a_failed_group(connection: Connection, view: str, group: Sequence[Any], error: str, *, version: int = 1) -> None:
    """A group on which the fold of its view has failed."""
    insert(connection, "failed_group", view=view, version=version, group=Jsonb(list(group)), error=error)


def a_tally(
    connection: Connection,
    view: str,
    version: int = 1,
    *,
    merges: int,
    rows: int,
    preparing: float,
    merging: float,
    records: int = 0,
) -> None:
    """So many merges of so many rows from so many records, and the seconds that they took."""
    counts = {"merges": merges, "rows": rows, "preparing": preparing, "merging": merging, "records": records}
    insert(connection, "merge_tally", view=view, version=version, **counts)


def a_batch_answer(connection: Connection, view: str, reached: Positions, *, age: timedelta = NO_TIME) -> None:
    """The batch layer's answer for version 1, whose rows were complete and built some time ago."""
    built = before_now(age)
    insert(connection, "batch_answer", view=view, version=1, as_of=built, made_at=built)
    for topic, partition in reached.partitions():
        place = {"topic": topic, "partition": partition, "topic_id": reached.ids[topic]}
        insert(connection, "batch_position", view=view, version=1, **place, next_offset=reached.at(topic, partition))


def a_batch_refusal(connection: Connection, view: str, reason: str, *, files: str = "") -> None:
    """The code files with this hash cannot build the view."""
    insert(connection, "batch_refusal", view=view, files=files, reason=reason)


def a_view_reader(connection: Connection, view: str, reader: str, *, ago: timedelta) -> None:
    """The holder of an API key, who got one answer some time ago."""
    insert(connection, "view_reader", view=view, reader=reader, day="2026-01-01", answers=1, last_at=before_now(ago))


def a_share(connection: Connection, view: str, version: int, percent: int) -> None:
    """A share of the API's readers gets this version of the view."""
    insert(connection, "version_share", view=view, version=version, percent=percent)


_LEFT_OUT = ("oversized_group", "failed_group")


def forget(connection: Connection, *views: str) -> None:
    """Delete the views, their positions, shares, bases and states, what they leave out, and batch answers."""
    for table in (*_LEFT_OUT, "standing", "batch_refusal", "batch_answer", "base", "position", "version_share", "view"):
        query = sql.SQL("DELETE FROM {} WHERE view = ANY(%s)").format(sql.Identifier("truelog", table))
        connection.execute(query, (list(views),))


def has_read(
    connection: Connection, view: str, *, records: int, hour: datetime, hour_records: int, earlier_records: int
) -> None:
    """The view has read so many records, the last ones in this hour, as later merges may change it."""
    query = (
        "INSERT INTO truelog.merge_tally "
        "(view, version, merges, rows, preparing, merging, records, hour, hour_records, earlier_records) "
        "VALUES (%s, 1, 1, 0, 0, 0, %s, %s, %s, %s) ON CONFLICT (view, version) DO UPDATE SET "
        "records = excluded.records, hour = excluded.hour, hour_records = excluded.hour_records, "
        "earlier_records = excluded.earlier_records"
    )
    connection.execute(query, (view, records, hour, hour_records, earlier_records))
