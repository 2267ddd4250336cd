"""Attempts at a `recompute` run. A later backfill of the same log day takes over the run and repeats it.

Airflow stores every try of a task. A try's id contains the creation time, so a try belongs to the newest backfill that
was created before the try.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from airflow.models.backfill import Backfill, BackfillDagRun
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pages.access import Dag

_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_NO_END = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Try:
    """One try of one task."""

    id: UUID
    task: str
    state: str
    started_at: datetime | None

    @property
    def made_at(self) -> datetime:
        """The creation time. A version 7 UUID begins with the milliseconds since the epoch."""
        return _EPOCH + (self.id.int >> 80) * _MILLISECOND

    @property
    def ran(self) -> bool:
        """Whether the try began. A try that never began still has the previous try's start time."""
        return self.started_at is not None and self.started_at >= self.made_at


@dataclass(frozen=True)
class Attempt:
    """What one backfill did in one run: the newest try of each task, and when a later backfill took over the run."""

    tries: tuple[Try, ...] = ()
    ends_at: datetime = _NO_END

    @property
    def announcement(self) -> Try | None:
        return next((each for each in self.tries if each.task == "announce"), None)

    @property
    def jobs(self) -> list[Try]:
        return [each for each in self.tries if each.task == "recompute"]


def attempts(session: Session, backfill: Backfill, runs: Collection[DagRun]) -> dict[str, Attempt]:
    """The attempt that this backfill made at each run, by run id."""
    tries, ends = _tries(session, [run.run_id for run in runs]), _ends(session, backfill, runs)
    begins = backfill.created_at
    return {run.run_id: newest(tries.get(run.run_id, ()), begins, ends.get(run.id, _NO_END)) for run in runs}


def newest(tries: Iterable[Try], begins: datetime, ends: datetime) -> Attempt:
    """The last try of each task in [begins, ends). Times are compared in milliseconds, the precision of the ids."""
    first, last = _milliseconds(begins), _milliseconds(ends)
    made = sorted((each for each in tries if first <= each.made_at < last), key=lambda each: each.id.int)
    return Attempt(tuple({each.task: each for each in made}.values()), ends)


def _milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _ends(session: Session, backfill: Backfill, runs: Collection[DagRun]) -> dict[int, datetime]:
    """When the next backfill took over each run. A run that still belongs to this backfill has no entry."""
    query = (
        select(BackfillDagRun.dag_run_id, func.min(Backfill.created_at))
        .join(Backfill, Backfill.id == BackfillDagRun.backfill_id)
        .where(BackfillDagRun.dag_run_id.in_([run.id for run in runs]), Backfill.id > backfill.id)
        .group_by(BackfillDagRun.dag_run_id)
    )
    return {run: at for run, at in session.execute(query).tuples() if run is not None}


def _tries(session: Session, runs: Collection[str]) -> dict[str, list[Try]]:
    """The tries of all attempts, by run id. Airflow stores the latest try in one table, earlier tries in another."""
    found: dict[str, list[Try]] = {}
    for table, number in (
        (TaskInstance, TaskInstance.id),
        (TaskInstanceHistory, TaskInstanceHistory.task_instance_id),
    ):
        query = select(table.run_id, number, table.task_id, table.state, table.start_date).where(
            table.dag_id == Dag.RECOMPUTE, table.run_id.in_(runs)
        )
        for run, id_, task, state, started_at in session.execute(query):
            found.setdefault(run, []).append(Try(id_, task, str(state), started_at))
    return found
