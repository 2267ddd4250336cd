"""The object store: its bucket, the rights of the keys, conditional writes, and the clock."""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from truelog.doctor import transport
from truelog.doctor.clocks import clock
from truelog.doctor.result import Area, Result, has_failed
from truelog.storage.bucket import s3_client
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_BRIEF = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 2})
_TOLERATED = timedelta(seconds=30)  # S3 refuses signatures that are 15 minutes old
_CONDITION_FAILED, _NOT_IMPLEMENTED = (409, 412), (400, 501)
_PROBES = "doctor/"  # the prefix of the objects that the doctor writes and deletes


def _checks(area: Area, settings: Settings) -> Iterator[Result]:
    yield from (reached := list(_transport(area, settings)))
    if has_failed(reached) and settings.s3_is_encrypted:
        return
    client, bucket = s3_client(settings, _BRIEF), settings.s3_bucket
    before = datetime.now(UTC)
    headers = client.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    after = datetime.now(UTC)
    if said := headers.get("date"):
        yield clock(area, parsedate_to_datetime(said), before - timedelta(seconds=1), after, _TOLERATED)
    key = f"{_PROBES}{uuid.uuid4().hex}"
    try:
        client.put_object(Bucket=bucket, Key=key, Body=b"written")
    except ClientError as error:
        yield area.failed("rights", f"the keys cannot write: {error}", "Give them the right to write objects.")
        return
    yield _reads(area, client, bucket, key)
    yield _conditions(area, client, bucket, key)
    yield _deletes(area, client, bucket, key)


def _transport(area: Area, settings: Settings) -> Iterator[Result]:
    address = urlsplit(settings.s3_endpoint)
    host = address.hostname or ""
    if settings.s3_is_encrypted:
        server = transport.Server(host, address.port or 443, settings.s3_trust, "TRUELOG_S3_CA_FILE")
        yield from transport.tls(area, server)
    else:
        yield transport.plain(area, host, "Give TRUELOG_S3_ENDPOINT an address that begins with https://.")


def _reads(area: Area, client: "S3Client", bucket: str, key: str) -> Result:
    try:
        read = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as error:
        return area.failed("rights", f"the keys cannot read: {error}", "Give them the right to read objects.")
    if read == b"written":
        return area.fine("rights", f"the keys read and write {bucket}")
    return area.failed("rights", "an object is not what was just written", "Use a store that reads its own writes.")


def _deletes(area: Area, client: "S3Client", bucket: str, key: str) -> Result:
    try:
        client.delete_object(Bucket=bucket, Key=key)
    except ClientError as error:
        return area.failed("deletion", f"{key} stays: {error}", "Give the keys the right to delete objects.")
    return area.fine("deletion", "the keys delete what they wrote")


def _conditions(area: Area, client: "S3Client", bucket: str, key: str) -> Result:
    """A process of the archive that was suspended must not overwrite what its successor has written."""
    writes = {
        "If-None-Match": partial(client.put_object, IfNoneMatch="*"),
        "If-Match": partial(client.put_object, IfMatch='"another"'),
    }
    ignored = [name for name, write in writes.items() if not _refuses(partial(write, Bucket=bucket, Key=key))]
    if not ignored:
        return area.fine("conditional writes", "they are honoured")
    cure = (
        "Use a store with conditional writes, as S3 has. Otherwise, a late process can overwrite the catalog's pointer."
    )
    return area.failed("conditional writes", f"{' and '.join(ignored)} is ignored", cure)


def _refuses(write: Callable[..., object]) -> bool:
    """Whether the store refuses a write because its condition does not hold, and not because it knows no conditions."""
    try:
        write(Body=b"again")
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status not in (*_CONDITION_FAILED, *_NOT_IMPLEMENTED):
            raise
        return status in _CONDITION_FAILED
    return False


OBJECT_STORE = Area(
    "object store",
    _checks,
    (BotoCoreError, ClientError, OSError),
    "Start it, create the bucket (`truelog up`), and check TRUELOG_S3_ENDPOINT, _BUCKET and the keys.",
)
