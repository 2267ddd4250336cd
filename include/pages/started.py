"""Which comparisons a run of `recompute` has started.

Airflow keeps with each run of `reconcile` the events of assets that made it, and with each event the run that told of
it.
"""

from collections.abc import Collection

from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

from pages.access import Dag


def comparisons(runs: Collection[str]) -> dict[str, list[str]]:
    """By run of `recompute`, the runs of `reconcile`, the oldest first; nothing for a run that has started none yet."""
    asked = (
        select(AssetEvent.source_run_id, DagRun.run_id)
        .join(AssetEvent.created_dagruns)
        .where(AssetEvent.source_dag_id == Dag.RECOMPUTE, AssetEvent.source_run_id.in_(runs))
        .where(DagRun.dag_id == Dag.RECONCILE)
        .order_by(DagRun.id)
    )
    found: dict[str, list[str]] = {}
    with create_session() as session:
        for source, started in session.execute(asked):
            of = found.setdefault(str(source), [])
            if started not in of:  # an event for each view
                of.append(started)
    return found


def concerned(run: str) -> list[str] | None:
    """The runs whose comparisons are asked for by the name of one, of either DAG; None where none is named."""
    return [run, *comparisons([run]).get(run, [])] if run else None
