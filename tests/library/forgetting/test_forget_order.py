"""The order in which several erasures are performed: all reach the views before one waits for the relay.

Only the ledger is real. `test_forget.py` performs the steps.
"""

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import cast
from uuid import UUID

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.builders.erasures import forget_erasures
from tests.builders.views import a_view, forget
from truelog.batch.batch_context import BatchContext
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import forget as forgetting
from truelog.forgetting.forget import Forgetting, perform_all
from truelog.log.positions import Positions
from truelog.storage.database import Connection, connect
from truelog.support.errors import NotForgotten
from truelog.support.settings import Settings

VIEW = "likes"
STEPS = (
    "_publish",
    "_wait_for_archive",
    "_count",
    "_rewrite",
    "_expire",
    "_drop_partials",
    "_erase_views",
    "_forget_copies",
)


@pytest.fixture
def ledgers(postgresql: Settings) -> Iterator[Connection]:
    with connect(postgresql, autocommit=True) as connection:
        a_view(connection, VIEW, reads=["like"])
        forget_erasures(connection)
        yield connection
        forget_erasures(connection)
        forget(connection, VIEW)


def adopted(settings: Settings, connection: Connection) -> list[Erasure]:
    """Two erasures of one topic, in a restored database."""
    secret = secret_of(settings)
    subjects = frozenset({Subject.of(secret, "person_id", "ann")})
    ends = Positions({"like": {0: 7}}, {"like": "an-id"})
    first = Erasure(UUID(int=1), subjects, {"like": ("person_id",)}, ends, secret_check(secret))
    found = [first, replace(first, id=UUID(int=2), subjects=frozenset({Subject.of(secret, "person_id", "bob")}))]
    for each in found:
        ledger.restore(connection, each, Step.PARTIALS, adopted=True)
    return found


def context(settings: Settings) -> BatchContext:
    return BatchContext(cast(SparkSession, None), settings, {})


def test_the_relay_publishes_the_view_before_the_first_erasure_waits_for_it(
    postgresql: Settings, ledgers: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    erasures, held = adopted(postgresql, ledgers), list[frozenset[str]]()
    monkeypatch.setattr(Forgetting, "_erase_views", lambda _: held.append(hold.held_views(ledgers)))
    monkeypatch.setattr(Forgetting, "_forget_copies", lambda _: held.append(hold.held_views(ledgers)))
    monkeypatch.setattr(Forgetting, "_prove", lambda _: None)
    done = perform_all(context(postgresql), ledgers, erasures, "tester")
    assert held == [{VIEW}, {VIEW}, frozenset(), frozenset()]
    assert [each.entry.erasure for each in done] == erasures
    assert all(each.entry.is_finished for each in done)


@pytest.mark.parametrize("is_session_lost", [False, True])
def test_an_error_of_postgresql_does_not_hold_back_the_next_erasure(
    postgresql: Settings, ledgers: Connection, monkeypatch: pytest.MonkeyPatch, is_session_lost: bool
) -> None:
    """But without the session, the lock of erasures is gone, and nothing goes on."""
    first, second = adopted(postgresql, ledgers)
    with connect(postgresql, autocommit=True) as session:

        def fail(forgetting: Forgetting) -> None:
            if forgetting.erasure != first:
                return
            if is_session_lost:
                ledgers.execute("SELECT pg_terminate_backend(%s)", (session.info.backend_pid,))
            session.execute("SELECT 1 / 0")

        for name in ("_erase_views", "_prove"):
            monkeypatch.setattr(Forgetting, name, lambda _: None)
        monkeypatch.setattr(Forgetting, "_forget_copies", fail)
        with pytest.raises(psycopg.OperationalError if is_session_lost else psycopg.errors.DivisionByZero):
            perform_all(context(postgresql), session, [first, second], "tester")
    reached = [ledger.step_of(ledgers, each) for each in (first, second)]
    assert reached == [Step.VIEWS, Step.VIEWS if is_session_lost else Step.PROVED]


@pytest.mark.parametrize(
    ("later", "is_behind"),
    [
        (Positions({"like": {0: 7}}, {"like": "an-id"}), False),
        (Positions({"like": {0: 9}}, {"like": "an-id"}), True),
        (Positions({"like": {0: 2}}, {"like": "another"}), True),
    ],
)
def test_a_repeated_command_also_covers_what_has_come_since_the_unfinished_one(
    postgresql: Settings, ledgers: Connection, monkeypatch: pytest.MonkeyPatch, later: Positions, is_behind: bool
) -> None:
    known, other = adopted(postgresql, ledgers)
    performed, failing = list[UUID](), [NotForgotten("not yet")]

    def prove(each: Forgetting) -> None:
        if failing:
            raise failing.pop()
        performed.append(each.erasure.id)

    def command(number: int) -> Collection[forgetting.Forgotten]:
        request = replace(known, id=UUID(int=number), ends=later)
        monkeypatch.setattr(forgetting, "wanted", lambda *_: request)
        return forgetting.forget(postgresql, [], "tester")

    monkeypatch.setattr(forgetting, "open_batch", lambda *_: nullcontext(context(postgresql)))
    for step in STEPS:
        monkeypatch.setattr(Forgetting, step, lambda _: None)
    monkeypatch.setattr(Forgetting, "_prove", prove)
    with pytest.raises(NotForgotten, match="not yet"):
        command(3)
    assert ledger.unfinished(ledgers) == [known, other]  # repetitions do not add up
    done = command(4)
    assert performed == [known.id, *([UUID(int=4)] if is_behind else [])]
    assert [each.entry.erasure.id for each in done] == performed
    assert all(each.entry.is_finished for each in done)
    assert ledger.unfinished(ledgers) == [other]
