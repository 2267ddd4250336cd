"""Operations: what was done to the platform, to what, and by whom; written where it is done, and never changed."""

import getpass
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from truelog.storage.database import Connection

AIRFLOW = "airflow"  # the doer where a DAG did it by itself


class OperationKind(StrEnum):
    """What there is to do."""

    RESTART = "restart"  # asked for
    STOP = "stop"
    START = "start"
    LAUNCH = "launch"  # an application was started, whatever the reason
    RELEASE = "release"
    REPAIR = "repair"
    BACKFILL = "backfill"
    SILENCE = "silence"  # of alerts
    UNSILENCE = "unsilence"  # before its time


@dataclass(frozen=True)
class Operation:
    """One of them; `about` says why, or with what outcome."""

    id: int
    at: datetime
    kind: str
    subject: str
    doer: str
    about: str


def record_operation(connection: Connection, kind: OperationKind, subject: str, doer: str, about: str = "") -> None:
    connection.execute(
        "INSERT INTO truelog.operation (kind, subject, doer, about) VALUES (%s, %s, %s, %s)",
        (kind.value, subject, doer, about),
    )


def latest_operations(connection: Connection, limit: int, kind: str | None = None) -> list[Operation]:
    """The newest first; of one kind, or of all."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT id, at, kind, subject, doer, about FROM truelog.operation "
        "WHERE %s::text IS NULL OR kind = %s ORDER BY id DESC LIMIT %s",
        (kind, kind, limit),
    ).fetchall()
    return [Operation(*row) for row in rows]


def by_hand() -> str:
    """Who typed a command."""
    return f"{getpass.getuser()} (command line)"
