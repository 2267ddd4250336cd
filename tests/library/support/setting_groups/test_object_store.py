"""All kinds of S3 clients connect alike: with TLS and the same CA, or without."""

from pathlib import Path

import pytest
from pyiceberg.io import load_file_io

from tests.library.support.setting_groups.conftest import Chosen
from truelog.spark import trust_store
from truelog.storage.bucket_file_io import BucketFileIO
from truelog.support.errors import NotSetUp
from truelog.support.setting_groups.object_store import arrow_arguments, boto_arguments


def test_without_tls_no_client_has_certificates(chosen: Chosen) -> None:
    settings = chosen(s3_ca_file="/nowhere")
    assert settings.object_store() == {
        "s3.endpoint": "http://s3.example",
        "s3.region": "us-east-1",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "of-s3",
    }
    assert boto_arguments(settings.object_store())["verify"] is None
    assert trust_store.java_options(settings) == []


def test_with_tls_each_client_trusts_the_same_ca(chosen: Chosen, ca: Path) -> None:
    settings = chosen(s3_endpoint="https://s3.example", s3_ca_file=ca)
    store = settings.object_store()
    assert boto_arguments(store)["verify"] == str(ca)
    assert arrow_arguments(store)["tls_ca_file_path"] == str(ca)
    assert isinstance(load_file_io(settings.iceberg()), BucketFileIO)
    assert store.items() <= settings.iceberg().items()


def test_without_a_ca_each_client_trusts_what_it_does_by_default(chosen: Chosen) -> None:
    settings, plain = chosen(s3_endpoint="https://s3.example"), chosen().object_store()
    store = settings.object_store()
    assert store == plain | {"s3.endpoint": "https://s3.example"}
    assert boto_arguments(store)["verify"] is None  # so that AWS_CA_BUNDLE counts
    assert not isinstance(load_file_io(settings.iceberg()), BucketFileIO)
    assert trust_store.java_options(settings) == []


def test_a_ca_without_tls_is_no_error_but_tls_without_its_ca_is(chosen: Chosen, tmp_path: Path) -> None:
    chosen(s3_ca_file=tmp_path / "absent.pem").object_store()
    with pytest.raises(NotSetUp, match=r"TRUELOG_S3_CA_FILE: .*absent.pem cannot be read: No such file"):
        chosen(s3_endpoint="https://s3.example", s3_ca_file=tmp_path / "absent.pem").object_store()
