"""Diagnosis of an application from its status and, if it is silent, from the log.

Silence alone is not a fault: if no records arrive or Kafka is down, there is nothing to read, and a new process would
not help. An application has hung if it has been silent, and has had work, for longer than its limit. Its work begins at

1. the first record, a tick or an event, after its last batch;
2. its start, if it has processed no batch yet, because the first batch needs no record;
   and not before it has taken its lease again after an outage of the database, in which it could not work;
3. its last progress, if it has not read all earlier records.
"""

from collections.abc import Iterable
from datetime import datetime

from truelog.apps import reader_positions
from truelog.control import application, topic_status, view_status
from truelog.control.application import ARCHIVE, ApplicationStatus, Diagnosis
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.names import TICKS
from truelog.storage import db_snapshot
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings


def diagnose(settings: Settings, status: ApplicationStatus, now: datetime) -> Diagnosis | None:
    """What is wrong with an application, or None; if the application is silent, the log is checked for work."""
    allowed = application.silence_limits(settings, status.application)
    found = application.diagnose_status(status, allowed, now)
    since = status.quiet_since
    if found is not Diagnosis.HUNG or since is None:
        return found
    try:
        work_since = _work_since(settings, status, since)
    except TruelogError:  # a service is down, and a new process could not reach it either
        work_since = None
    return application.diagnose_inactivity(status, allowed, now, work_since)


def _work_since(settings: Settings, status: ApplicationStatus, since: datetime) -> datetime | None:
    """The time at which work began waiting for the application; None if there is no work."""
    positions, progress_at = _reader_positions(settings, status.application)
    bad = _suspended(settings, status.application)
    reads = {topic for at in positions for topic in at.offsets} - {TICKS} - bad
    if not (wakes := {TICKS, *reads} - bad):
        return None
    broker = topics.client(settings)
    arrived = topics.first_since(broker, wakes, since)  # 1
    if arrived is not None or status.batch_at is None:
        return arrived or since  # 2
    ends = topics.committed_ends(broker, reads)
    unread = any(not at.covers(ends.only(at.offsets)) for at in positions)
    return max(since, progress_at or since) if unread else None  # 3


def _suspended(settings: Settings, name: str) -> set[str]:
    """The topics that the application has suspended. It does not wait for their records."""
    with db_snapshot.read_snapshot(settings) as connection:
        return {each.topic for each in topic_status.suspended_topics(connection) if each.application == name}


def _reader_positions(settings: Settings, name: str) -> tuple[Iterable[Positions], datetime | None]:
    """The positions of the archive, or of the application's views, and the time of the last merge.

    Stalled views are left out, because a new process would not advance them either.
    """
    if name == ARCHIVE:
        from truelog.archive.table import archive_position  # its libraries take a second to import

        return [archive_position(settings)], None
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = view_status.view_statuses(connection)
        views = [each.view for each in statuses if each.application == name and each.state != view_status.STALLED]
        readers = reader_positions.view_positions(connection, views)
        return [each.positions for each in readers.values()], reader_positions.last_merge_at(connection, views)
