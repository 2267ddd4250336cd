"""Erasures of the environment whose events are read arrive as events, and are performed here as new ones."""

import uuid
from collections.abc import Iterator

import pytest

from tests.library.whole_environments import destroyed_afterwards, reading, set_up
from truelog.control import event_registry
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import erasure_log, forget
from truelog.forgetting import reading as erasures
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.errors import ReadsOnly
from truelog.support.settings import Settings


@pytest.fixture(scope="module")
def red(platform: Settings) -> Iterator[Settings]:
    with destroyed_afterwards(set_up(platform, "red")) as made:
        yield made


@pytest.fixture(scope="module")
def blue(platform: Settings, red: Settings) -> Iterator[Settings]:
    with destroyed_afterwards(reading(platform, "blue", red)) as made:
        yield made


def published(settings: Settings) -> Erasure:
    secret, ends = secret_of(settings), topics.end_offsets(settings, ["page_view"])
    subjects = frozenset({Subject.of(secret, "visitor_id", "ann")})
    made = Erasure(uuid.uuid4(), subjects, {"page_view": ("visitor_id",)}, ends, secret_check(secret))
    erasure_log.publish(settings, event_registry.confirmed_types(settings), made)
    return made


def test_an_erasure_of_the_other_is_due_here(red: Settings, blue: Settings) -> None:
    with connect(red, autocommit=True) as theirs, connect(blue, autocommit=True) as connection:
        erasures.read_once(blue)  # as `truelog up` does
        assert erasures.foreign(blue, connection) == []
        made = published(red)
        assert erasures.foreign(blue, connection) == [str(made.id)]
        assert erasures.foreign(red, theirs) == []  # which has it from its own command
        with ledger.exclusive(connection):
            forget.add_published(blue, connection)
        assert ledger.unfinished(connection) == [made]
        assert (ledger.step_of(connection, made), ledger.is_adopted(connection, made)) == (Step.PUBLISHED, False)
        assert hold.held_views(connection) == frozenset()  # no backup was restored
        assert erasures.foreign(blue, connection) == []

        ledger.finish(connection, made, Step.ARCHIVED)
        with ledger.exclusive(connection):
            forget.add_published(blue, connection)  # by the next run of the DAG, which goes on
        assert (ledger.step_of(connection, made), ledger.is_adopted(connection, made)) == (Step.ARCHIVED, False)


def test_a_restored_database_adopts_them(red: Settings, blue: Settings) -> None:
    """As if the ledger were never compared with the log, in this database, on this server."""
    made = published(red)
    with connect(blue, autocommit=True) as connection:
        hold.record_reading(connection, 1)
        with ledger.exclusive(connection):
            forget.add_published(blue, connection)
        assert ledger.is_adopted(connection, made)


def test_an_erasure_begins_in_the_other_environment(blue: Settings) -> None:
    with pytest.raises(ReadsOnly, match="an erasure is a matter of the environment red"):
        forget.forget(blue, [("visitor_id", "ann")], "a person")
