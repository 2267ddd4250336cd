"""Accepts the loss of records that the log dropped before they were archived.

If the log begins after the end of the archive, the archive application refuses to start. Accepting the loss records the
lost ranges in the archive permanently, and every audit lists them.
"""

from truelog.archive.archive_commit import Append, commit
from truelog.archive.archive_table import archived_positions, open_catalog
from truelog.control import lease
from truelog.control.application import ARCHIVE
from truelog.log import topics
from truelog.log.positions import Positions, Range
from truelog.schema.event import load_events
from truelog.support.settings import Settings


def lost_ranges(archived: Positions, earliest: Positions) -> list[Range]:
    """The ranges between the end of the archive and the beginning of the log in each partition."""
    return archived.ranges_to(earliest.only(archived.offsets))


def accept_lost_ranges(settings: Settings) -> list[Range]:
    """Record every range that the log dropped as lost, so that the archive can continue after it.

    Raises:
        Fenced: the archive application is running, so nothing is lost yet.
    """
    archive_lease, types = lease.take_lease(settings, ARCHIVE), load_events()
    try:
        archived = archived_positions(settings, types)
        earliest = topics.earliest_offsets(settings, archived.offsets)
        accepted = lost_ranges(archived, earliest)
        with open_catalog(settings) as catalog:
            for topic in sorted({each.topic for each in accepted}):
                begin = archived.offsets[topic]
                end = archived.latest(earliest).offsets[topic]
                commit(catalog, Append(topic, archived.ids[topic], begin, end, {}, (), lost=True))
    finally:
        archive_lease.release()
    return accepted
