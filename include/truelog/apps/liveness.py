"""Diagnosis: what is wrong with an application, where its row alone does not tell.

Silence says little by itself: where nothing comes, or Kafka is away, there is nothing to read, and another process
would find nothing either. One that is silent for longer than its patience has hung where it has had something to do
for as long, ticks or no ticks:

1. a record came after its last batch, a tick or an event: since then
2. it has made no batch yet, and the first one needs no record: since it started
3. it has not read what came before: since it last got on
"""

from collections.abc import Iterable
from datetime import datetime

from truelog.apps import reader_positions
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, Diagnosis, Status
from truelog.log import ticks, topics
from truelog.log.positions import Positions
from truelog.schema import event
from truelog.storage import db_snapshot
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings


def diagnose(settings: Settings, status: Status, now: datetime) -> Diagnosis | None:
    """The verdict on an application; of one that is silent, by what the log has for it."""
    allowed = application.silence_limits(settings, status.application)
    found = application.diagnose_status(status, allowed, now)
    since = status.batch_at or status.taken_at
    if found is not Diagnosis.HUNG or since is None:
        return found
    try:
        woken = _woken(settings, status, since)
    except TruelogError:  # what cannot be asked is away, and another process could not ask it either
        woken = None
    return application.diagnose_silence(status, allowed, now, woken)


def _woken(settings: Settings, status: Status, since: datetime) -> datetime | None:
    """Since when it has had something to do; None where it has nothing."""
    stood, moved_at = _stood(settings, status.application)
    reads = {topic for at in stood for topic in at.offsets} - {ticks.TOPIC}
    broker = topics.client(settings)
    came = topics.first_since(broker, {ticks.TOPIC, *reads}, since)  # 1
    if came is not None or status.batch_at is None:
        return came or since  # 2
    ends = topics.committed_ends(broker, reads)
    unread = any(not at.covers(ends.only(at.offsets)) for at in stood)
    return max(since, moved_at or since) if unread else None  # 3


def _stood(settings: Settings, name: str) -> tuple[Iterable[Positions], datetime | None]:
    """Where the archive stands, or each view that the application takes along, and when one of them last moved.

    A view that stands still, and says why, would not get on in another process either.
    """
    if name == ARCHIVE:
        from truelog.archive.archive_table import archived_positions  # its libraries take a second to import

        return [archived_positions(settings, event.event_names())], None
    with db_snapshot.read_snapshot(settings) as connection:
        told = view_status.view_statuses(connection)
        mine = [each.view for each in told if each.application == name and each.state != view_status.STALLED]
        return [
            each.positions for each in reader_positions.view_positions(connection, mine).values()
        ], reader_positions.last_merge_at(connection, mine)
