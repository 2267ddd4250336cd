"""The objects in the bucket and their sizes, read with plain S3 requests and without a table format."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.object_store import CA_FILE, boto_arguments
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef


# The properties of a catalog that say how to reach the bucket.
_OF_STORE = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key", CA_FILE)
_AT_ONCE = 1_000  # objects that S3 deletes in one request
_PATHS = Config(s3={"addressing_style": "path"})  # so that no host name must resolve for each bucket


def s3_client(settings: Settings, config: Config | None = None) -> "S3Client":
    return _client(settings.object_store(), _PATHS.merge(config) if config else _PATHS)


def client_of(properties: Mapping[str, str]) -> "S3Client":
    """The client for an Iceberg catalog's S3 properties; clients are shared, because making a client is slow."""
    return _shared_client(tuple((name, value) for name, value in properties.items() if name in _OF_STORE))


@cache
def _shared_client(store: tuple[tuple[str, str], ...]) -> "S3Client":
    return _client(dict(store), _PATHS)


def _client(store: Mapping[str, str], config: Config) -> "S3Client":
    client: S3Client = boto3.client("s3", **boto_arguments(store), config=config)
    return client


def object_sizes(settings: Settings, location: str) -> Mapping[str, int]:
    """The size in bytes of every object below `location`, by full URI."""
    bucket, prefix = location.removeprefix("s3://").split("/", 1)
    return {f"s3://{bucket}/{each['Key']}": each["Size"] for each in list_objects(s3_client(settings), bucket, prefix)}


def list_objects(client: "S3Client", bucket: str, prefix: str) -> Iterator["ObjectTypeDef"]:
    """Every object whose key begins with `prefix`, fetched page by page."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", [])


def delete_objects(client: "S3Client", bucket: str, addresses: Sequence[str]) -> None:
    """Delete objects by their full URIs. S3 accepts the deletion of an object that does not exist.

    Raises:
        ServiceDown: S3 did not delete some of them.
    """
    for start in range(0, len(addresses), _AT_ONCE):
        keys = [each.removeprefix(f"s3://{bucket}/") for each in addresses[start : start + _AT_ONCE]]
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        if failed := answer.get("Errors"):
            raise ServiceDown(f"S3 did not delete {len(failed)} objects, the first because: {failed[0].get('Message')}")
