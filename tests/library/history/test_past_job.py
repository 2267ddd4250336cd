"""The job that answers questions about the past: what ends it, and which questions that concerns. There is no Spark."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from tests.builders.past import forget_questions
from truelog.exports.query import RowQuery
from truelog.history import past_job, past_question
from truelog.history.past_question import PastPage, PastQuestion
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Past:
    """A view whose rows cannot be read if they are ordered by a column that `wrong` has."""

    wrong: dict[str | None, Exception]

    def rows(self, query: RowQuery, **_: Any) -> list[str]:
        if error := self.wrong.get(query.order):
            raise error
        return ["{}"]


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, Exception]:
    """What goes wrong, by the order that is asked for; None: the rebuild itself, at noon."""
    planted: dict[str | None, Exception] = {}

    @contextmanager
    def no_rebuild(_: Any, __: Any, at: datetime) -> Iterator[Past]:
        if (error := planted.get(None)) and at == NOON:
            raise error
        yield Past(planted)

    @contextmanager
    def no_limit(*_: Any) -> Iterator[threading.Event]:
        yield threading.Event()

    monkeypatch.setattr(past_job, "open_past", no_rebuild)
    monkeypatch.setattr(past_job, "time_limit", no_limit)
    monkeypatch.setattr(past_job, "_said", lambda _: {})
    return planted


def ask(settings: Settings, connection: Connection, at: datetime, order: str, version: int = 1) -> PastQuestion:
    question = PastQuestion("counts", version, at, RowQuery("counts", order=order, limit=1))
    past_question.ask(connection, settings, question, PastPage(1), f"{at} {order}")
    return question


def run(settings: Settings, connection: Connection) -> None:
    declared = SimpleNamespace(name="counts", view=SimpleNamespace(version=1))
    views = SimpleNamespace(compiled=[declared], refused={})
    context: Any = SimpleNamespace(views=views, settings=settings, spark=None, event_types={})
    past_job.answer_each(context, connection, past_question.waiting(connection))


def stored(connection: Connection) -> list[Any]:
    """The status and the tries of each question, in the order in which they were asked."""
    query = "SELECT status, tries FROM truelog.past_question WHERE view = 'counts' ORDER BY asked_at"
    return connection.execute(query).fetchall()


@pytest.fixture
def asked(connection: Connection, postgresql: Settings) -> Iterator[None]:
    """Two questions about noon, and one about an hour later."""
    ask(postgresql, connection, NOON, "a")
    ask(postgresql, connection, NOON, "b")
    ask(postgresql, connection, NOON + timedelta(hours=1), "a")
    yield
    forget_questions(connection, "counts")


@pytest.mark.parametrize("error", [NotSetUp("no"), psycopg.errors.UndefinedFunction("no order for json")])
def test_what_one_question_cannot_have_is_its_own_problem(
    asked: None, errors: Any, connection: Connection, postgresql: Settings, error: Exception
) -> None:
    errors["b"] = error
    run(postgresql, connection)
    assert stored(connection) == [(200, 1), (422, 1), (200, 1)]


def test_a_version_whose_code_is_not_kept_has_no_past(
    asked: None, errors: Any, connection: Connection, postgresql: Settings
) -> None:
    question = ask(postgresql, connection, NOON, "a", version=2)
    run(postgresql, connection)
    assert stored(connection) == [(200, 1), (200, 1), (200, 1), (409, 1)]
    found = past_question.read(connection, postgresql, question, PastPage(1))
    assert found is not None
    assert found.said == {"reason": "The code of version 2 of counts is not kept."}


def test_an_answer_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_job, "_MOST_CHARACTERS", 5)
    for rows, limit, expected in (
        ("abc", 3, ("abc", False)),
        ("abc", 2, ("ab", True)),
        (("abcdef", "x"), 9, (("abcdef",), True)),
        ((), 9, ((), False)),
    ):
        kept, more = past_job._portion(iter(rows), limit)
        assert (tuple(kept), more) == (tuple(expected[0]), expected[1])


def test_questions_wait_during_an_outage(
    asked: None, errors: Any, connection: Connection, postgresql: Settings
) -> None:
    """However often that is, and the others are answered."""
    errors[None] = OSError("S3 does not answer")
    for _ in range(3):
        with pytest.raises(OSError, match="S3"):
            run(postgresql, connection)
    assert stored(connection) == [(None, 0), (None, 0), (200, 1)]
    errors.clear()
    run(postgresql, connection)
    assert stored(connection) == [(200, 1), (200, 1), (200, 1)]


def test_what_ends_java_is_tried_twice_and_blames_no_other_question(
    asked: None, errors: Any, connection: Connection, postgresql: Settings
) -> None:
    errors[None] = ConnectionRefusedError("Java has ended")
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            run(postgresql, connection)
    assert stored(connection) == [(None, 2), (None, 2), (None, 0)]
    run(postgresql, connection)
    assert stored(connection) == [(503, 2), (503, 2), (200, 1)]
