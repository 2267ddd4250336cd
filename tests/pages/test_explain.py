"""Tests of the explain page: what an explanation costs, who may see one, and the stored answers of its jobs."""

import json
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest

from runtime.airflow_client import Airflow
from tests.builders.erasures import an_erasure, forget_erasures, lacks
from tests.library.archive_files import TOPIC, append_value
from tests.library.restored_catalog import restored
from tests.pages.fetch import fetch
from tests.pages.plausible import HOSTILE
from tests.pages.plausible_answer import ANSWER, MANY, QUESTION, ROW, WHERE
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.history import explain_job
from truelog.history.explain_question import Question, newest_answer
from truelog.log.positions import Positions
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.errors import BadInput, NotReady
from truelog.support.settings import PROJECT, Settings

SUBJECTS = frozenset({Subject.of(b"secret", "visitor_id", "v")})
ERASURE = Erasure(UUID(int=1), SUBJECTS, {TOPIC: ("visitor_id",)}, Positions({TOPIC: {0: 3}}, {TOPIC: "an-id"}))


@pytest.fixture
def explained(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The question, answered by the job's own entry point for the user `oncall`."""
    main = runpy.run_path(str(PROJECT / "spark_apps" / "explain.py"))["main"]
    asked: list[Question] = []

    def answered(_: Settings, question: Question) -> dict[str, Any]:
        asked.append(question)
        return ANSWER

    monkeypatch.setenv("TRUELOG_HOME", str(filled.home))
    monkeypatch.setitem(main.__globals__, "answer_question", answered)
    monkeypatch.setattr(sys, "argv", ["explain.py", "--doer", "oncall", QUESTION.view, "--", *WHERE])
    with connect(filled, autocommit=True) as connection:
        assert main() == 0
        assert asked == [QUESTION]
        yield filled
        connection.execute("DELETE FROM truelog.explanation")


def test_an_explanation_beside_an_erasure_is_not_stored(explained: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name the person. What is stored before the step COPIES, that step deletes."""
    main = runpy.run_path(str(PROJECT / "spark_apps" / "explain.py"))["main"]
    erasures = iter([Step.PARTIALS, Step.VIEWS])
    with connect(explained, autocommit=True) as connection:

        def erased_meanwhile(*_: object) -> dict[str, Any]:
            step = next(erasures)
            an_erasure(connection, replace(ERASURE, id=UUID(int=step)), step)
            return ANSWER

        monkeypatch.setitem(main.__globals__, "answer_question", erased_meanwhile)
        assert main() == 0
        stored = newest_answer(connection, QUESTION)
        with pytest.raises(NotReady, match="an erasure has changed the views meanwhile"):
            main()
        assert newest_answer(connection, QUESTION) == stored
        monkeypatch.setitem(main.__globals__, "answer_question", lambda *_: ANSWER)
        assert main() == 0  # both were known before it was answered
        forget_erasures(connection)


def address(where: list[str] = WHERE, **more: str) -> str:
    return "data/explain?" + urlencode([("view", "page_views"), *(("where", each) for each in where), *more.items()])


def test_a_question_names_a_row_by_its_key() -> None:
    assert QUESTION.key == {
        "minute": "2026-11-24 10:00:00+00",
        "host": "shop.example",
        "page": HOSTILE[1],
        "browser": None,
    }
    assert Question("v", ("a=x y", "b is NULL"), "t:0:1").command == (
        "truelog explain v 'a=x y' --null b --before t:0:1"
    )


@pytest.mark.parametrize("where", [("a>1",), ("a=1", "a=2"), ("a is not NULL",), ("a",)])
def test_a_question_is_not_a_range_of_rows(where: tuple[str, ...]) -> None:
    with pytest.raises(BadInput):
        assert Question("v", where).key


def test_the_page_says_what_an_explanation_reads(
    readable: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    found = json.load(fetch(users["analyst"], "GET", "data/explain/cost?view=page_views"))
    assert (found["records"], found["files"], found["most"]) == (3, 3, readable.explain_records)
    assert found["bytes"] > 0
    for view, why in (("request_rates", "has no table"), ("broken", "broken.py"), ("page_audience", TOPIC)):
        assert why in json.load(fetch(users["analyst"], "GET", f"data/explain/cost?view={view}"))["refused"]
    assert fetch(users["analyst"], "GET", "data/explain/cost?view=no").status == 404


def test_an_unanswered_question_has_a_command(users: dict[str, Airflow]) -> None:
    found = json.load(fetch(users["oncall"], "GET", address(["a=1"])))
    assert (found["command"], found["answered"], found["run"]) == ("truelog explain page_views a=1", None, None)
    assert (found["last_seconds"], found["may_read"]) == (None, True)
    assert json.load(fetch(users["analyst"], "GET", address(["a=1"])))["may_read"] is False
    assert fetch(users["oncall"], "GET", address(["a>1"])).status == 400
    assert fetch(users["oncall"], "GET", "data/explain?view=page_views").status == 422
    assert fetch(users["oncall"], "GET", "data/explain?view=no&where=a%3D1").status == 404


def test_a_look_at_an_explanation_needs_a_right_and_is_recorded(
    explained: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    answered = json.load(fetch(users["analyst"], "GET", address()))["answered"]
    assert answered["doer"] == "oncall"
    assert json.load(fetch(users["analyst"], "GET", address(before=f"{TOPIC}:0:1")))["answered"] is None
    path = f"data/explanation?id={answered['id']}"
    assert fetch(users["analyst"], "GET", path).status == 403
    found = json.load(fetch(users["oncall"], "GET", path))
    others = ANSWER.keys() - {"streamed", "rebuilt", "events"}
    assert {name: found[name] for name in others} == {name: ANSWER[name] for name in others}
    assert [found[name] for name in ("streamed", "rebuilt")] == [[ROW | {"views": str(MANY)}], [ROW | {"views": "2"}]]
    assert [each["rows"] for each in found["events"]] == [[], [ROW | {"views": "2"}]]
    with connect(pages) as connection:
        [newest] = audit_trail.latest_operations(connection, 1)
        assert (newest.kind, newest.subject, newest.doer) == ("explain", "page_views", "oncall")
        lacks(connection, 1)
        connection.commit()
        held = fetch(users["oncall"], "GET", path)
        lacks(connection, 0)
    assert (held.status, "`truelog archive adopt`" in json.load(held)["detail"]) == (409, True)
    assert newest.about == ", ".join(WHERE)
    assert fetch(users["oncall"], "GET", "data/explanation?id=0").status == 404


def test_a_run_of_the_dag_answers_its_own_question(planned: Settings, users: dict[str, Airflow]) -> None:
    conf = {"view": "page_views", "where": ["a=1", "b=2"], "before": ""}
    run = users["oncall"].trigger("explain", **conf)
    found = json.load(fetch(users["oncall"], "GET", address(["a=1", "b=2"])))
    assert (found["run"]["id"], found["run"]["state"], found["run"]["over"]) == (run, "queued", False)
    assert json.load(fetch(users["oncall"], "GET", address(["a=1", "b=3"])))["run"] is None
    status, _ = users["analyst"].request("POST", "/api/v2/dags/explain/dagRuns", {"logical_date": None, "conf": conf})
    assert status == 403
    users["oncall"].request("PATCH", f"/api/v2/dags/explain/dagRuns/{run}", {"state": "success"})
    found = json.load(fetch(users["oncall"], "GET", address(["a=1", "b=2"])))
    assert found["run"]["over"] is True


def test_a_view_that_is_too_large_is_refused_with_its_command(readable: Settings) -> None:
    few = readable.model_copy(update={"explain_records": 2})
    refused = explain_job.answer_question(few, QUESTION)["refused"]
    assert refused.startswith("the view has 3 records, which are too many. Run `truelog explain page_views ")
    assert explain_job.answer_question(few, Question("no", ("a=1",)))["refused"].startswith("There is no view 'no'")


def test_a_catalog_that_was_restored_explains_nothing(
    readable: Settings, pages: Settings, users: dict[str, Airflow]
) -> None:
    """Its files may have people who were forgotten since. This test is the last one, because nothing adopts it."""
    with restored(readable):
        append_value(readable, 3, b"{}")
    cost = json.load(fetch(users["analyst"], "GET", "data/explain/cost?view=page_views"))
    for refused in (cost["refused"], explain_job.answer_question(readable, QUESTION)["refused"]):
        assert "run `truelog archive adopt`" in refused
