"""The certificate store. Each certificate is an object in the archive's bucket and has a row in PostgreSQL.

The row points to the object and answers queries about age. The bucket alone is enough to find a certificate.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from psycopg.rows import class_row

from truelog.reconcile import certificate
from truelog.reconcile.certificate import Certificate
from truelog.storage import bucket
from truelog.storage.database import Connection
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import Settings

FOLDER = "certificates"
LATEST = "latest:"
_LONGEST = 255  # bytes of a file's name


@dataclass(frozen=True)
class CertificateEntry:
    """A row of `truelog.certificate`."""

    id: str
    view: str
    version: int
    row_count: int
    made_at: datetime
    age_seconds: float
    object: str
    positions: dict[str, dict[str, int]]
    digest: str
    reconciliation: int


_COLUMNS = (
    "id, view, version, row_count, made_at, extract(epoch FROM now() - made_at)::float8 AS age_seconds, object, "
    "positions, digest, reconciliation"
)


def store(settings: Settings, connection: Connection, made: Certificate, reconciliation: int) -> None:
    """Store the object, then the row, so that every row points to an object."""
    bucket.s3_client(settings).put_object(
        Bucket=settings.s3_bucket, Key=_key(made.id), Body=made.as_bytes(), ContentType="application/json"
    )
    connection.execute(
        "INSERT INTO truelog.certificate "
        "(id, view, version, reconciliation, positions, fingerprint, row_count, digest, object, made_at) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            made.id,
            made.view,
            made.version,
            reconciliation,
            made.positions.as_json(),
            made.fingerprint,
            made.rows,
            made.digest,
            f"s3://{settings.s3_bucket}/{_key(made.id)}",
            made.made_at,
        ),
    )


def find_certificate(settings: Settings, name: str) -> Certificate:
    """Find a certificate by file, id, object key, address or `latest:VIEW`, without a database.

    Raises:
        BadInput: there is no such certificate, or the certificate was altered.
        ServiceDown: the bucket does not answer.
    """
    if not name.removeprefix(LATEST):
        raise BadInput(f"{name}: name a view, as in {LATEST}page_views.")
    if len(os.fsencode(name)) > _LONGEST:
        raise BadInput(f"{name[:50]}…: a name has at most {_LONGEST} bytes.")
    if Path(name).is_file():
        return certificate.read_certificate(Path(name).read_bytes())
    try:
        return certificate.read_certificate(_object(settings, name))
    except (BotoCoreError, ClientError) as failed:
        raise ServiceDown(f"the bucket did not answer: {failed}; see `truelog status`.") from failed


def newest_certificates(connection: Connection, view: str | None, limit: int) -> list[CertificateEntry]:
    """The latest certificates of one view or of all views, newest first."""
    with connection.cursor(row_factory=class_row(CertificateEntry)) as cursor:
        cursor.execute(
            f"SELECT {_COLUMNS} FROM truelog.certificate WHERE view = coalesce(%s, view) "  # noqa: S608  our columns
            "ORDER BY made_at DESC, id LIMIT %s",
            (view, limit),
        )
        return cursor.fetchall()


def newest_of_each_view(connection: Connection, views: Sequence[str]) -> list[CertificateEntry]:
    """The latest certificate of each of these views that has one, sorted by view."""
    with connection.cursor(row_factory=class_row(CertificateEntry)) as cursor:
        cursor.execute(
            f"SELECT c.* FROM unnest(%s::text[]) AS wanted (name) CROSS JOIN LATERAL ("  # noqa: S608  our columns
            f"SELECT {_COLUMNS} FROM truelog.certificate WHERE view = wanted.name ORDER BY made_at DESC, id LIMIT 1"
            ") c ORDER BY view",
            (list(views),),
        )
        return cursor.fetchall()


def certificate_address(connection: Connection, id_: str) -> str | None:
    """The address of a certificate's object, or None if there is no such certificate."""
    row = connection.execute("SELECT object FROM truelog.certificate WHERE id = %s", (id_,)).fetchone()
    return None if row is None else str(row[0])


def _object(settings: Settings, name: str) -> bytes:
    client = bucket.s3_client(settings)
    if name.startswith(LATEST):
        key = max(_keys(settings, name.removeprefix(LATEST)), default=None)
        if key is None:
            raise BadInput(
                f"{name}: the view has no certificate; the next `truelog reconcile` that is EQUAL makes one."
            )
    else:
        key = name.removeprefix(f"s3://{settings.s3_bucket}/")
        key = key if key.startswith(f"{FOLDER}/") else _key(name)
    try:
        return client.get_object(Bucket=settings.s3_bucket, Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        raise BadInput(f"{name}: no such certificate or file; see `truelog certificates`.") from None


def _keys(settings: Settings, view: str) -> Iterator[str]:
    address = f"s3://{settings.s3_bucket}/"
    return (each.removeprefix(address) for each in bucket.object_sizes(settings, f"{address}{FOLDER}/{view}/"))


def _key(id_: str) -> str:
    return f"{FOLDER}/{id_.partition('-')[0]}/{id_}.json"
