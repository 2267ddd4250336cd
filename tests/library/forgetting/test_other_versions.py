"""A version that no code can rebuild is dropped with what is stored about its view, unless it is in use."""

import uuid
from collections.abc import Iterator, Sequence

import pytest
from psycopg.types.json import Jsonb

from tests.builders.comparisons import a_reconciliation, a_repair
from tests.builders.views import is_gone
from tests.library.forgetting.byte_search import places_with
from tests.library.versions.two_versions import TwoVersions, deploy_two
from truelog.control import view_status
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.forgetting.other_versions import drop_others
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import NotForgotten
from truelog.support.settings import Settings
from truelog.tables.shown import readable
from truelog.versions.cut_over import cut_over
from truelog.versions.share import share

PERSON = "xanthippe-4711"
SUBJECTS = frozenset({Subject.of(b"s", "person_id", PERSON)})
ERASURES = Erasures(b"s", (Erasure(uuid.uuid4(), SUBJECTS, {}, Positions()),))


@pytest.fixture
def versions(postgresql: Settings, s3: Settings, connection: Connection) -> Iterator[TwoVersions]:
    made = deploy_two(postgresql, connection)
    made.make_ready()
    made.store(1, [(PERSON, 1)])
    a_reconciliation(connection, made.name, "DIFFERENT", sample=Jsonb([{"streamed": {"url": PERSON}}]))
    a_repair(connection, made.name, before={"url": PERSON})
    yield made
    made.forget()


def drop(versions: TwoVersions, *numbers: int, refused: str = "") -> None:
    names = [(versions.name, number) for number in numbers]
    drop_others(versions.settings, versions.connection, ERASURES, names, {versions.name: refused})


def left(versions: TwoVersions) -> Sequence[int]:
    query = "SELECT version FROM truelog.view WHERE view = %s ORDER BY 1"
    return [number for (number,) in versions.connection.execute(query, (versions.name,)).fetchall()]


def test_a_version_in_use_stays(versions: TwoVersions) -> None:
    with pytest.raises(NotForgotten, match="no such column"):
        drop(versions, 2, refused="no such column")
    with pytest.raises(NotForgotten, match="readers see it"):
        drop(versions, 1)
    with pytest.raises(NotForgotten, match="its file declares it"):
        drop(versions, 2)
    cut_over(versions.settings, versions.name, doer="test")
    with pytest.raises(NotForgotten, match="an application runs it"):
        drop(versions, 1)
    view_status.forget_others(versions.connection, versions.application, [(versions.name, 2)])
    assert left(versions) == [1, 2]
    drop(versions, 1)
    assert (left(versions), versions.seen()) == ([2], [("a", 2)])


def test_a_version_that_a_share_of_the_readers_gets_stays(versions: TwoVersions) -> None:
    """Also when its application has ended, and its file declares another version."""
    share(versions.settings, versions.name, 2, 10, doer="test")
    view_status.forget_others(versions.connection, versions.application, [(versions.name, 1)])
    with pytest.raises(NotForgotten, match="a share of the readers gets it"):
        drop(versions, 2)
    assert left(versions) == [1, 2]
    share(versions.settings, versions.name, 2, 0, doer="test")
    drop(versions, 2)
    assert left(versions) == [1]
    versions.store(1, [])  # nothing of the person is left for other tests


def test_a_removed_view_leaves_with_what_is_stored_about_it(versions: TwoVersions) -> None:
    assert len(places_with(versions.settings, versions.connection, [PERSON], ())) >= 3
    readable.drop(versions.connection, readable.relations_of(versions.connection, versions.name))
    is_gone(versions.connection, versions.name)
    drop(versions, 1, 2)
    assert left(versions) == []
    assert places_with(versions.settings, versions.connection, [PERSON], ()) == []
