"""Reconciliations: the list with its filters, and one reconciliation."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from pydantic import AwareDatetime, BaseModel, Field

from pages import triggered_runs
from pages.access import SignedIn, may_compare
from pages.answer import Answer, parts, row_texts
from pages.data import OF_VIEWS
from truelog.erasure import hold
from truelog.quality.rule_outcomes import rule_outcomes
from truelog.reconcile import reconcile_history
from truelog.reconcile.reconcile_history import HistoryQuery
from truelog.reports.declared_view import declared_view
from truelog.storage import db_snapshot
from truelog.support.settings import Settings
from truelog.views import catalogue

router = APIRouter(prefix="/data", dependencies=OF_VIEWS)
_MOST_SKIPPED = 1_000_000


class Filter(BaseModel):
    """The list's filters. `run` also selects the runs that it triggered, or that one attempt at it triggered."""

    view: str = ""
    run: str = ""
    attempt: str = ""
    verdict: str = ""
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    text: str = Field(default="", pattern=r"^[^\x00]*$")
    order: str = "id"
    descending: bool = True

    def query(self, limit: int, skip: int = 0) -> HistoryQuery:
        return HistoryQuery(
            view=self.view or None,
            runs=triggered_runs.comparison_runs(self.run, self.attempt),
            verdict=self.verdict or None,
            since=self.since,
            until=self.until,
            text=self.text or None,
            order=self.order,
            descending=self.descending,
            limit=limit,
            skip=skip,
        )


class PageFilter(Filter):
    limit: int = Field(default=100, ge=1, le=1000)
    skip: int = Field(default=0, ge=0, le=_MOST_SKIPPED)


@router.get("/reconciliations")
def reconciliations(chosen: Annotated[PageFilter, Query()]) -> Answer:
    """One page of the list, the number of all that match, and the states of the chosen runs in Airflow."""
    query = chosen.query(chosen.limit, chosen.skip)
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = reconcile_history.list_reconciliations(connection, query)
        total = reconcile_history.count_reconciliations(connection, query)
    return Answer(
        reconciliations=found,
        total=total,
        views=catalogue.view_names(Settings().views_folder),
        runs=triggered_runs.run_states(query.runs or ()),
        starters=triggered_runs.run_starters({each.run for each in found if each.run}),
    )


@router.get("/reconciliation")
def reconciliation(id: int, user: SignedIn) -> Answer:  # noqa: A002  the name in the URL
    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        found = reconcile_history.reconciliation_detail(connection, id)
        if found is None:
            raise HTTPException(404, f"No reconciliation {id}")
        hold.require_not_held(connection, found.reconciliation.view)
        validation = found.reconciliation.validation
        rules = rule_outcomes(connection, validation) if validation else []
    may = may_compare(user)
    view, _ = declared_view(settings, found.reconciliation.view)
    rows = {
        "sample": [
            parts(d) | {"streamed": row_texts(d.streamed), "rebuilt": row_texts(d.rebuilt)} for d in found.sample
        ],
        "repairs": [parts(r) | {"before": row_texts(r.before), "after": row_texts(r.after)} for r in found.repairs],
    }
    of_view = {"key": view.key if view else (), "may_compare": may, "may_export": may}
    return Answer(**parts(found) | rows, rules=rules, **of_view)
