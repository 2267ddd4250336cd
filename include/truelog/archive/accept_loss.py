"""Accepts the loss of records that the log dropped before they were archived.

If a topic's log begins after the end of its archive, the archive application suspends the topic. Accepting the loss
records the lost ranges in the archive permanently, and every audit lists them.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from truelog.archive.commit import Append, commit
from truelog.archive.table import archived_positions, open_catalog
from truelog.control import event_registry, lease, topic_status
from truelog.control.application import ARCHIVE
from truelog.log import topics
from truelog.log.positions import Positions, Range
from truelog.log.topic_health import examine_topics
from truelog.storage.database import connect
from truelog.support.errors import Fenced
from truelog.support.settings import Settings


def lost_ranges(archived: Positions, earliest: Positions) -> list[Range]:
    """The ranges between the end of the archive and the beginning of the log in each partition."""
    return archived.ranges_to(earliest.only(archived.offsets))


def accept_lost_ranges(settings: Settings) -> list[Range]:
    """Record every range that the log dropped as lost, so that the archive can continue after it.

    A running archive application has suspended the topics that lost records. It continues with them by itself.
    """
    with _without_archive(settings) as names:
        wanted = archived_positions(settings, names)
        earliest = examine_topics(topics.client(settings), wanted.offsets, wanted.ids).earliest
        accepted = lost_ranges(wanted, earliest)
        with open_catalog(settings) as catalog:
            for topic in sorted({each.topic for each in accepted}):
                end = wanted.latest(earliest).offsets[topic]
                commit(catalog, Append(topic, wanted.ids[topic], wanted.offsets[topic], end, {}, (), lost=True))
    return accepted


@contextmanager
def _without_archive(settings: Settings) -> Iterator[Collection[str]]:
    """The registered topics under the archive's lease, or the topics that the running archive has suspended.

    Only such topics may be accepted as lost: the running application may be about to archive the others' records.
    """
    try:
        archive_lease = lease.take_lease(settings, ARCHIVE, code=lease.COMMAND)
    except Fenced:
        with connect(settings) as connection:
            yield {each.topic for each in topic_status.suspended_topics(connection) if each.application == ARCHIVE}
        return
    try:
        with connect(settings) as connection:
            yield event_registry.newest_versions(connection)
    finally:
        archive_lease.release()
