"""The request for an erasure: what it will cover, and how many records that are, before anything is written."""

import hmac
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import open_catalog
from truelog.control import event_registry
from truelog.erasure.erasure import Erasure, Erasures, subject_fields
from truelog.erasure.subject import Named, Subject, is_clear, secret_check
from truelog.log import topics
from truelog.schema.event import EventTypes
from truelog.storage.database import Connection, connect
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Preview:
    """How many archived records of each topic an erasure covers, and the views that read these topics.

    unclear: the values that are numbers, which texts may have with another meaning, or that are not one word.
    """

    records: dict[str, int]
    views: list[str]
    unclear: list[str]


def secret_of(settings: Settings) -> bytes:
    """The secret of the hashes.

    Raises:
        NotSetUp: the home has none.
    """
    if secret := settings.erasure_secret.get_secret_value():
        return secret.encode()
    raise NotSetUp(
        "TRUELOG_ERASURE_SECRET is missing. Set it to a random text and keep it for ever: with another one, the "
        "platform would no longer know whom it has forgotten."
    )


def require_secret_of(settings: Settings, erasure: Erasure) -> None:
    """Require that the hashes of the erasure were made with the secret of this home.

    Raises:
        NotSetUp: with this secret, the erasure would cover no record.
    """
    if not hmac.compare_digest(erasure.secret_check, secret_check(secret_of(settings))):
        raise NotSetUp(
            f"erasure {erasure.id} was made with another TRUELOG_ERASURE_SECRET, so this one finds nothing of it. "
            "Set the secret that the home had then."
        )


def wanted(settings: Settings, named: Collection[Named]) -> Erasure:
    """The erasure of these values of fields, up to the present end of the log.

    Raises:
        BadInput: no event type declares one of the fields as its subject.
        NotSetUp: the home has no secret.
    """
    secret = secret_of(settings)
    fields = subject_fields(event_registry.confirmed_types(settings), {field for field, _ in named})
    ends = topics.committed_ends(topics.client(settings), fields)
    subjects = frozenset(Subject.of(secret, *each) for each in named)
    return Erasure(uuid.uuid4(), subjects, fields, ends, secret_check(secret))


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


def erasers(settings: Settings, types: EventTypes, erasure: Erasure) -> Iterator[ArchiveEraser]:
    """What erases the records of each of the erasure's topics from the archive, one after the other."""
    with open_catalog(settings) as catalog:
        for topic in sorted(erasure.fields):
            yield ArchiveEraser(catalog, types[topic], Erasures(secret_of(settings), (erasure,)))


def made_versions(connection: Connection, erasure: Erasure) -> list[tuple[str, int]]:
    """The versions of views that have a table and have read a topic of the erasure."""
    rows = connection.execute(
        "SELECT view, version FROM truelog.view v WHERE reads && %(topics)s OR EXISTS ("
        "SELECT FROM truelog.position p WHERE (p.view, p.version) = (v.view, v.version) AND p.topic = ANY(%(topics)s)"
        ") ORDER BY 1, 2",
        {"topics": sorted(erasure.fields)},
    ).fetchall()
    return [(str(view), int(str(version))) for view, version in rows]
