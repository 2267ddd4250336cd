"""What the source of alerts about unfinished work finds: erasures, and versions that readers do not see."""

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.builders.erasures import an_erasure, forget_erasures
from tests.library.versions.two_versions import TwoVersions, deploy_two
from truelog.alerts.kind import KINDS
from truelog.alerts.sources import unfinished
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.cut_over import back, cut_over
from truelog.versions.share import share


@pytest.fixture
def versions(postgresql: Settings, connection: Connection) -> Iterator[TwoVersions]:
    made = deploy_two(postgresql, connection)
    yield made
    made.forget()


def causes(settings: Settings, kind: str) -> dict[str, str]:
    """The causes of all findings of a kind, by subject."""
    found = unfinished.observe(settings).findings
    assert {each.kind for each in found} <= KINDS.keys()
    return {each.subject: each.cause for each in found if each.kind == kind}


def test_an_erasure_is_found_until_it_is_proved(postgresql: Settings, connection: Connection) -> None:
    forget_erasures(connection)
    subjects = frozenset({Subject.of(b"s", "person_id", "ann")})
    ends = Positions({"like": {0: 7}}, {"like": "an-id"})
    made = an_erasure(connection, Erasure(uuid4(), subjects, {"like": ("person_id",)}, ends), Step.COPIES)
    assert causes(postgresql, "erasure_unfinished") == {str(made.id): "its last finished step is copies, 0 s ago"}
    ledger.finish(connection, made, Step.PROVED)
    assert causes(postgresql, "erasure_unfinished") == {}
    forget_erasures(connection)


def test_a_version_is_found_until_readers_see_it_unless_they_have_left_it(versions: TwoVersions) -> None:
    def cause() -> str | None:
        return causes(versions.settings, "version_waiting").get(versions.name)

    assert cause() is None, "no application has deployed version 2"
    versions.run_both()
    assert cause() == "version 2 is not built yet"
    versions.reach(2, 3)
    assert cause() == "version 2 was never compared with its rebuild"
    versions.prove(2, "DIFFERENT", ago=timedelta(minutes=5))
    assert cause() == "version 2 is not proved: its last comparison, 5 min ago, found it DIFFERENT"
    versions.prove(2, ago=timedelta(hours=3))
    assert cause() == "version 2 is not proved: its last comparison, 3 h ago, found it EQUAL"
    versions.prove(2)
    assert cause() == "version 2 lacks 2 records that readers see"
    versions.make_ready()
    assert cause() == "version 2 is ready, and readers were not moved to it"
    share(versions.settings, versions.name, 2, 10, doer="test")
    assert cause() == "version 2 is ready, and readers were not moved to it; 10 % of the API's readers get it"
    cut_over(versions.settings, versions.name, doer="test")
    assert cause() is None
    back(versions.settings, versions.name, doer="test")
    assert cause() is None, "readers were moved back from version 2"
