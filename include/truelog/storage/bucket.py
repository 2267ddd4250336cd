"""The objects in the bucket and their sizes, read with plain S3 requests and without a table format."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef


_PATHS = Config(s3={"addressing_style": "path"})  # so that no host name must resolve for each bucket


def s3_client(settings: Settings, config: Config | None = None) -> "S3Client":
    client: S3Client = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
        config=_PATHS.merge(config) if config else _PATHS,
    )
    return client


def client_of(properties: Mapping[str, str]) -> "S3Client":
    """The client for an Iceberg catalog's S3 properties; clients are shared, because making a client is slow."""
    names = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key")
    return _shared_client(*(properties[name] for name in names))


@cache
def _shared_client(endpoint: str, region: str, access_key: str, secret_key: str) -> "S3Client":
    client: S3Client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=_PATHS,
    )
    return client


def object_sizes(settings: Settings, location: str) -> Mapping[str, int]:
    """The size in bytes of every object below `location`, by full URI."""
    bucket, prefix = location.removeprefix("s3://").split("/", 1)
    return {f"s3://{bucket}/{each['Key']}": each["Size"] for each in list_objects(s3_client(settings), bucket, prefix)}


def list_objects(client: "S3Client", bucket: str, prefix: str) -> Iterator["ObjectTypeDef"]:
    """Every object whose key begins with `prefix`, fetched page by page."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", [])
