"""The request for an erasure: what it will cover, and how many records that are, before anything is written."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from truelog.archive import reader as archive_reader
from truelog.archive.erasing.erase import ArchiveEraser, Offsets
from truelog.archive.table import open_catalog
from truelog.control import event_registry, log_cuts
from truelog.erasure.erasure import Erasure, Erasures, subject_fields
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Named, Subject, is_clear, secret_check
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind, BadInput
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Preview:
    """How many archived records of each topic an erasure covers, and the views that read these topics.

    unclear: the values that are numbers, which texts may have with another meaning, or that are not one word.
    """

    records: dict[str, int]
    views: list[str]
    unclear: list[str]


def wanted(settings: Settings, named: Collection[Named]) -> Erasure:
    """The erasure of these values of fields, up to the present end of the log.

    Raises:
        BadInput: no event type declares one of the fields as its subject, or the log of a topic was cut.
        NotSetUp: the home has no secret.
    """
    secret = secret_of(settings)
    fields = subject_fields(event_registry.confirmed_types(settings), {field for field, _ in named})
    # The committed ends would leave out acknowledged events that follow a record of an open transaction.
    ends = topics.end_offsets(settings, fields)
    _require_no_open_cut(settings, ends)
    subjects = frozenset(Subject.of(secret, *each) for each in named)
    return Erasure(uuid.uuid4(), subjects, fields, ends, secret_check(secret))


def _require_no_open_cut(settings: Settings, ends: Positions) -> None:
    """Raise BadInput if a log was cut. The archive contains records behind its end, and an erasure would miss them."""
    with connect(settings) as connection:
        cuts = log_cuts.open_cuts(connection)
    if names := sorted({each.topic for each in cuts if ends.ids.get(each.topic) == each.topic_id}):
        raise BadInput(
            f"the log of {', '.join(names)} was cut, so the archive may have records of the person behind its end. Run "
            "`truelog archive accept-cut`, then repeat the command."
        )


def wait_for_archive(settings: Settings, erasure: Erasure) -> None:
    """Wait until the archive contains all records below the ends. It reads a record when its transaction has ended.

    Raises:
        ArchiveBehind: some records are still not archived after `archive_wait_seconds`.
    """
    try:
        archive_reader.wait_for(settings, erasure.ends, seconds=settings.archive_wait_seconds)
    except ArchiveBehind as behind:
        hidden = topics.committed_ends(topics.client(settings), erasure.ends.offsets).ranges_to(erasure.ends)
        if not hidden:
            raise
        where = ", ".join(f"at {each.start} of {each.topic} {each.partition}" for each in hidden)
        raise ArchiveBehind(
            f"a transaction {where} has not ended, and the archive waits for it. Repeat the command in some minutes."
        ) from behind


def preview(settings: Settings, named: Collection[Named]) -> Preview:
    """What an erasure would cover. Records that are not archived yet are not counted."""
    erasure, types = wanted(settings, named), event_registry.confirmed_types(settings)
    found = Counter[str]()
    for eraser in erasers(settings, types, erasure):
        for each in eraser.count():
            found[each.topic] += each.records
    with connect(settings) as connection:
        views = sorted({view for view, _ in made_versions(connection, erasure)})
    return Preview(dict(sorted(found.items())), views, sorted({value for _, value in named if not is_clear(value)}))


def erasers(
    settings: Settings, types: EventTypes, erasure: Erasure, covered: dict[str, Offsets] | None = None
) -> Iterator[ArchiveEraser]:
    """What erases the records of each of the erasure's topics from the archive, one after the other.

    `covered` has what earlier erasers of this erasure have found, by file, and gets what these find.
    """
    known = {} if covered is None else covered
    with open_catalog(settings) as catalog:
        for topic in sorted(erasure.fields):
            yield ArchiveEraser(catalog, types[topic], Erasures(secret_of(settings), (erasure,)), known)


def made_versions(connection: Connection, erasure: Erasure) -> list[tuple[str, int]]:
    """The versions of views that have a table and have read a topic of the erasure."""
    rows = connection.execute(
        "SELECT view, version FROM truelog.view v WHERE reads && %(topics)s OR EXISTS ("
        "SELECT FROM truelog.position p WHERE (p.view, p.version) = (v.view, v.version) AND p.topic = ANY(%(topics)s)"
        ") ORDER BY 1, 2",
        {"topics": sorted(erasure.fields)},
    ).fetchall()
    return [(str(view), int(str(version))) for view, version in rows]
