"""The results of verifications that users requested, by certificate."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from psycopg.rows import class_row

from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, storable

if TYPE_CHECKING:
    from truelog.reconcile.certificate_verifier import CertificateCheck


@dataclass(frozen=True)
class StoredCheck:
    """A row of `truelog.certificate_check`."""

    certificate: str
    answer: str
    reason: str
    run: str | None
    doer: str
    finished_at: datetime


def store_check(connection: Connection, check: "CertificateCheck", run: str | None, doer: str) -> None:
    """Store the result. The audit trail names who asked."""
    audit_trail.record_operation(connection, OperationKind.VERIFY, check.certificate, doer, check.answer.value)
    connection.execute(
        "INSERT INTO truelog.certificate_check (certificate, answer, row_count, unequal_buckets, reason, run, doer) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s)",
        (check.certificate, check.answer.value, check.rows, check.unequal_buckets, storable(check.reason), run, doer),
    )


def latest_checks(connection: Connection, certificates: Collection[str]) -> dict[str, StoredCheck]:
    """The last result for each of these certificates that was verified."""
    with connection.cursor(row_factory=class_row(StoredCheck)) as cursor:
        cursor.execute(
            "SELECT DISTINCT ON (certificate) certificate, answer, reason, run, doer, finished_at "
            "FROM truelog.certificate_check WHERE certificate = ANY(%s) ORDER BY certificate, id DESC",
            (list(certificates),),
        )
        return {each.certificate: each for each in cursor}
