"""The bucket itself, seen by plain S3 and by no table format: what lies in it, how large."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

from truelog.support.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectTypeDef


_PATHS = Config(s3={"addressing_style": "path"})  # a bucket need not be a host's name


def s3_client(settings: Settings, config: Config | None = None) -> "S3Client":
    made: S3Client = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
        config=_PATHS.merge(config) if config else _PATHS,
    )
    return made


def object_sizes(settings: Settings, location: str) -> Mapping[str, int]:
    """Size in bytes of every object below `location`, each by its whole address."""
    bucket, prefix = location.removeprefix("s3://").split("/", 1)
    return {f"s3://{bucket}/{each['Key']}": each["Size"] for each in list_objects(s3_client(settings), bucket, prefix)}


def list_objects(asked: "S3Client", bucket: str, prefix: str) -> Iterator["ObjectTypeDef"]:
    """Every object whose key begins so, page by page."""
    for page in asked.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", [])
