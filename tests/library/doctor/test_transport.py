"""The doctor connects with TLS to each store as the clients do, and says what is wrong before they time out.

A server of the test puts TLS in front of the stores.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from adbc_driver_postgresql import dbapi as adbc
from confluent_kafka import KafkaException

from tests.beds.authority import Authority
from tests.beds.tls_front import tls_front
from tests.deadline import deadline
from truelog.archive.table import open_catalog
from truelog.doctor.areas import AREAS
from truelog.doctor.result import Outcome, Result
from truelog.log.admin_client import Client, reason
from truelog.storage.bucket import s3_client
from truelog.storage.database import connect
from truelog.support.settings import KafkaUser, Settings

STORES = {"postgresql", "object store", "kafka"}


def fronted(settings: Settings, authority: Authority, running: ExitStack, lasts: timedelta) -> Settings:
    """The settings with which clients reach the stores with TLS."""
    context = authority.identity(lasts=lasts).context()
    ports = (settings.database_port, urlsplit(settings.s3_endpoint).port, settings.kafka_servers[0][1])
    database, s3, kafka = (
        running.enter_context(tls_front(port or 0, context, of_postgresql=port == settings.database_port))
        for port in ports
    )
    changes = {
        "database_port": database,
        "database_sslmode": "verify-full",
        "s3_endpoint": f"https://127.0.0.1:{s3}",
        "kafka_bootstrap": f"127.0.0.1:{kafka}",
        "kafka_protocol": "SASL_SSL",
        **{f"{store}_ca_file": authority.file for store in ("database", "s3", "kafka")},
    }
    return settings.model_copy(update=changes)


@pytest.fixture(scope="module")
def secure(platform: Settings, authority: Authority) -> Iterator[Settings]:
    with ExitStack() as running:
        yield fronted(platform, authority, running, timedelta(days=90))


def examined(settings: Settings, count: int = 1) -> dict[str, list[Result]]:
    """The first results of each store, which are about the transport."""
    return {area.name: list(islice(area.examine(settings), count)) for area in AREAS if area.name in STORES}


def test_encrypted_connections_are_fine_and_the_end_of_the_certificate_is_named(secure: Settings) -> None:
    for encryption, certificate in examined(secure, 2).values():
        assert (encryption.check, certificate.check) == ("encryption", "certificate")
        assert (encryption.outcome, certificate.outcome) == (Outcome.FINE, Outcome.FINE)
        assert encryption.found.startswith("TLSv1.3 to 127.0.0.1:")
        assert encryption.found.endswith(f"verified with {secure.kafka_ca_file}")
        assert certificate.found.endswith("in 89 days")


def test_the_clients_connect_with_tls(secure: Settings) -> None:
    """Kafka itself names an address without TLS, so its clients get no further than the first answer."""
    with connect(secure) as connection:
        assert connection.pgconn.ssl_in_use
    with adbc.connect(secure.staging_uri()) as staging, staging.cursor() as cursor:
        cursor.execute("SELECT 1")
    with open_catalog(secure) as catalog:
        catalog.list_namespaces()
    s3_client(secure).head_bucket(Bucket=secure.s3_bucket)
    assert Client(secure, KafkaUser.READER).list_topics(timeout=deadline(10)).brokers


def test_the_files_of_the_archive_use_tls(secure: Settings) -> None:
    from pyiceberg.io import load_file_io

    files, address = load_file_io(secure.iceberg()), f"s3://{secure.s3_bucket}/tls"
    with files.new_output(address).create(overwrite=True) as written:
        written.write(b"encrypted")
    with files.new_input(address).open() as read:
        assert read.read() == b"encrypted"
    files.delete(address)
    stranger = secure.model_copy(update={"s3_ca_file": None})
    with pytest.raises(OSError, match=r"(?i)certificate|ssl"):
        load_file_io(stranger.iceberg()).new_input(address).exists()


def test_another_ca_is_refused_with_the_cure(secure: Settings, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another-ca").file
    changes = {f"{store}_ca_file": other for store in ("database", "s3", "kafka")}
    stranger = secure.model_copy(update=changes)
    found = examined(stranger, 2)
    for store, setting in (("postgresql", "DATABASE"), ("object store", "S3"), ("kafka", "KAFKA")):
        [refused] = found[store]  # and nothing waits for the same answer again
        assert (refused.outcome, "certificate" in refused.found) == (Outcome.FAILED, True)
        assert f"TRUELOG_{setting}_CA_FILE. Clients trust {other} now." in refused.cure
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        connect(stranger)
    broker = Client(stranger, KafkaUser.READER)
    with pytest.raises(KafkaException) as failed:
        broker.list_topics(timeout=deadline(2))
    assert "TRUELOG_KAFKA_CA_FILE" in reason(broker, failed.value.args[0])


def test_without_a_ca_the_clients_decide_because_they_may_know_others(secure: Settings) -> None:
    found = examined(secure.model_copy(update={"kafka_ca_file": None, "s3_ca_file": None}))
    for [refused] in (found["kafka"], found["object store"]):
        assert (refused.outcome, "certificate" in refused.found) == (Outcome.WARNING, True)
        assert "the certificates that they know by default" in refused.cure


def test_another_name_is_refused_with_the_cure(platform: Settings, authority: Authority) -> None:
    context = authority.identity(["db.example"]).context()
    with tls_front(platform.database_port, context, of_postgresql=True) as port:
        given = {"database_port": port, "database_ca_file": authority.file}
        found = {
            mode: examined(platform.model_copy(update={**given, "database_sslmode": mode}))["postgresql"][0]
            for mode in ("verify-full", "verify-ca", "require")
        }
    assert [each.outcome for each in found.values()] == [Outcome.FAILED, Outcome.WARNING, Outcome.WARNING]
    assert "127.0.0.1" in found["verify-full"].found
    assert found["verify-full"].cure.startswith("Use a name that the certificate contains")
    assert "except for its name" in found["verify-ca"].found
    assert "any server could claim" in found["require"].found


def test_a_port_without_tls_is_refused_with_the_cure(platform: Settings, secure: Settings) -> None:
    changes = {
        "database_port": platform.database_port,
        "kafka_bootstrap": platform.kafka_bootstrap,
        "s3_endpoint": platform.s3_endpoint.replace("http:", "https:"),
    }
    for [refused] in examined(secure.model_copy(update=changes), 2).values():
        assert refused.outcome is Outcome.FAILED
        assert refused.found.startswith("no TLS connection to 127.0.0.1:")
        assert "expects TLS" in refused.cure


def test_a_certificate_that_ends_soon_is_a_warning(platform: Settings, authority: Authority) -> None:
    with ExitStack() as running:
        settings = fronted(platform, authority, running, timedelta(days=5))
        for _, certificate in examined(settings, 2).values():
            assert (certificate.outcome, certificate.cure.startswith("Renew it")) == (Outcome.WARNING, True)
