"""Which comparisons a run of `recompute` has started.

Airflow keeps with each run of `reconcile` the events of assets that made it, and with each event the run that announced
it. The event itself names the try of `announce`, which tells attempts at one run apart.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import State
from sqlalchemy import select

from pages.access import Dag
from pages.attempts import Attempt
from truelog.storage import db_snapshot
from truelog.support.settings import Settings


@dataclass(frozen=True)
class Announced:
    """New partials were announced; `comparison` is the run of `reconcile` that this started, None until it has."""

    attempt: str | None
    at: datetime
    comparison: str | None
    over: bool

    def of(self, attempt: Attempt) -> bool:
        """An event that names no try belongs to the attempt that it falls in."""
        if (announcement := attempt.announcement) is None:
            return False
        if self.attempt is None:
            return announcement.made_at <= self.at < attempt.ends_at
        return self.attempt == str(announcement.id)


def announcements(runs: Collection[str]) -> dict[str, list[Announced]]:
    """By run of `recompute`, what its attempts announced, the oldest first."""
    asked = (
        select(AssetEvent.source_run_id, AssetEvent.extra, AssetEvent.timestamp, DagRun.run_id, DagRun.state)
        .outerjoin(AssetEvent.created_dagruns.and_(DagRun.dag_id == Dag.RECONCILE))
        .where(AssetEvent.source_dag_id == Dag.RECOMPUTE, AssetEvent.source_run_id.in_(runs))
        .order_by(AssetEvent.id, DagRun.id)
    )
    found: dict[str, list[Announced]] = {}
    with create_session() as session:
        for source, extra, at, comparison, state in session.execute(asked):
            event = Announced((extra or {}).get("attempt"), at, comparison, state in State.finished_dr_states)
            found.setdefault(str(source), []).append(event)
    return found


def finished(announced: Iterable[Announced]) -> set[str]:
    """The runs of `reconcile` among these that have compared at least one view."""
    runs = sorted({each.comparison for each in announced if each.comparison})
    with db_snapshot.read_snapshot(Settings()) as connection:
        rows = connection.execute("SELECT DISTINCT run FROM truelog.reconciliation WHERE run = ANY(%s)", (runs,))
        return {str(run) for (run,) in rows}


def concerned(run: str, attempt: str = "") -> list[str] | None:
    """The runs whose comparisons are asked for by the name of a run of either DAG; None where none is named.

    With the try of `announce`, only the comparisons that this attempt started.
    """
    if not run:
        return None
    found = [each for each in announcements([run]).get(run, ()) if attempt in ("", each.attempt)]
    compared = dict.fromkeys(each.comparison for each in found if each.comparison)  # an event for each view
    return list(compared) if attempt else [run, *compared]
