"""The request for an erasure: what it will cover, and how many records that are, before anything is written."""

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from truelog.archive import reader as archive_reader
from truelog.archive.catalog_pointer import load_newest
from truelog.archive.erasing.erase import ArchiveEraser, Offsets
from truelog.archive.table import Progress, archived_positions, identifier, open_catalog, tables_of_topics
from truelog.control import event_registry, log_cuts
from truelog.erasure.erasure import Erasure, Erasures, subject_fields
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Named, Subject, is_clear, secret_check
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topic_health import gone_topics
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind, BadInput, NotForgotten, TopicRecreated
from truelog.support.settings import KafkaUser, Settings

_READ_BY_VIEWS = """
    SELECT topic FROM truelog.position WHERE topic_id = ANY(%(ids)s)
    UNION SELECT topic FROM truelog.batch_position WHERE topic_id = ANY(%(ids)s)
"""

log = logging.getLogger("truelog.forgetting")


@dataclass(frozen=True)
class Preview:
    """How many archived records of each topic an erasure covers, and the views that read these topics.

    unclear: the values that are numbers, which texts may have with another meaning, or that are not one word without
    punctuation at its ends.
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
    ends = _ends(settings, fields)
    _require_no_open_cut(settings, ends)
    subjects = frozenset(Subject.of(secret, *each) for each in named)
    left = {topic: names for topic, names in fields.items() if topic in ends.ids}
    return Erasure(uuid.uuid4(), subjects, left, ends, secret_check(secret))


def requests(settings: Settings, named: Collection[Named]) -> Iterator[Erasure]:
    """The erasure that is wanted, and one more for each table with records of the subjects in an earlier topic.

    A topic that was created again has another id, and an erasure has one id of each topic.

    Raises: the errors of `wanted`.
    """
    erasure, types = wanted(settings, named), event_registry.confirmed_types(settings)
    yield erasure
    fields = subject_fields(types, {field for field, _ in named})
    for ends in _ends_of_tables(settings, fields):
        [topic] = ends.ids
        earlier = replace(erasure, id=uuid.uuid4(), fields={topic: fields[topic]}, ends=ends)
        is_other = erasure.ends.ids.get(topic) != ends.ids[topic]
        if is_other and any(each.count() for each in erasers(settings, types, earlier)):
            yield earlier


def _ends_of_tables(settings: Settings, names: Collection[str]) -> list[Positions]:
    """The end of each table of the archive that has records of one of these topics."""
    tables = [(topic, table) for topic, found in tables_of_topics(settings).items() for table in found]
    with open_catalog(settings) as catalog:
        found = [(topic, Progress.of(load_newest(catalog, each).metadata)) for topic, each in tables if topic in names]
    return [Positions({topic: each.positions}, {topic: each.topic_id}) for topic, each in found]


def _ends(settings: Settings, names: Collection[str]) -> Positions:
    """The ends of these topics in Kafka, or in the archive if a topic was deleted. One that was in neither is left out.

    The committed ends would leave out acknowledged events that follow a record of an open transaction.
    """
    deleted = gone_topics(settings, names, KafkaUser.ADMIN)  # the administrator sees all topics
    ends = topics.end_offsets(settings, {*names} - deleted)
    return ends.latest(archived_positions(settings, deleted)) if deleted else ends


def _require_no_open_cut(settings: Settings, ends: Positions) -> None:
    """Raise BadInput if a log was cut. The archive contains records behind its end, and an erasure would miss them."""
    with connect(settings) as connection:
        cuts = log_cuts.open_cuts(connection)
    if names := sorted({each.topic for each in cuts if ends.ids.get(each.topic) == each.topic_id}):
        raise BadInput(
            f"the log of {', '.join(names)} was cut, so the archive may have records of the person behind its end. Run "
            "`truelog archive accept-cut`, then repeat the command."
        )


def of_this_environment(settings: Settings, types: EventTypes, erasure: Erasure) -> Erasure:
    """The erasure without topics that this environment has never read and can no longer read.

    That happens if another environment writes the events. It may have deleted a topic, or made another one with its
    name. Topics are compared by their ids. If the events are this environment's own, nothing is left out.

    Raises:
        NotForgotten: Kafka has a topic of the erasure that is not registered here yet.
    """
    if not settings.reads_events:
        return erasure
    ids = erasure.ends.ids
    with connect(settings) as connection:
        rows = connection.execute(_READ_BY_VIEWS, {"ids": list(ids.values())}).fetchall()
    here = in_kafka(settings, erasure.ends) | {str(topic) for (topic,) in rows}
    here |= {topic for ends in _ends_of_tables(settings, ids) for topic, each in ends.ids.items() if ids[topic] == each}
    _require_registered(types, here)
    fields = {topic: names for topic, names in erasure.fields.items() if topic in here}
    return replace(erasure, fields=fields, ends=erasure.ends.only(here))


def in_kafka(settings: Settings, ends: Positions) -> set[str]:
    """The topics of these positions that Kafka still has, with the same ids. The administrator sees all topics.

    Raises:
        ServiceDown: Kafka does not answer.
    """
    here = ends.ids.keys() - gone_topics(settings, ends.ids, KafkaUser.ADMIN)
    found = topics.current_ids(topics.client(settings, KafkaUser.ADMIN), here)
    return {topic for topic, topic_id in found.items() if ends.ids[topic] == topic_id}


def _require_registered(types: EventTypes, names: Collection[str]) -> None:
    if unknown := sorted({*names} - types.keys()):
        raise NotForgotten(f"an erasure covers {', '.join(unknown)}, not registered here yet: see `truelog status`.")


def wait_for_archive(settings: Settings, erasure: Erasure) -> None:
    """Wait until the archive contains all records below the ends. It reads a record when its transaction has ended.

    If a topic was deleted or created again before all of it was archived, the rest is not waited for: it is nowhere.

    Raises:
        ArchiveBehind: some records are still not archived after `archive_wait_seconds`.
        TopicRecreated: the archive still contains an earlier topic with the same name.
    """
    ends, seconds = erasure.ends, settings.archive_wait_seconds
    try:
        archive_reader.wait_for(settings, ends, seconds=seconds)
        return
    except ArchiveBehind:
        seconds = 0  # the others had their time
    except TopicRecreated:
        log.info("erasure %s: the archive has another topic with the name of one of its topics", erasure.id)
    ends = ends.only(in_kafka(settings, ends))
    try:
        archive_reader.wait_for(settings, ends, seconds=seconds)
    except ArchiveBehind as behind:
        hidden = topics.committed_ends(topics.client(settings), ends.offsets).ranges_to(ends)
        if not hidden:
            raise
        where = ", ".join(f"at {each.start} of {each.topic} {each.partition}" for each in hidden)
        raise ArchiveBehind(
            f"a transaction {where} has not ended, and the archive waits for it. Repeat the command in some minutes."
        ) from behind


def preview(settings: Settings, named: Collection[Named]) -> Preview:
    """What an erasure would cover. Records that are not archived yet are not counted."""
    found, views, types = Counter[str](), set[str](), event_registry.confirmed_types(settings)
    for erasure in requests(settings, named):
        for eraser in erasers(settings, types, erasure):
            for each in eraser.count():
                found[each.topic] += each.records
        with connect(settings) as connection:
            views |= {view for view, _ in made_versions(connection, erasure)}
    unclear = {value for _, value in named if not is_clear(value)}
    return Preview(dict(sorted(found.items())), sorted(views), sorted(unclear))


def erasers(
    settings: Settings, types: EventTypes, erasure: Erasure, covered: dict[str, Offsets] | None = None
) -> Iterator[ArchiveEraser]:
    """What erases the records of each of the erasure's topics from the archive, one after the other.

    A topic that was created again has several tables. Nothing is covered in those with another id.

    `covered` has what earlier erasers of this erasure have found, by file, and gets what these find.

    Raises:
        NotForgotten: a topic is not registered here.
    """
    _require_registered(types, erasure.fields)
    known, tables = {} if covered is None else covered, tables_of_topics(settings)
    erasures = Erasures(secret_of(settings), (erasure,))
    with open_catalog(settings) as catalog:
        for topic in sorted(erasure.fields):
            for table in sorted({identifier(topic), *tables.get(topic, ())}):
                yield ArchiveEraser(catalog, types[topic], erasures, known, table)


def made_versions(connection: Connection, erasure: Erasure) -> list[tuple[str, int]]:
    """The versions of views that have a table and have read a topic of the erasure."""
    rows = connection.execute(
        "SELECT view, version FROM truelog.view v WHERE reads && %(topics)s OR EXISTS ("
        "SELECT FROM truelog.position p WHERE (p.view, p.version) = (v.view, v.version) AND p.topic = ANY(%(topics)s)"
        ") ORDER BY 1, 2",
        {"topics": sorted(erasure.fields)},
    ).fetchall()
    return [(str(view), int(str(version))) for view, version in rows]
