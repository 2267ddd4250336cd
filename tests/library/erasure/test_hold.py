"""What is held back after a restore: everything until the topic of erasures is read, and then what they cover."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from tests.builders.erasures import an_erasure, forget_erasures, lacks, restored_from_a_dump
from tests.builders.outputs import an_output, forget_outputs
from tests.builders.views import a_view, forget
from tests.library.versions.two_versions import deploy_two
from truelog.cli.commands import services
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject, secret_check
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

LIKES, TWEETS = ("likes", 1), ("tweets", 1)
ENDS = Positions({"like": {0: 7}}, {"like": "an-id"})
SUBJECTS = frozenset({Subject.of(b"secret", "person_id", "ann")})
ERASURE = Erasure(UUID(int=5), SUBJECTS, {"like": ("person_id",)}, ENDS, secret_check(b"secret"))


@pytest.fixture
def views(postgresql: Settings) -> Iterator[Connection]:
    with connect(postgresql, autocommit=True) as connection:
        for (view, _), topic in ((LIKES, "like"), (TWEETS, "tweet")):
            a_view(connection, view, reads=[topic])
        forget_erasures(connection)
        yield connection
        forget_erasures(connection)
        for view, _ in (LIKES, TWEETS):
            forget(connection, view)


def reasons(connection: Connection) -> dict[str, str]:
    rows = connection.execute("SELECT view, reason FROM truelog.answer").fetchall()
    return {str(view): str(reason) for view, reason in rows}


def held_by_the_api(connection: Connection) -> set[tuple[str, int]]:
    """Its statements leave out the versions of `truelog.held`."""
    rows = connection.execute("SELECT view, version FROM truelog.held").fetchall()
    return {(str(view), int(str(version))) for view, version in rows}


def test_all_views_are_held_back_until_the_topic_is_read(views: Connection) -> None:
    assert hold.is_read(views)
    assert hold.held_versions(views) == frozenset()
    lacks(views, 2)
    assert hold.lacking(views) == 2
    assert hold.held_versions(views) == {LIKES, TWEETS}
    assert all("run `truelog archive adopt`" in each for each in reasons(views).values())
    lacks(views, 0)
    assert hold.held_versions(views) == frozenset()
    assert held_by_the_api(views) == frozenset()
    restored_from_a_dump(views)
    assert not hold.is_read(views)
    assert hold.held_versions(views) == {LIKES, TWEETS}


def test_a_platform_that_lacks_erasures_is_not_fine(postgresql: Settings, views: Connection) -> None:
    assert services._show(postgresql, [], as_json=True)
    lacks(views, 2)
    assert not services._show(postgresql, [], as_json=True)


def test_an_adopted_erasure_holds_back_the_views_of_its_topics(views: Connection) -> None:
    an_erasure(views, replace(ERASURE, id=UUID(int=6)), Step.PUBLISHED)  # not adopted: it holds nothing back
    assert hold.held_versions(views) == frozenset()
    ledger.restore(views, ERASURE, Step.PUBLISHED, adopted=True)
    for step in list(Step)[2:]:
        held = {LIKES} if step <= Step.VIEWS else set[tuple[str, int]]()  # the step COPIES needs relay and notifier
        assert hold.held_versions(views) == held, step
        assert hold.held_views(views) == {view for view, _ in held}
        assert held_by_the_api(views) == ({LIKES} if step <= Step.COPIES else set()), step
        assert ("run `truelog erasures adopt`" in reasons(views)["likes"]) == (step <= Step.COPIES)
        ledger.finish(views, ERASURE, step)
    assert hold.held_versions(views) == frozenset()


def as_analyst(settings: Settings) -> psycopg.Connection:
    signed = settings.database() | {"user": "analyst", "password": settings.analyst_password.get_secret_value()}
    return psycopg.connect(**signed, autocommit=True)


def test_an_outbox_gives_the_reason_and_no_rows(postgresql: Settings, views: Connection) -> None:
    """Also if a condition would name a row in its own error. The owner is not refused: the notifier reads."""
    an_output(views, "likes", ago=timedelta(seconds=1))
    query = b"SELECT count(*) FROM truelog.published_change WHERE view = 'likes'"
    with as_analyst(postgresql) as analyst:
        assert analyst.execute(query).fetchone() == (1,)
        restored_from_a_dump(views)
        for condition in (b"", b" AND number > 0", b" AND key::integer = 0"):
            with pytest.raises(psycopg.Error, match="run `truelog archive adopt`") as refused:
                analyst.execute(query + condition)
            assert hold.refusal(refused.value)
        lacks(views, 0)
        assert analyst.execute(query).fetchone() == (1,)
        ledger.restore(views, ERASURE, Step.VIEWS, adopted=True)
        with pytest.raises(psycopg.Error, match="run `truelog erasures adopt`"):
            analyst.execute(query)
        assert views.execute(query).fetchone() == (1,)
    forget_outputs(views)


def test_sql_readers_get_the_reason_and_no_rows(postgresql: Settings, views: Connection) -> None:
    """Under each name, also where no row fits, and only while the view is held back."""
    versions = deploy_two(postgresql, views)
    versions.make_ready()
    name = versions.name
    with as_analyst(postgresql) as analyst:

        def refusals() -> list[str]:
            found = []
            for each in (name, f"{name}_busy", f"{name}_v1", f"{name}_v2"):
                for query in ("SELECT * FROM views.{}", "SELECT count(*) FROM views.{} WHERE url = 'none'"):
                    try:
                        analyst.execute(query.format(each).encode()).fetchall()
                    except psycopg.Error as refused:
                        found.append(hold.refusal(refused))
            return found

        assert refusals() == []
        restored_from_a_dump(views)
        assert [("run `truelog archive adopt`" in each) for each in refusals()] == [True] * 8
        lacks(views, 0)
        ledger.restore(views, ERASURE, Step.PUBLISHED, adopted=True)
        assert refusals() == [], "an erasure of another topic"
    versions.forget()
