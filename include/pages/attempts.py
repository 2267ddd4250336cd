"""Attempts at a run of `recompute`: a later backfill of the same log day takes the run over and repeats it.

Airflow keeps every try of a task. The id of a try holds the moment when the try was made, so a try belongs to the
newest backfill that was created before it.
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
_FOR_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Try:
    """One try of one task; `name` is the rendered name of a mapped job."""

    id: UUID
    task: str
    index: int
    state: str
    name: str
    started_at: datetime | None

    @property
    def made_at(self) -> datetime:
        """A UUID of version 7 begins with milliseconds since the epoch."""
        return _EPOCH + (self.id.int >> 80) * _MILLISECOND

    @property
    def ran(self) -> bool:
        """Airflow leaves the start and the name of the try before on a try that never begins."""
        return self.started_at is not None and self.started_at >= self.made_at


@dataclass(frozen=True)
class Attempt:
    """What one backfill did in one run: the newest try of each task, and when a later backfill took the run over."""

    tries: tuple[Try, ...] = ()
    ends_at: datetime = _FOR_EVER

    @property
    def announcement(self) -> Try | None:
        return next((each for each in self.tries if each.task == "announce"), None)

    @property
    def jobs(self) -> list[Try]:
        return [each for each in self.tries if each.task == "recompute"]


def attempts(session: Session, backfill: Backfill, runs: Collection[DagRun]) -> dict[str, Attempt]:
    """By run, the attempt that this backfill made."""
    tries, ends = _tries(session, [run.run_id for run in runs]), _ends(session, backfill, runs)
    begins = backfill.created_at
    return {run.run_id: newest(tries.get(run.run_id, ()), begins, ends.get(run.id, _FOR_EVER)) for run in runs}


def newest(tries: Iterable[Try], begins: datetime, ends: datetime) -> Attempt:
    """The tries made from `begins` until before `ends`, to the millisecond; a later try replaces an earlier one."""
    first, last = _milliseconds(begins), _milliseconds(ends)
    made = sorted((each for each in tries if first <= each.made_at < last), key=lambda each: each.id.int)
    return Attempt(tuple({(each.task, each.index): each for each in made}.values()), ends)


def _milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _ends(session: Session, backfill: Backfill, runs: Collection[DagRun]) -> dict[int, datetime]:
    """When the next backfill took over each run; nothing for a run that still belongs to this one."""
    asked = (
        select(BackfillDagRun.dag_run_id, func.min(Backfill.created_at))
        .join(Backfill, Backfill.id == BackfillDagRun.backfill_id)
        .where(BackfillDagRun.dag_run_id.in_([run.id for run in runs]), Backfill.id > backfill.id)
        .group_by(BackfillDagRun.dag_run_id)
    )
    return {run: at for run, at in session.execute(asked).tuples() if run is not None}


def _tries(session: Session, runs: Collection[str]) -> dict[str, list[Try]]:
    """By run, the tries of all attempts: Airflow keeps the last ones apart from those before."""
    found: dict[str, list[Try]] = {}
    for kept, number, called in (
        (TaskInstance, TaskInstance.id, TaskInstance._rendered_map_index),  # without it, the index
        (TaskInstanceHistory, TaskInstanceHistory.task_instance_id, TaskInstanceHistory.rendered_map_index),
    ):
        asked = select(kept.run_id, number, kept.task_id, kept.map_index, kept.state, called, kept.start_date).where(
            kept.dag_id == Dag.RECOMPUTE, kept.run_id.in_(runs)
        )
        for run, id_, task, index, state, name, started_at in session.execute(asked):
            found.setdefault(run, []).append(Try(id_, task, index, str(state), str(name or ""), started_at))
    return found
