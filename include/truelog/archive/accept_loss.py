"""Loss: records that the log dropped before the archive had them. They are gone; what is left is to say so.

An archiver that finds itself behind the log's beginning refuses to start. Whoever accepts the loss has it written
into the archive for ever, where every audit lists it.
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
    """What lies between the archive's end and the log's beginning, partition by partition."""
    return archived.ranges_to(earliest.only(archived.offsets))


def accept_lost_ranges(settings: Settings) -> list[Range]:
    """Record every such range as lost, and let the archive go on behind it.

    Raises:
        Fenced: the archive runs, so nothing can be lost yet.
    """
    held, types = lease.take_lease(settings, ARCHIVE), load_events()
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
        held.release()
    return accepted
