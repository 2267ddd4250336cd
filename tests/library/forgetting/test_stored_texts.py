"""What the platform stores about its own work forgets a person, and keeps what is about others."""

import uuid
from datetime import UTC, datetime
from functools import partial

import pytest
from psycopg.types.json import Jsonb

from tests.builders.alerts import an_alert
from tests.builders.applications import an_operation
from tests.builders.comparisons import a_reconciliation, a_repair, a_validation
from tests.builders.quotes import an_invalid_change, quotes
from tests.builders.views import a_batch_refusal, a_failed_group, a_view, an_exclusion, an_oversized_group
from tests.library.forgetting.byte_search import places_with
from truelog.erasure.erasure import Erasure, Erasures
from truelog.erasure.subject import Subject
from truelog.exports.query import Condition, Operator, RowQuery
from truelog.forgetting import stored_texts
from truelog.forgetting.stored_texts import forget_reports, forget_reports_of_dropped, forget_texts
from truelog.history import past_question
from truelog.history.explain_question import Question, newest_answer, store_answer
from truelog.history.past_question import PastPage, PastQuestion
from truelog.log.positions import Positions
from truelog.maintenance.superseded import Version, drop_version
from truelog.quality import gx_docs
from truelog.storage.database import Connection
from truelog.support.settings import Settings

PERSON, TEXT = "xanthippe-4711", "zwiebelkuchen991"
ERASURE = Erasure(uuid.uuid4(), frozenset({Subject.of(b"s", "person_id", PERSON)}), {}, Positions())


def leave_traces(settings: Settings, connection: Connection, view: str) -> None:
    """What comparisons, people and merges have stored about the person, by name or by a text."""
    a_view(connection, view)
    leave_reports(settings, connection, view, TEXT)
    a_reconciliation(connection, view, "UNKNOWN", reason=f"ValueError: '{PERSON}' is not a number")
    question = Question(view, (f"person_id={PERSON}",))
    store_answer(connection, question, {"row": {"text": TEXT}}, "analyst")
    answers = (at_noon(view, "person_id", PERSON), "{}"), (at_noon(view, "text", "x"), f'{{"text":"{TEXT}"}}')
    for past, found in answers:
        past_question.ask(connection, settings, past, PastPage(1), "shop")
        [asked] = past_question.waiting(connection)
        past_question.answer(connection, asked, {"version": 1}, [found])
    past_question.ask(connection, settings, at_noon("other", "text", "y"), PastPage(1), "shop")
    [asked] = past_question.waiting(connection)
    past_question.refuse(connection, asked, past_question.FAILED, f"the rebuild failed on '{PERSON}'")
    past_question.ask(connection, settings, at_noon("other", "person_id", PERSON), PastPage(1), "shop")
    an_operation(connection, f"person_id={PERSON}")
    an_alert(connection, "view_stalled", view, f"the fold failed on ['{PERSON}', 1]")
    an_exclusion(connection, view, 5, error=f"cannot cast '{PERSON}' to INT")
    a_failed_group(connection, view, ["bob"], f"failed beside {PERSON}")
    a_failed_group(connection, view, [PERSON, 1], "failed")
    an_oversized_group(connection, view, [PERSON])
    a_batch_refusal(connection, view, f"the check of '{PERSON}' failed")
    an_invalid_change(connection, view, f'["{PERSON}"]')
    quotes(connection, view, f"failed on '{PERSON}'")


def leave_reports(settings: Settings, connection: Connection, view: str, text: str) -> None:
    """What comparisons and a repair have stored about rows of version 1."""
    row = {"streamed": {"text": text}, "rebuilt": None, "cause": None}
    number = a_reconciliation(connection, view, "DIFFERENT", sample=Jsonb([row]), causes=Jsonb([{"about": text}]))
    a_validation(connection, number)
    [(validation,)] = connection.execute("SELECT id FROM truelog.validation WHERE reconciliation = %s", (number,))
    gx_docs.store_page(settings, validation, text.encode())
    a_repair(connection, view, before={"text": text})


def at_noon(view: str, column: str, value: str) -> PastQuestion:
    query = RowQuery(view, [Condition(column, Operator.EQUAL, value)])
    return PastQuestion(view, 1, datetime(2026, 1, 1, 12, tzinfo=UTC), query)


@pytest.fixture
def view(platform: Settings, connection: Connection) -> str:
    made = f"v{uuid.uuid4().hex[:8]}"
    leave_traces(platform, connection, made)
    return made


def test_texts_and_rows_are_forgotten(platform: Settings, connection: Connection, view: str) -> None:
    an_operation(connection, "person_id=bob")
    other = Question("another", ("person_id=bob",))
    store_answer(connection, other, {"row": {"text": "hello"}}, "analyst")
    quoting = {each.table for each in stored_texts._TEXTS} | {"explanation", "repair"}
    assert {f"truelog.{each}" for each in quoting} <= {*places_with(platform, connection, [PERSON, TEXT], ())}
    for _ in range(2):
        forget_reports(platform, connection, [view])
        forget_texts(connection, Erasures(b"s", (ERASURE,)))
        assert places_with(platform, connection, [PERSON, TEXT], ()) == []
    assert newest_answer(connection, other) is not None
    groups = connection.execute('SELECT "group", error FROM truelog.failed_group WHERE view = %s', (view,)).fetchall()
    assert groups == [(["bob"], "erased")]
    about = connection.execute("SELECT about FROM truelog.operation ORDER BY id DESC LIMIT 2").fetchall()
    assert about == [("person_id=bob",), ("erased",)]
    verdicts = connection.execute("SELECT verdict FROM truelog.reconciliation WHERE view = %s ORDER BY id", (view,))
    assert verdicts.fetchall() == [("DIFFERENT",), ("UNKNOWN",)]  # the history of verdicts stays


def test_reports_of_a_version_that_was_dropped_are_forgotten(platform: Settings, connection: Connection) -> None:
    """What is stored about the version that followed it stays."""
    view, text = f"v{uuid.uuid4().hex[:8]}", f"gugelhupf-{uuid.uuid4().hex[:8]}"
    questions = {version: Question(view, (f"text={version}",)) for version in (1, 2)}
    a_view(connection, view)
    leave_reports(platform, connection, view, text)
    store_answer(connection, questions[1], {"version": 1, "row": {"text": text}}, "analyst")
    assert drop_version(platform, connection, Version(view, 1))
    a_view(connection, view, 2)
    kept = a_reconciliation(connection, view, "DIFFERENT", version=2, sample=Jsonb([{"streamed": {"text": "bread"}}]))
    a_validation(connection, kept)
    store_answer(connection, questions[2], {"version": 2, "row": {"text": "bread"}}, "analyst")
    assert len(places_with(platform, connection, [text], ())) >= 4
    for _ in range(2):
        forget_reports_of_dropped(platform, connection)
        assert places_with(platform, connection, [text], ()) == []
    assert [newest_answer(connection, each) is not None for each in questions.values()] == [False, True]
    left = "SELECT r.sample FROM truelog.validation v JOIN truelog.reconciliation r ON r.id = v.reconciliation "
    found = connection.execute((left + "WHERE r.view = %s").encode(), (view,)).fetchall()
    assert found == [([{"streamed": {"text": "bread"}}],)]


def test_a_number_is_forgotten_beside_its_field_and_in_the_keys_of_groups(connection: Connection, view: str) -> None:
    numbered = Erasure(uuid.uuid4(), frozenset({Subject.of(b"s", "person_id", "4711")}), {}, Positions())
    an_operation(connection, "csv: person_id=4711, at most 10")
    an_operation(connection, "csv: all rows, at most 4711")
    for make in (an_oversized_group, partial(a_failed_group, error="failed")):
        make(connection, view, ["4711"])
    forget_texts(connection, Erasures(b"s", (numbered,)))
    about = connection.execute("SELECT about FROM truelog.operation ORDER BY id DESC LIMIT 2").fetchall()
    assert about == [("csv: all rows, at most 4711",), ("erased",)]
    for table in ("oversized_group", "failed_group"):
        kept = connection.execute(f'SELECT "group" FROM truelog.{table} WHERE view = %s'.encode(), (view,)).fetchall()
        assert (["4711"],) not in kept
