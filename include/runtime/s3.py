"""The object store: S3Proxy with a local folder. Any other S3 service can replace S3Proxy."""

from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from runtime.service import Service, is_embedded, private_folder
from truelog.spark.java import java
from truelog.storage import bucket
from truelog.support.errors import ServiceDown
from truelog.support.files import write_private
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3.literals import BucketLocationConstraintType

_FIRST_REGION = "us-east-1"
# Health checks use short timeouts and no retries.
_AT_ONCE = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})


def configure(settings: Settings) -> None:
    settings.jars("s3")
    home = private_folder(settings.home / "s3")
    objects = private_folder(home / "objects")
    properties = {
        "s3proxy.endpoint": settings.s3_endpoint,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": settings.s3_access_key,
        "s3proxy.credential": settings.s3_secret_key.get_secret_value(),
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": objects,
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    write_private(home / "s3proxy.properties", text)


def command(settings: Settings) -> list[str]:
    jars = str(settings.jars_home / "s3" / "*")
    properties = settings.home / "s3" / "s3proxy.properties"
    memory = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
    return [java(settings), *memory, "-cp", jars, "org.gaul.s3proxy.Main", "--properties", str(properties)]


def ready(settings: Settings) -> None:
    try:
        _has_bucket(settings)
    except (BotoCoreError, ClientError) as error:
        raise ServiceDown(str(error)) from error


def prepare(settings: Settings) -> None:
    """Create the bucket if it is missing. S3 needs the name of each region but its first, whose name it refuses."""
    if _has_bucket(settings):
        return
    client, region = bucket.s3_client(settings, _AT_ONCE), cast("BucketLocationConstraintType", settings.s3_region)
    if region in ("", _FIRST_REGION):
        client.create_bucket(Bucket=settings.s3_bucket)
    else:
        client.create_bucket(Bucket=settings.s3_bucket, CreateBucketConfiguration={"LocationConstraint": region})


def _has_bucket(settings: Settings) -> bool:
    """Whether the store has the bucket. Keys that may list no other buckets suffice."""
    try:
        bucket.s3_client(settings, _AT_ONCE).head_bucket(Bucket=settings.s3_bucket)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.NOT_FOUND:
            return False
        raise
    return True


def address(settings: Settings) -> str:
    return urlsplit(settings.s3_endpoint).netloc


SERVICE = Service(
    name="s3",
    configure=configure,
    command=command,
    ready=ready,
    prepare=prepare,
    address=address,
    ports=lambda settings: (urlsplit(settings.s3_endpoint).port or 80,),
    is_wanted=is_embedded,
)
