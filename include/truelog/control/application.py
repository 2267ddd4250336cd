"""Applications: the long-running processes that there are, what each should do, and whether it does it.

`archive` keeps the log for ever; each stream application keeps its views. Truelog wants each of them to be in a
desired state; `verdict` says what is wrong with the one that is not, from nothing but its row and the time.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from psycopg import sql

from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import PROJECT, Settings
from truelog.views import catalogue

ARCHIVE, STREAM = "archive", "stream"
RUNNING, STOPPED = "running", "stopped"

# What a running application was made from: when one of these files changes, its code may have changed.
_SOURCES = ("include/events/*.py", "include/truelog/**/*.py", "requirements.txt")


class Diagnosis(StrEnum):
    """What is wrong with an application."""

    STOP = "stop"
    RESTART_PENDING = "restart_pending"
    DOWN = "down"
    HUNG = "hung"
    NO_INPUT = "no_input"
    CHANGED = "changed"


# Values of `truelog.launch.reason` after which an application had failed; releases before 0.2 wrote "dead" for DOWN.
DEATH_REASONS = (Diagnosis.DOWN.value, Diagnosis.HUNG.value, "dead")


@dataclass(frozen=True)
class Status:
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


@dataclass(frozen=True)
class SilenceLimits:
    """How long an application may be silent: before its first batch, and between two batches."""

    start: timedelta
    silence: timedelta

    def for_status(self, status: "Status") -> timedelta:
        """How long it may be silent as it is now."""
        return self.start if status.batch_at is None else self.silence


_COLUMNS = sql.SQL(", ").join(sql.Identifier(each.name) for each in fields(Status))
SELECT_STATUS = sql.SQL("SELECT {} FROM truelog.application_status WHERE application = %s").format(_COLUMNS)


def application_names(settings: Settings) -> list[str]:
    """The archive, and every stream application that a view is given to."""
    if ARCHIVE in settings.applications.values():
        raise NotSetUp(f"TRUELOG_APPLICATIONS gives a view to {ARCHIVE!r}, which keeps the log: choose another name")
    return [ARCHIVE, *sorted({STREAM, *settings.applications.values()})]


def application_of(settings: Settings, view: str) -> str:
    """The application that runs the view."""
    return settings.applications.get(view, STREAM)


def views_of(settings: Settings, application: str) -> list[str]:
    """The views that the application runs."""
    return [
        view for view in catalogue.view_names(settings.views_folder) if application_of(settings, view) == application
    ]


def silence_limits(settings: Settings, application: str) -> SilenceLimits:
    """A stream's batches follow each other as ticks do, the archive's as its trigger says."""
    trigger = settings.archive_trigger_seconds if application == ARCHIVE else settings.tick_seconds
    silence = timedelta(seconds=settings.silence_seconds + trigger)
    return SilenceLimits(timedelta(seconds=settings.start_seconds), silence)


def diagnose_status(status: Status, allowed: SilenceLimits, now: datetime) -> Diagnosis | None:
    """What is wrong, or None; the first rule that holds decides.

    1. STOP: it runs, though it should not.
    2. Nothing is wrong with one that should not run and does not.
    3. DOWN: nobody holds its lock. PostgreSQL frees the lock when the process dies, so this needs no time-out.
    4. RESTART_PENDING: somebody wishes it to be started anew.
    5. HUNG: it made no batch yet, long after it started; or the last one is too long ago. `silence` looks closer.
    6. CHANGED: it runs other code than the wanted one. Where either is not known, nothing is wrong.
    """
    if status.desired == STOPPED:
        return Diagnosis.STOP if status.alive else None  # 1, 2
    if not status.alive or status.taken_at is None:
        return Diagnosis.DOWN  # 3
    if status.wish:
        return Diagnosis.RESTART_PENDING  # 4
    if now - (status.batch_at or status.taken_at) > allowed.for_status(status):
        return Diagnosis.HUNG  # 5
    if status.code_wanted and status.code_running and status.code_wanted != status.code_running:
        return Diagnosis.CHANGED  # 6
    return None


def diagnose_silence(status: Status, allowed: SilenceLimits, now: datetime, woken: datetime | None) -> Diagnosis | None:
    """What is wrong with one that is silent, given since when it has had something to do.

    1. NO_INPUT: it has nothing to do that is known of, and starting it anew would mend nothing.
    2. Nothing is wrong with one that has had it for a moment: it has yet to answer.
    3. HUNG: it has had it for too long.
    """
    if woken is None:
        return Diagnosis.NO_INPUT  # 1
    return Diagnosis.HUNG if now - woken > allowed.for_status(status) else None  # 2, 3


def status(connection: Connection, application: str) -> Status:
    """As it is now; one that nobody has declared yet should run and does not."""
    row: tuple[Any, ...] | None = connection.execute(SELECT_STATUS, (application,)).fetchone()
    return Status(*row) if row else Status(application)


def unknown_running(connection: Connection, known: Iterable[str]) -> list[str]:
    """Applications that run and that no view is given to any more."""
    rows = connection.execute(
        "SELECT application FROM truelog.application_status WHERE alive AND application <> ALL(%s)", (list(known),)
    ).fetchall()
    return [str(name) for (name,) in rows]


def declare(connection: Connection, applications: Iterable[str]) -> None:
    """Have a row for each; what is there already is left as it is."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.application (application) VALUES (%s) ON CONFLICT DO NOTHING",
            [(each,) for each in applications],
        )


def set_desired(connection: Connection, application: str, desired: str, doer: str) -> None:
    """Have it running, or stopped, from now on."""
    connection.execute(
        "INSERT INTO truelog.application (application, desired) VALUES (%s, %s) "
        "ON CONFLICT (application) DO UPDATE SET desired = excluded.desired",
        (application, desired),
    )
    audit_trail.record_operation(
        connection, OperationKind.STOP if desired == STOPPED else OperationKind.START, application, doer
    )


def request_restart(connection: Connection, application: str, doer: str) -> None:
    """Have it started anew, once, by whoever keeps it."""
    connection.execute(
        "INSERT INTO truelog.application (application, wish) VALUES (%s, %s || ', ' || now()) "
        "ON CONFLICT (application) DO UPDATE SET wish = excluded.wish",
        (application, doer),
    )
    audit_trail.record_operation(connection, OperationKind.RESTART, application, doer)


def set_code(connection: Connection, application: str, code: str, found_from: str) -> None:
    """Have it run this code, found from the files with that digest; other code than before is a release."""
    before = status(connection, application).code_wanted
    if before not in (None, code):
        audit_trail.record_operation(
            connection, OperationKind.RELEASE, application, audit_trail.AIRFLOW, f"{before} became {code}"
        )
    connection.execute(
        "INSERT INTO truelog.application (application, code, digest) VALUES (%s, %s, %s) "
        "ON CONFLICT (application) DO UPDATE SET code = excluded.code, digest = excluded.digest",
        (application, code, found_from),
    )


def release_due(connection: Connection, settings: Settings) -> bool:
    """True where the files are no longer those that an application's wanted code was found from."""
    rows = connection.execute(
        "SELECT FROM truelog.application WHERE application = ANY(%s) AND digest <> %s",
        (application_names(settings), digest(settings)),
    )
    return rows.fetchone() is not None


def digest(settings: Settings) -> str:
    """Of the files that applications are made from, and of which view is whose: cheap, and too careful."""
    files = [file for pattern in _SOURCES for file in PROJECT.glob(pattern)]
    files += settings.views_folder.glob("*.py")
    parts = [f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in sorted(files)]
    return hash_lines([*parts, *(f"{view} in {name}" for view, name in sorted(settings.applications.items()))])


def hash_lines(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
