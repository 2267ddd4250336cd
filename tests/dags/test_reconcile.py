"""Tests of the `reconcile` DAG: a run's views, the job options, and the task that validates the results."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from truelog.reconcile import reconcile_checks
from truelog.reconcile.reconcile_result import ReconcileRequest
from truelog.spark.priority import NICENESS
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

RUN = "manual__judged"


def in_its_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that lowers the priority of its thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def validate(dags: "DagBag", compared: datetime | None, started: datetime) -> None:
    """Run the task, after a comparison that began then, in a run that started then."""
    task: Any = dags.dags["reconcile"].get_task("validate")
    ti = SimpleNamespace(xcom_pull=lambda **_: compared and compared.isoformat())
    in_its_thread(task.python_callable, ["a", "b"], RUN, SimpleNamespace(start_date=started), ti)


def test_what_the_last_try_has_compared_is_validated(dags: "DagBag", monkeypatch: pytest.MonkeyPatch) -> None:
    """If only `validate` is cleared, Airflow renews the start of the run, and the run's comparison still counts."""
    found: list[tuple[Any, ...]] = []

    def validate_views(_: Settings, *arguments: Any) -> dict[str, str]:
        found.append((*arguments, os.getpriority(os.PRIO_PROCESS, 0)))
        return {}

    monkeypatch.setattr(reconcile_checks, "validate_views", validate_views)
    now = datetime.now(UTC)
    validate(dags, now - timedelta(hours=2), now)
    validate(dags, None, now)
    lower = max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))  # than the streams have
    assert found == [(RUN, ["a", "b"], since, lower) for since in (now - timedelta(hours=2), now)]


def test_the_error_of_the_validation_names_each_view_that_failed(
    dags: "DagBag", monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    failed = {"a": "no row differs", "b": "it was not compared"}
    monkeypatch.setattr(reconcile_checks, "validate_views", lambda *_: failed)
    with pytest.raises(AirflowFailException, match=r"^a failed: no row differs\nb failed: it was not compared$"):
        validate(dags, None, datetime.now(UTC))


def test_asset_runs_compare_recomputed_views_and_other_runs_the_chosen_views(dags: "DagBag") -> None:
    from view_assets import RECOMPUTED, view_asset

    task: Any = dags.dags["reconcile"].get_task("choose")
    choose = task.python_callable
    new: dict[Any, list[Any]] = {view_asset(view): [event()] for view in ("page_views", "click_through")}
    new[RECOMPUTED] = [event(), event()]
    assert choose({"views": ["a", "b"]}, run("asset_triggered"), new) == ["click_through", "page_views"]
    assert choose({"views": ["a", "b"]}, run("manual"), {}) == ["a", "b"]
    assert choose({"views": ["a", "b"]}, run("scheduled"), {}) == ["a", "b"]


def run(run_type: str, by: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(run_type=run_type, triggering_user_name=by)


def event(**extra: Any) -> SimpleNamespace:
    return SimpleNamespace(extra=extra)


REPAIRS, COMPARES = {"from_raw": False, "repair": True}, {"from_raw": True, "repair": False}


def test_a_view_is_repaired_only_if_all_events_allow_it(dags: "DagBag") -> None:
    """Two backfills start one comparison. The more cautious backfill decides for its own views."""
    from recompute import announce
    from reconcile_job import job_options
    from view_assets import RECOMPUTED, view_asset

    new: dict[Any, list[Any]] = {RECOMPUTED: []}

    def add(view: Any, extra: dict[str, Any]) -> None:
        new.setdefault(view, []).append(event(**extra))

    for views, repair in ((("a", "b"), True), (("b", "c"), False)):
        planned = {"views": views, "days": ["2026-11-01T00:00:00+00:00"], "unfinished": False}
        outlet = {RECOMPUTED: SimpleNamespace(add=add)}
        announce.function(planned, {"repair": repair}, run("scheduled"), SimpleNamespace(id="try"), outlet)
    new[view_asset("d")] = [event()]  # an event that a user created manually
    asked = {"params": REPAIRS, "run_id": "r", "triggering_asset_events": new}
    spared = ["--exclude-from-repair", "b", "--exclude-from-repair", "c"]
    assert job_options(asked | {"dag_run": run("asset_triggered")}) == ["--run", "r", "--repair", *spared]
    request = ReconcileRequest(repair=True, exempt=frozenset("bc"))
    assert [request.for_view(view).repair for view in "abcd"] == [True, False, False, True]


def test_the_job_receives_the_options_of_its_run(dags: "DagBag") -> None:
    from reconcile_job import job_options

    asked = {"run_id": "r", "triggering_asset_events": {}}
    by_hand = asked | {"params": COMPARES, "dag_run": run("manual", "oncall")}
    assert job_options(by_hand) == ["--run", "r", "--from-raw", "--doer", "oncall"]
    by_clock = asked | {"params": REPAIRS, "dag_run": run("scheduled")}
    assert job_options(by_clock) == ["--run", "r", "--repair", "--audit-partials", "--incremental"]


@pytest.mark.parametrize(
    ("dag", "task"), [("recompute", "announce"), ("reconcile", "compare"), ("reconcile", "validate")]
)
def test_a_task_links_its_results(dags: "DagBag", dag: str, task: str) -> None:
    found: Any = dags.dags[dag].get_task(task)
    link, *more = found.operator_extra_links
    at = link.get_link(found, ti_key=SimpleNamespace(run_id="backfill__2026-11-20T00:00:00+00:00", id="this-try"))
    page = "/truelog/reconciliations?run=backfill__2026-11-20T00%3A00%3A00%2B00%3A00"
    page += "&attempt=this-try" if task == "announce" else ""  # because a later backfill reuses the run
    assert (link.name, at) == ("Report", f"/plugin/truelog{page}")
    assert more == []


def test_the_dag_runs_by_time_and_by_the_asset_of_each_view(dags: "DagBag", settings: Settings) -> None:
    from view_assets import view_asset

    from truelog.views import catalogue

    dag: Any = dags.dags["reconcile"]
    views = catalogue.view_names(settings.views_folder)
    assert list(dag.timetable.asset_condition.objects) == [view_asset(view) for view in views]
    assert dag.params["views"] == views
    assert dag.get_task("validate").trigger_rule == "all_done"
    assert dag.get_task("compare").pool == "recompute"


def test_a_failed_comparison_fails_the_run_although_every_validation_succeeds(dags: "DagBag") -> None:
    """The last task of a run decides the run's state."""
    [last] = dags.dags["reconcile"].leaves
    assert last.upstream_task_ids == {"compare", "validate"}
    assert last.trigger_rule == "all_success"
