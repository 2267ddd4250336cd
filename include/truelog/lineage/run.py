"""Runs of jobs, and their events. Without a server, nothing is made and nothing is sent."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from truelog.lineage import facets
from truelog.lineage.facets import PRODUCER, Facet
from truelog.lineage.job import Job
from truelog.lineage.sender import Event, Sender, flush, sender_of
from truelog.support.errors import Fenced, TooManyExcluded, TruelogError
from truelog.support.settings import Settings

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs"

_Made = TypeVar("_Made")

log = logging.getLogger("truelog.lineage")


class RunState(StrEnum):
    """The state that a run has reached."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass
class Run:
    """A run of a job.

    facets: what the next events say about the run.
    failure: why the run has failed, or an empty string.
    """

    job: Job
    sender: Sender
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    facets: dict[str, Facet] = field(default_factory=dict)
    failure: str = ""

    def report(self, state: RunState) -> None:
        """Send an event with the time of this call."""
        known = {"errorMessage": facets.error_message(self.failure)} if self.failure else {}
        head = {"eventType": str(state), "eventTime": _now(), "run": {"runId": self.id, "facets": known | self.facets}}
        self.sender.send(lambda: _event(self.job, head, "RunEvent"))

    def complete(self) -> None:
        """Report the end of the run, which has a failure if it has found one itself."""
        self.report(RunState.FAIL if self.failure else RunState.COMPLETE)

    def fail(self, error: BaseException) -> None:
        """Report how the run has ended. A process that another one has replaced was aborted."""
        self.failure = describe(error)
        self.report(RunState.ABORT if isinstance(error, Fenced) else RunState.FAIL)


def static_event(job: Job) -> Event:
    """The event of a job that does not run."""
    return _event(job, {"eventTime": _now()}, "JobEvent")


def describe(error: BaseException) -> str:
    """Why a run has failed. Only our own errors are quoted, except one: others may contain values of events."""
    is_safe = isinstance(error, TruelogError) and not isinstance(error, TooManyExcluded)
    return str(error) if is_safe else type(error).__name__


@contextmanager
def batch_run(settings: Settings, job: Callable[[], Job]) -> Iterator[Run | None]:
    """Report the block as a run of a batch job. The block may set the run's facets and its failure.

    None if no server is set, or if the job cannot be described.
    """
    sender = sender_of(settings)
    made = _made(job) if sender is not None else None
    if sender is None or made is None:
        yield None
        return
    run = Run(made, sender)
    run.report(RunState.START)
    try:
        yield run
    except BaseException as error:
        run.fail(error)
        raise
    run.complete()


class ApplicationRuns:
    """The runs of the jobs of an application, from its start or the job's first appearance to its end."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._sender = settings, sender_of(settings)
        self._runs: dict[Hashable, Run] = {}
        self._due = 0.0
        self._lock = threading.Lock()

    def follow(self, jobs: Callable[[], Mapping[Hashable, Job]]) -> None:
        """Begin a run for each new job, and complete the runs of the jobs that the application no longer does.

        The jobs have keys. A job whose key is known goes on.
        """
        wanted = _made(jobs) if self._sender is not None else None
        if self._sender is None or wanted is None:
            return
        with self._lock:
            for key in self._runs.keys() - wanted.keys():
                self._runs.pop(key).complete()
            for key in wanted.keys() - self._runs.keys():
                self._runs[key] = Run(wanted[key], self._sender)
                self._runs[key].report(RunState.START)
            if not self._due:
                self._due = time.monotonic() + self._settings.openlineage_running_seconds

    def go_on(self) -> None:
        """Say that all jobs are running, at most once in the set interval."""
        if self._sender is None or time.monotonic() < self._due:
            return
        with self._lock:
            self._due = time.monotonic() + self._settings.openlineage_running_seconds
            for run in self._runs.values():
                run.report(RunState.RUNNING)

    @contextmanager
    def until_end(self) -> Iterator[None]:
        """Report the end of all runs at the end of the block, and wait a moment for the server."""
        try:
            yield
        except BaseException as error:
            self._end(partial(Run.fail, error=error))
            raise
        else:
            self._end(Run.complete)
        finally:
            flush(self._settings)

    def _end(self, report: Callable[[Run], None]) -> None:
        with self._lock:
            for run in self._runs.values():
                report(run)
            self._runs = {}


def _made(make: Callable[[], _Made]) -> _Made | None:
    """What `make` returns; None if it fails, because a description must not stop the work that it is about."""
    try:
        return make()
    except Exception:
        log.warning("a job could not be described, so OpenLineage does not hear of it", exc_info=True)
        return None


def _event(job: Job, head: dict[str, Any], kind: str) -> Event:
    return {**head, "producer": PRODUCER, "schemaURL": f"{_SCHEMA}/{kind}", **job.as_dict()}


def _now() -> str:
    return datetime.now(UTC).isoformat()
