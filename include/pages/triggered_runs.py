"""The `reconcile` runs that a `recompute` run triggered.

Airflow stores the asset events that triggered a `reconcile` run, and the run that announced each event. Each event
contains the id of the `announce` try, which distinguishes the attempts at one run.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from sqlalchemy import select

from pages import waiting
from pages.access import Dag
from pages.attempts import Attempt
from truelog.storage import db_snapshot
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Announcement:
    """An announcement of new partials. `comparison` is the resulting `reconcile` run, or None before the run exists."""

    attempt: str | None
    at: datetime
    comparison: str | None
    over: bool

    def of(self, attempt: Attempt) -> bool:
        """Whether this attempt made the announcement. If the event contains no try, the time decides."""
        if (announcement := attempt.announcement) is None:
            return False
        if self.attempt is None:
            return announcement.made_at <= self.at < attempt.ends_at
        return self.attempt == str(announcement.id)


def announcements(runs: Collection[str]) -> dict[str, list[Announcement]]:
    """The announcements of all attempts at each `recompute` run, by run id, oldest first."""
    query = (
        select(AssetEvent.source_run_id, AssetEvent.extra, AssetEvent.timestamp, DagRun.run_id, DagRun.state)
        .outerjoin(AssetEvent.created_dagruns.and_(DagRun.dag_id == Dag.RECONCILE))
        .where(AssetEvent.source_dag_id == Dag.RECOMPUTE, AssetEvent.source_run_id.in_(runs))
        .order_by(AssetEvent.id, DagRun.id)
    )
    found: dict[str, list[Announcement]] = {}
    with create_session() as session:
        for source, extra, at, comparison, state in session.execute(query):
            event = Announcement((extra or {}).get("attempt"), at, comparison, state in State.finished_dr_states)
            found.setdefault(str(source), []).append(event)
    return found


def finished(announced: Iterable[Announcement]) -> set[str]:
    """The triggered runs that have compared at least one view."""
    runs = sorted({each.comparison for each in announced if each.comparison})
    with db_snapshot.read_snapshot(Settings()) as connection:
        rows = connection.execute("SELECT DISTINCT run FROM truelog.reconciliation WHERE run = ANY(%s)", (runs,))
        return {str(run) for (run,) in rows}


def run_states(runs: Collection[str]) -> list[dict[str, Any]]:
    """The DAG, the state and the user of each `recompute` or `reconcile` run, and what the run waits for.

    A run that Airflow has deleted is left out.
    """
    dags = [Dag.RECOMPUTE, Dag.RECONCILE]
    query = select(DagRun).where(DagRun.dag_id.in_(dags), DagRun.run_id.in_(runs)).order_by(DagRun.id)
    if not runs:
        return []
    with create_session() as session:
        found = list(session.scalars(query))
        waits = waiting.waits(session, found)
        return [
            {"dag": each.dag_id, "run": each.run_id, "state": str(each.state)}
            | {"by": each.triggering_user_name, "waits": waits.get(each.run_id)}
            for each in found
        ]


def run_starters(runs: Collection[str]) -> dict[str, dict[str, str | None]]:
    """Who or what started each of these `reconcile` runs: the kind of the run, and the user if a person started it."""
    query = select(DagRun.run_id, DagRun.run_type, DagRun.triggering_user_name)
    with create_session() as session:
        found = session.execute(query.where(DagRun.dag_id == Dag.RECONCILE, DagRun.run_id.in_(runs)))
        return {run: {"kind": str(kind), "by": by} for run, kind, by in found.tuples()}


def comparison_runs(run: str, attempt: str = "") -> list[str] | None:
    """The runs whose comparisons belong to a `recompute` or `reconcile` run; None if `run` is empty.

    If `attempt` is the id of an `announce` try, only the runs that this attempt triggered.
    """
    if not run:
        return None
    found = [each for each in announcements([run]).get(run, ()) if attempt in ("", each.attempt)]
    compared = dict.fromkeys(each.comparison for each in found if each.comparison)  # one event per view
    return list(compared) if attempt else [run, *compared]
