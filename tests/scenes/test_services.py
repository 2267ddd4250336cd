"""The embedded services: access, ports, secrets, and recovery from kills."""

import stat
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pydantic import SecretStr

import runtime
from tests.deadline import deadline, until
from tests.scenes.exposure import below, listening_addresses
from tests.scenes.restarts import pids, require_restarted
from truelog.storage import bucket
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

WRONG = SecretStr("0" * 48)


def states(settings: Settings) -> list[runtime.State]:
    """The states of the services that store data; the other services have scenes of their own."""
    return [state for state in runtime.status(settings) if state.name in ("postgresql", "kafka", "s3")]


def test_all_are_ready(platform: Settings) -> None:
    assert {state.name: state.state for state in states(platform)} == {
        "postgresql": "READY",
        "kafka": "READY",
        "s3": "READY",
    }


def test_postgresql_rejects_a_wrong_password(postgresql: Settings) -> None:
    wrong = postgresql.model_copy(update={"database_password": WRONG})
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(**wrong.database())


def test_kafka_rejects_a_wrong_password(kafka: Settings) -> None:
    wrong = kafka.model_copy(update={"kafka_password": WRONG})
    assert "Authentication failed" in _first_kafka_error(wrong.kafka())


def test_kafkas_controller_rejects_clients_credentials(kafka: Settings) -> None:
    address = f"127.0.0.1:{kafka.kafka_controller_port}"
    stranger = kafka.kafka() | {"bootstrap.servers": address, "sasl.mechanism": "PLAIN"}
    assert "Authentication failed" in _first_kafka_error(stranger)


@pytest.mark.parametrize("wrong", [{"s3_secret_key": WRONG}, {"s3_access_key": "unknown"}])
def test_s3_rejects_wrong_keys(s3: Settings, wrong: dict[str, object]) -> None:
    with pytest.raises(ClientError) as refused:
        bucket.s3_client(s3.model_copy(update=wrong)).list_buckets()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.parametrize(
    ("method", "refusals"),
    [*((method, {403}) for method in ("GET", "HEAD", "PUT", "DELETE")), ("POST", {400, 501})],  # not a form
)
def test_s3_refuses_unsigned_requests_to_every_bucket_and_object(s3: Settings, method: str, refusals: set[int]) -> None:
    store = bucket.s3_client(s3)
    store.put_object(Bucket=s3.s3_bucket, Key="folder/seen", Body=b"seen")
    buckets = [each["Name"] for each in store.list_buckets()["Buckets"]]
    assert s3.s3_bucket in buckets
    paths = ["/", *(f"/{each}{rest}" for each in buckets for rest in ("", "?list-type=2", "?acl", "/folder/seen"))]
    statuses = {path: unsigned(s3, method, path) for path in paths}
    assert set(statuses.values()) <= refusals, statuses
    assert store.get_object(Bucket=s3.s3_bucket, Key="folder/seen")["Body"].read() == b"seen"
    store.delete_object(Bucket=s3.s3_bucket, Key="folder/seen")


def unsigned(settings: Settings, method: str, path: str) -> int:
    """The status of a request without a signature."""
    connection = HTTPConnection(urlsplit(settings.s3_endpoint).netloc, timeout=deadline(10))
    try:
        connection.request(method, path, headers={"Host": "localhost"})
        return connection.getresponse().status
    finally:
        connection.close()


REFUSED = (
    "DELETE FROM views.seen",
    "LOCK TABLE views.seen IN SHARE MODE",
    "SELECT one FROM views.seen FOR UPDATE",
    "CREATE TABLE views.mine (x int)",
    "CREATE TABLE public.mine (x int)",
    "CREATE TEMP TABLE mine (x int)",
    "CREATE SCHEMA mine",
    "SELECT * FROM truelog.api_key",
    "SELECT lo_creat(-1)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT pg_advisory_lock(hashtextextended('stream', 0))",
    "SELECT pg_try_advisory_lock_shared(1, 2)",
    "SELECT pg_advisory_xact_lock(1)",
)


@pytest.mark.parametrize("role", ["analyst", "api"])
def test_readers_read_views_and_change_nothing(postgresql: Settings, role: str) -> None:
    with psycopg.connect(**postgresql.database(), autocommit=True) as owner:
        owner.execute("CREATE TABLE views.seen AS SELECT 1 AS one")
        owner.execute("CREATE VIEW views.shown AS SELECT truelog.quantile(ARRAY[1, 2], 0.5, 6) AS median")
    reader = {"user": role, "password": getattr(postgresql, f"{role}_password").get_secret_value()}
    with psycopg.connect(**postgresql.database() | reader, autocommit=True) as connection:
        assert connection.execute("SELECT one FROM views.seen").fetchall() == [(1,)]
        assert connection.execute("SELECT median FROM views.shown").fetchall() == [(1,)]
        connection.execute("SET default_transaction_read_only = off")
        for statement in REFUSED:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
    with psycopg.connect(**postgresql.database(), autocommit=True) as owner:
        owner.execute("DROP TABLE views.seen")
        owner.execute("DROP VIEW views.shown")


def test_the_analysts_connections_and_statements_are_limited(postgresql: Settings) -> None:
    analyst = {"user": "analyst", "password": postgresql.analyst_password.get_secret_value()}
    with ExitStack() as opened:
        for _ in range(10):
            connection = opened.enter_context(psycopg.connect(**postgresql.database() | analyst))
        assert connection.execute("SHOW statement_timeout").fetchone() == ("5min",)
        assert connection.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("1min",)
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(**postgresql.database() | analyst)


@pytest.mark.parametrize("role", ["analyst", "api", "stager", "catalog"])
@pytest.mark.parametrize("database", ["postgres", "template1", "airflow"])
def test_limited_roles_enter_no_other_database(postgresql: Settings, role: str, database: str) -> None:
    password = getattr(postgresql, f"{role}_password").get_secret_value()
    with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
        psycopg.connect(**postgresql.database() | {"user": role, "password": password, "dbname": database})


def test_no_statement_that_postgresql_keeps_contains_a_password(postgresql: Settings) -> None:
    admin = {"user": "postgres", "password": postgresql.postgres_password.get_secret_value()}
    with psycopg.connect(**postgresql.database() | admin) as connection:
        kept = connection.execute("SELECT query FROM pg_stat_statements").fetchall()
        assert len(kept) > 10
        assert [text for (text,) in kept if any(secret in text for secret in _secrets(postgresql))] == []
        assert [text for (text,) in kept if "SCRAM-SHA-256" in text] == []


def test_text_is_ordered_by_code_point_and_times_are_utc(postgresql: Settings) -> None:
    with psycopg.connect(**postgresql.database()) as connection:
        ordered = connection.execute("SELECT x FROM unnest(ARRAY['a', 'B', 'é', 'z']) x ORDER BY x").fetchall()
        assert ordered == [("B",), ("a",), ("z",), ("é",)]
        query = "SELECT lower('É'), current_setting('timezone'), current_setting('data_checksums')"
        assert connection.execute(query).fetchone() == ("é", "UTC", "on")


def test_every_port_is_on_loopback(platform: Settings) -> None:
    addresses = [address for process in runtime.processes(platform) for address in listening_addresses(process)]
    assert len({port for _, port in addresses}) >= 4
    assert {address for address, _ in addresses} == {"127.0.0.1"}


def test_no_secret_is_in_a_command_line_or_a_log(platform: Settings) -> None:
    secrets = _secrets(platform)
    shown = [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or []]
    logs = {file.name: file.read_text(errors="replace") for file in (platform.home / "logs").iterdir()}
    assert {"postgresql.log", "kafka.log", "s3.log"} <= logs.keys()
    shown += logs.values()
    assert not [secret for secret in secrets for text in shown if secret in text]


def test_files_with_secrets_are_private(platform: Settings) -> None:
    """Only the owner can open the files, whatever the permissions of their folders."""
    secrets = [secret.encode() for secret in _secrets(platform)]
    holding = [file for file in below(platform.home) if _holds(file, secrets)]
    assert {file.name for file in holding} >= {"settings.env", "server.properties", "s3proxy.properties"}
    assert [file for file in holding if stat.S_IMODE(file.stat().st_mode) & 0o077] == []


def test_acknowledged_writes_survive_a_kill_of_every_service(platform: Settings) -> None:
    _write_everywhere(platform)
    before = pids(platform, *(state.name for state in states(platform)))
    for pid in before.values():
        psutil.Process(pid).kill()
    until(lambda: require_restarted(platform, before), 60, "the killed services")
    _require_everything_read(platform)


def _first_kafka_error(client: dict[str, Any]) -> str:
    """The first error that a client gets when it connects."""
    errors: list[str] = []
    config = client | {"error_cb": lambda error: errors.append(str(error)), "log_level": 0}
    admin = AdminClient(config)

    def failed() -> None:
        admin.poll(0.1)
        if not errors:
            raise ServiceDown("nothing yet")

    until(failed, 10, "Kafka's error")
    return errors[0]


def _secrets(settings: Settings) -> list[str]:
    values = [value for _, value in settings]
    return [value.get_secret_value() for value in values if isinstance(value, SecretStr) and value]


def _holds(file: Path, secrets: list[bytes]) -> bool:
    """Whether a file contains a secret. A file that a service has since removed contains none."""
    with suppress(FileNotFoundError):
        if file.is_file() and file.stat().st_size < 100_000:
            content = file.read_bytes()
            return any(secret in content for secret in secrets)
    return False


def _write_everywhere(settings: Settings) -> None:
    with psycopg.connect(**settings.database(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    bucket.s3_client(settings).put_object(Bucket=settings.s3_bucket, Key="kept", Body=b"kept")
    admin = AdminClient(settings.kafka())
    for made in admin.create_topics([NewTopic("kept", 1, 1)]).values():
        made.result()
    producer = Producer({**settings.kafka(), "acks": "all", "enable.idempotence": True})
    for n in range(1000):
        producer.produce("kept", str(n).encode())
    assert producer.flush(deadline(30)) == 0


def _require_everything_read(settings: Settings) -> None:
    with psycopg.connect(**settings.database(), autocommit=True) as connection:
        assert connection.execute("SELECT count(*), sum(n) FROM kept").fetchone() == (1000, 500500)
        connection.execute("DROP TABLE kept")
    body = bucket.s3_client(settings).get_object(Bucket=settings.s3_bucket, Key="kept")["Body"]
    assert body.read() == b"kept"
    assert _read_topic(settings, "kept") == [str(n).encode() for n in range(1000)]


def _read_topic(settings: Settings, topic: str) -> list[bytes | None]:
    consumer = Consumer({**settings.kafka(), "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(1001, timeout=deadline(10))
        return [message.value() for message in messages if message.error() is None]
    finally:
        consumer.close()
