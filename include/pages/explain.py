"""Explanations of rows: what one costs, the run of the `explain` DAG that answers a question, and its stored answer."""

from typing import Annotated, Any

from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, Field
from sqlalchemy import select

from pages.access import Dag, DataReader, SignedIn, may_compare
from pages.answer import Answer, parts, row_texts
from pages.data import OF_VIEWS, require
from truelog.erasure import hold
from truelog.history import explain_question
from truelog.history.explain_cost import explain_cost
from truelog.history.explain_question import REFUSALS, Question
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.views import catalogue

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_RUNS = 100  # the newest runs, among which a question's run and the last duration are searched


class Form(BaseModel):
    """The row that a page asks about, and the event before which its page of events ends."""

    view: str
    where: list[str] = Field(default=[], min_length=1, max_length=20)
    before: str = ""

    def question(self) -> Question:
        require_view(self.view)
        return Question(self.view, tuple(self.where), self.before)


def require_view(name: str) -> None:
    require(name in catalogue.view_names(Settings().views_folder), f"No view {name!r}")


@router.get("/explain")
def explain(form: Annotated[Form, Query()], user: SignedIn) -> Answer:
    """Whether the question was answered, the newest run that answers it, and how long the last run of the view took."""
    question = form.question()
    command = question.command
    with db_snapshot.read_snapshot(Settings()) as connection:
        answered = explain_question.newest_answer(connection, question)
    return Answer(command=command, answered=answered, may_read=may_compare(user), **_runs(question))


@router.get("/explain/cost")
def cost(view: str) -> Answer:
    """What an explanation of a row reads, and the most records that the page explains; or why none can run."""
    require_view(view)
    settings = Settings()
    try:
        found = explain_cost(settings, view, catalogue.load_view(view, settings.views_folder))
    except REFUSALS as refused:
        return Answer(refused=str(refused))
    return Answer(**parts(found), most=settings.explain_records)


@router.get("/explanation")
def explanation(id: int, user: DataReader) -> Answer:  # noqa: A002  the name in the URL
    """An answer, which has values of archived records. The audit trail records who looked at it, before it is sent."""
    with connect(Settings()) as connection:
        found = explain_question.find_answer(connection, id)
        if found is None:
            raise HTTPException(404, f"No explanation {id}")
        question, answer = found
        hold.require_not_held(connection, question.view)
        audit_trail.record_operation(connection, OperationKind.EXPLAIN, question.view, user, ", ".join(question.where))
    return Answer(id=id, **_with_texts(answer))


def _with_texts(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with each value of its rows as text. A refusal has no rows."""
    if "events" not in answer:
        return answer
    rows = {name: list(map(row_texts, answer[name])) for name in ("streamed", "rebuilt")}
    events = [
        {name: each[name] for name in each if name != "adds"} | {"rows": list(map(row_texts, each["rows"]))}
        for each in answer["events"]
    ]
    return answer | rows | {"events": events}


def _runs(question: Question) -> dict[str, Any]:
    query = select(DagRun).where(DagRun.dag_id == Dag.EXPLAIN).order_by(DagRun.id.desc()).limit(_RUNS)
    asked = {"view": question.view, "where": list(question.where), "before": question.before}
    with create_session() as session:
        runs = [(run, {"before": ""} | (run.conf or {})) for run in session.scalars(query)]
        own = next((run for run, conf in runs if conf == asked), None)
        done = [run for run, conf in runs if conf.get("view") == question.view and str(run.state) == "success"]
        last = next(
            ((run.end_date - run.queued_at).total_seconds() for run in done if run.end_date and run.queued_at), None
        )
        if own is None:
            return {"run": None, "last_seconds": last}
        state = {"id": own.run_id, "state": str(own.state), "over": own.state in State.finished_dr_states}
        return {"run": state | {"asked_at": own.queued_at}, "last_seconds": last}
