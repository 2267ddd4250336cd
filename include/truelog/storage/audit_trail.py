"""The audit trail: each operation with its target and its user. The code that performs an operation records it."""

import getpass
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from truelog.storage.database import Connection

AIRFLOW = "airflow"  # the user recorded for operations that a DAG starts on its own


class OperationKind(StrEnum):
    """The kinds of operations."""

    RESTART = "restart"  # on request
    STOP = "stop"
    START = "start"
    LAUNCH = "launch"  # every start of an application, for any reason
    RELEASE = "release"
    COMPARE = "compare"  # a user asked for a comparison of a view
    VERIFY = "verify"  # of a certificate, which is the subject
    VALIDATE = "validate"  # a user asked for a validation of a log day; the subject is the event type
    REPAIR = "repair"
    BACKFILL = "backfill"
    REJUDGE = "rejudge"  # a topic's history is judged by the newest version of its event type
    ACKNOWLEDGE = "acknowledge"  # an alert was acknowledged
    SILENCE = "silence"  # alerts were silenced
    UNSILENCE = "unsilence"  # a silence was ended before it expired
    REPLAY = "replay"  # dead letters were sent again
    RESYNC = "resync"  # an output began again with its whole table
    RESEND = "resend"  # rows of an output were published again
    FORGET = "forget"  # a person was erased; the subject is the id of the erasure
    KEY_ADD = "key_add"
    KEY_REVOKE = "key_revoke"
    EXPORT = "export"  # a user saved rows of a view
    READ = "read"  # a user looked at a record in the archive
    EXPLAIN = "explain"  # a user looked at the archived events behind a row
    CUT_OVER = "cut_over"  # readers moved to another version of a view, or back
    SHARE = "share"  # a share of the API's readers moved to a version of a view, or back
    DROP = "drop"  # a version of a view was dropped
    CLOCK = "clock"  # a jump of the clock was confirmed


@dataclass(frozen=True)
class Operation:
    """An operation. `about` contains its reason or its result."""

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


def latest_operations(
    connection: Connection, limit: int, kind: str | None = None, subject: str = "", span: timedelta | None = None
) -> list[Operation]:
    """The latest operations, newest first: of one kind, with a text in their target, and of the last `span`."""
    rows = connection.execute(
        "SELECT id, at, kind, subject, doer, about FROM truelog.operation "
        "WHERE (%(kind)s::text IS NULL OR kind = %(kind)s) AND strpos(lower(subject), lower(%(subject)s)) > 0 "
        "AND (%(span)s::interval IS NULL OR at > now() - %(span)s::interval) ORDER BY id DESC LIMIT %(limit)s",
        {"kind": kind, "subject": subject, "span": span, "limit": limit},
    ).fetchall()
    return [Operation(*row) for row in rows]


def by_hand() -> str:
    """The user who runs a command on the command line."""
    return f"{getpass.getuser()} (command line)"
