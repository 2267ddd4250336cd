"""Applications: the long-running processes, their desired states, and the diagnosis of deviations from those states.

The `archive` application copies the log into the archive; each stream application keeps its views up to date. A
diagnosis depends only on the application's row, the limits and the time.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from psycopg import sql

from truelog.control.lease import COMMAND
from truelog.schema import declaration_files
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import PROJECT, Settings
from truelog.views import catalogue

ARCHIVE, STREAM = "archive", "stream"
RUNNING, STOPPED = "running", "stopped"

# The files that a process cannot read again while it is running.
_LIBRARY = (
    *("include/truelog/**/*.py", "include/truelog/**/*.java", "include/rules/*.py", "include/searches/*.py"),
    "requirements.txt",
)


class Diagnosis(StrEnum):
    """What is wrong with an application."""

    STOP = "stop"
    RESTART_PENDING = "restart_pending"
    DOWN = "down"
    HUNG = "hung"
    NO_INPUT = "no_input"
    CHANGED = "changed"


# The values of `truelog.launch.reason` that mean a failure.
DEATH_REASONS = (Diagnosis.DOWN.value, Diagnosis.HUNG.value)


@dataclass(frozen=True)
class ApplicationStatus:
    """A row of `truelog.application_status`."""

    application: str
    desired: str = RUNNING
    code_wanted: str | None = None
    code_running: str | None = None
    epoch: int | None = None
    pid: int | None = None
    process_at: float | None = None
    host: str | None = None
    taken_at: datetime | None = None
    batch_at: datetime | None = None
    alive: bool = False
    wish: str | None = None

    @property
    def held_by_command(self) -> bool:
        """Whether a command holds its lease. The application does not run meanwhile, and the command ends by itself."""
        return self.alive and self.code_running == COMMAND

    @property
    def quiet_since(self) -> datetime | None:
        """When it ended its last batch, or took its lease, the first time or again after an outage of the database."""
        return max(filter(None, (self.batch_at, self.taken_at)), default=None)


@dataclass(frozen=True)
class InactivityLimits:
    """How long an application may be silent: before its first batch, and between batches."""

    start: timedelta
    silence: timedelta

    def for_status(self, status: "ApplicationStatus") -> timedelta:
        """The limit that applies to an application with this status."""
        return self.start if status.batch_at is None else self.silence


_COLUMNS = sql.SQL(", ").join(sql.Identifier(each.name) for each in fields(ApplicationStatus))
SELECT_STATUS = sql.SQL("SELECT {} FROM truelog.application_status WHERE application = %s").format(_COLUMNS)


def application_names(settings: Settings) -> list[str]:
    """The archive, and every stream application that views are assigned to."""
    if ARCHIVE in settings.applications.values():
        raise NotSetUp(f"TRUELOG_APPLICATIONS assigns a view to {ARCHIVE!r}, which runs no views: choose another name")
    return [ARCHIVE, *sorted({STREAM, *settings.applications.values()})]


def application_of_view(settings: Settings, view: str) -> str:
    """The application that runs the view."""
    return settings.applications.get(view, STREAM)


def views_of(settings: Settings, application: str) -> list[str]:
    """The views that the application runs."""
    return [
        view
        for view in catalogue.view_names(settings.views_folder)
        if application_of_view(settings, view) == application
    ]


def silence_limits(settings: Settings, application: str) -> InactivityLimits:
    """The limits of an application. A stream makes a batch for every tick, the archive for every trigger interval."""
    trigger = settings.archive_trigger_seconds if application == ARCHIVE else settings.tick_seconds
    silence = timedelta(seconds=settings.silence_seconds + trigger)
    return InactivityLimits(timedelta(seconds=settings.start_seconds), silence)


def diagnose_status(status: ApplicationStatus, limits: InactivityLimits, now: datetime) -> Diagnosis | None:
    """What is wrong with an application, or None if nothing is. The first rule that applies decides.

    1. STOP: it is running but should not be.
    2. None: it is not running and should not be, or a command holds its lease.
    3. DOWN: no process holds its lock. PostgreSQL frees the lock when the process dies, so no timeout is needed.
    4. RESTART_PENDING: a restart was requested.
    5. HUNG: its first batch or its next batch is overdue. `diagnose_silence` then determines the cause.
    6. CHANGED: it is not running the wanted code. If the wanted or the running code is unknown, nothing is wrong.
    """
    if status.desired == STOPPED or status.held_by_command:
        return Diagnosis.STOP if status.alive and not status.held_by_command else None  # 1, 2
    if not status.alive or status.taken_at is None:
        return Diagnosis.DOWN  # 3
    if status.wish:
        return Diagnosis.RESTART_PENDING  # 4
    if status.quiet_since and now - status.quiet_since > limits.for_status(status):
        return Diagnosis.HUNG  # 5
    if status.code_wanted and status.code_running and status.code_wanted != status.code_running:
        return Diagnosis.CHANGED  # 6
    return None


def diagnose_inactivity(
    status: ApplicationStatus, limits: InactivityLimits, now: datetime, input_since: datetime | None
) -> Diagnosis | None:
    """What is wrong with a silent application, given the time of its oldest unprocessed input.

    1. NO_INPUT: no input is known, so a restart would not help.
    2. None: the input is recent, so the application may still be processing it.
    3. HUNG: the input is older than the limit.
    """
    if input_since is None:
        return Diagnosis.NO_INPUT  # 1
    return Diagnosis.HUNG if now - input_since > limits.for_status(status) else None  # 2, 3


def load_status(connection: Connection, application: str) -> ApplicationStatus:
    """The current status of an application. An undeclared application counts as wanted but not running."""
    row = connection.execute(SELECT_STATUS, (application,)).fetchone()
    return ApplicationStatus(*row) if row else ApplicationStatus(application)


def unknown_running(connection: Connection, known: Iterable[str]) -> list[str]:
    """The running applications that are not in `known`."""
    rows = connection.execute(
        "SELECT application FROM truelog.application_status WHERE alive AND application <> ALL(%s)", (list(known),)
    ).fetchall()
    return [name for (name,) in rows]


def declare(connection: Connection, applications: Iterable[str]) -> None:
    """Insert a row for each application that has none."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.application (application) VALUES (%s) ON CONFLICT DO NOTHING",
            [(each,) for each in applications],
        )


def set_desired(connection: Connection, application: str, desired: str, doer: str) -> None:
    """Set the desired state of an application: running or stopped."""
    connection.execute(
        "INSERT INTO truelog.application (application, desired) VALUES (%s, %s) "
        "ON CONFLICT (application) DO UPDATE SET desired = excluded.desired",
        (application, desired),
    )
    audit_trail.record_operation(
        connection, OperationKind.STOP if desired == STOPPED else OperationKind.START, application, doer
    )


def request_restart(connection: Connection, application: str, doer: str) -> None:
    """Request one restart of an application. The task that supervises the application performs the restart."""
    connection.execute(
        "INSERT INTO truelog.application (application, wish) VALUES (%s, %s || ', ' || now()) "
        "ON CONFLICT (application) DO UPDATE SET wish = excluded.wish",
        (application, doer),
    )
    audit_trail.record_operation(connection, OperationKind.RESTART, application, doer)


def set_code(
    connection: Connection, application: str, code: str, source_digest: str, *, changed: Collection[str] | None = None
) -> None:
    """Set the code that an application should run, and the digest of its source files. New code is a release.

    `changed` names the views whose files have changed. It is None if the application has no views.
    """
    before = load_status(connection, application).code_wanted
    if before not in (None, code):
        named = f"changed: {', '.join(sorted(changed))}" if changed else "no view's file has changed"
        about = f"{before} became {code}" if changed is None else f"{before} became {code}; {named}"
        audit_trail.record_operation(connection, OperationKind.RELEASE, application, audit_trail.AIRFLOW, about)
    connection.execute(
        "INSERT INTO truelog.application (application, code, digest) VALUES (%s, %s, %s) "
        "ON CONFLICT (application) DO UPDATE SET code = excluded.code, digest = excluded.digest",
        (application, code, source_digest),
    )


def release_due(connection: Connection, settings: Settings) -> bool:
    """True if the source files have changed since an application's wanted code was set."""
    rows = connection.execute(
        "SELECT FROM truelog.application WHERE application = ANY(%s) AND digest <> %s",
        (application_names(settings), source_digest(settings)),
    )
    return rows.fetchone() is not None


def is_released(connection: Connection, settings: Settings, application: str, code: str) -> bool:
    """Whether a release has found that the application should run this code, from the source files as they are now."""
    query = "SELECT FROM truelog.application WHERE (application, code, digest) = (%s, %s, %s)"
    return connection.execute(query, (application, code, source_digest(settings))).fetchone() is not None


def source_digest(settings: Settings, library: str | None = None) -> str:
    """A digest of the applications' source files and view assignments. It may change without a code change.

    A running process passes the digest of the library that it started with, so that a new library remains a release.
    """
    return hash_lines([library or library_digest(), declarations_digest(settings)])


def library_digest() -> str:
    """A digest of the files that a process reads only when it starts."""
    return _digest([file for pattern in _LIBRARY for file in PROJECT.glob(pattern)])


def declarations_digest(settings: Settings) -> str:
    """A digest of the views and the view assignments, which an application reads again on a change."""
    files = [settings.views_folder / f"{name}.py" for name in catalogue.view_names(settings.views_folder)]
    assignments = [f"{view} in {name}" for view, name in sorted(settings.applications.items())]
    return hash_lines([_digest(files), *assignments])


def _digest(files: Iterable[Path]) -> str:
    return hash_lines(f"{file.name} {declaration_files.digest(file)}" for file in sorted(files))


def hash_lines(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
