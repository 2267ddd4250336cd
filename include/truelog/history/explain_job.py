"""A batch job that answers a question of the explain page."""

from typing import Any

from truelog.batch.batch_context import open_view
from truelog.history.explain import Page, explain
from truelog.history.explain_cost import explain_cost
from truelog.history.explain_question import REFUSALS, Question
from truelog.spark.early import begin_session
from truelog.storage import exact_json
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import Settings
from truelog.views import catalogue


def answer_question(settings: Settings, question: Question) -> dict[str, Any]:
    """The explanation as JSON data; or why there is none, in `refused`. A view that is too large is refused."""
    try:
        view = catalogue.load_view(question.view, settings.views_folder)
        cost = explain_cost(settings, question.view, view)
        if cost.records > settings.explain_records:
            raise BadInput(f"the view has {cost.records:,} records, which are too many. Run `{question.command}`")
        name = "truelog explain"
        started = begin_session(settings, name, cost.records)
        with open_view(settings, name, question.view, started) as (context, compiled):
            found = explain(context, compiled, question.key, Page(before=question.before or None))
    except (*REFUSALS, ServiceDown) as refused:
        return {"refused": str(refused)}
    answer: dict[str, Any] = exact_json.read(exact_json.write(found.as_dict()))
    return answer
