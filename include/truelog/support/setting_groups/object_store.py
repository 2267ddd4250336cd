"""How clients of the object store connect: PyIceberg, boto3, and Iceberg in Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from truelog.support.setting_groups.certificates import named
from truelog.support.setting_groups.given import require_given

CA_FILE = "truelog.s3.ca-file"
_FILE_IO = "truelog.storage.bucket_file_io.BucketFileIO"  # PyIceberg imports it where it opens files


class ObjectStoreSettings(BaseSettings):
    """Where the object store is, and its keys. `truelog.support.settings` says where values come from."""

    s3_endpoint: str
    s3_region: str = "us-east-1"
    s3_bucket: str = "truelog"
    s3_access_key: str = ""  # processes that do not use the bucket need none
    s3_secret_key: SecretStr = SecretStr("")
    # Keys that may only read, for the API's Iceberg catalog. Without them, it uses the keys above if it has them.
    s3_reader_access_key: str = ""
    s3_reader_secret_key: SecretStr = SecretStr("")
    s3_ca_file: Path | None = None  # a PEM file with the store's CA; what each client trusts by default

    @property
    def warehouse(self) -> str:
        return f"s3://{self.s3_bucket}/warehouse"

    @property
    def s3_is_encrypted(self) -> bool:
        return urlsplit(self.s3_endpoint).scheme == "https"

    @property
    def s3_trust(self) -> str | None:
        """The file of the CA that clients trust; None without TLS, or if each client trusts what it does by default."""
        return named(self.s3_ca_file, "TRUELOG_S3_CA_FILE") if self.s3_is_encrypted else None

    def only_reading(self) -> Self:
        """The settings of a process that only reads the bucket: with the keys that may only read, if there are any."""
        if not (self.s3_reader_access_key and self.s3_reader_secret_key):
            return self
        keys = {"s3_access_key": self.s3_reader_access_key, "s3_secret_key": self.s3_reader_secret_key}
        return self.model_copy(update=keys)

    def object_store(self) -> dict[str, str]:
        """PyIceberg properties for access to the bucket alone. Spark ships them to tasks.

        Raises:
            NotSetUp: the settings have no key. An empty one must be given.
        """
        trust = self.s3_trust
        return {
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.s3_region,
            **self._keys(),
            **({"py-io-impl": _FILE_IO, CA_FILE: trust} if trust else {}),
        }

    def open_object_store(self) -> dict[str, str]:
        """Where the bucket is, without its keys, for engines with PyIceberg or with Iceberg's Java library."""
        return {
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.s3_region,
            "client.region": self.s3_region,
            "s3.path-style-access": "true",
        }

    def spark_object_store(self) -> dict[str, str]:
        """Properties of Iceberg's Java library. Java takes the certificates from `truelog.spark.trust_store`."""
        return {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.s3_endpoint,
            "s3.path-style-access": "true",
            **self._keys(),
            "client.region": self.s3_region,
        }

    def _keys(self) -> dict[str, str]:
        for each in ("s3_access_key", "s3_secret_key"):
            require_given(self, each)
        return {
            "s3.access-key-id": self.s3_access_key,
            "s3.secret-access-key": self.s3_secret_key.get_secret_value(),
        }


def boto_arguments(store: Mapping[str, str]) -> dict[str, Any]:
    """Arguments for `boto3.client` from PyIceberg properties."""
    return {
        "endpoint_url": store["s3.endpoint"],
        "region_name": store["s3.region"],
        "aws_access_key_id": store["s3.access-key-id"],
        "aws_secret_access_key": store["s3.secret-access-key"],
        "verify": store.get(CA_FILE),
    }


def arrow_arguments(store: Mapping[str, str]) -> dict[str, Any]:
    """Arguments for `pyarrow.fs.S3FileSystem` from PyIceberg properties."""
    return {
        "endpoint_override": store["s3.endpoint"],
        "region": store["s3.region"],
        "access_key": store["s3.access-key-id"],
        "secret_key": store["s3.secret-access-key"],
        "tls_ca_file_path": store[CA_FILE],
    }
