"""Processes that the internet reaches work with the secrets that the chart gives them, and these open nothing else.

Each process gets the environment of its pod (`runtime.chart`), and no home.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import httpx
import psycopg
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from psycopg import sql
from starlette.requests import Request

from runtime import chart
from runtime.postgresql import admin
from tests.deadline import deadline, until
from tests.library.services.api.shop_views import PAGES, count, deploy_views, limiting, reach
from truelog.commands.folding.states import count_in_use
from truelog.kafka.consumer import open_consumer
from truelog.limits.rate_limiter import DecisionReader
from truelog.log import range_reader, topics
from truelog.log.output_topic import create_topic
from truelog.log.positions import Range
from truelog.services import registry
from truelog.services.api.iceberg.catalog import ArchiveCatalog, PageParameters, SnapshotParameter
from truelog.services.api.iceberg.refusal import NotFound
from truelog.services.declaration import Service
from truelog.serving import view_readers
from truelog.storage import process_roles
from truelog.storage.database import connect
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import API_SERVICE_ROLE, COLLECTOR_ROLE, ENVIRONMENT_FILE, PROJECT, KafkaUser, Settings

SERVICES = {service.name: service for service in registry.SERVICES}
REACHED = ("collector", "api")  # from other networks
OF_OWNERS = {"kafka_password", "database_password", "postgres_password", "s3_access_key", "s3_secret_key"}
PAGE_VIEW = {
    "type": "page_view",
    "event_id": "e1",
    "occurred_at": "2026-11-21T10:00:00Z",
    "visitor_id": "v1",
    "url": "/a",
}
DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
GRACE = 30  # seconds, as Kubernetes gives a pod
_RIGHTS = """
    SELECT n.nspname || '.' || c.relname, x.privilege_type, NULL FROM pg_class c
    JOIN pg_namespace n ON n.oid = relnamespace CROSS JOIN LATERAL aclexplode(relacl) x
    JOIN pg_roles r ON r.oid = x.grantee WHERE rolname = %(role)s
    UNION ALL SELECT n.nspname || '.' || c.relname, x.privilege_type, attname FROM pg_attribute a
    JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    CROSS JOIN LATERAL aclexplode(attacl) x JOIN pg_roles r ON r.oid = x.grantee WHERE rolname = %(role)s
"""


def written(settings: Settings) -> dict[str, str]:
    """All settings of the test's home."""
    lines = (settings.home / ENVIRONMENT_FILE).read_text().splitlines()
    return {"TRUELOG_DATABASE_HOST": settings.database_host, **dict(line.split("=", 1) for line in lines)}


def environment(settings: Settings, service: Service) -> dict[str, str]:
    """What the chart puts into the environment of the service: the plain settings, and the secrets of its pod."""
    named = [*chart.plain_settings(), *chart.secrets_of_services()[service.name]]
    variables, allowed = written(settings), {chart.variable(name) for name in named}
    places = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "include"), "TRUELOG_HOME": "/nowhere"}
    port = f"TRUELOG_{service.name.upper()}_PORT"
    places |= {port: variables[port]} if service.http else {}
    return places | {"TRUELOG_STORES": "own"} | {name: each for name, each in variables.items() if name in allowed}


@contextmanager
def running(settings: Settings, name: str, log: Path) -> Iterator[str]:
    """The process of a service, which is ready, and its address."""
    service = SERVICES[name]
    variables = environment(settings, service)
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", service.module], env=variables, stdout=output, stderr=output)
    address = f"http://127.0.0.1:{variables.get(f'TRUELOG_{name.upper()}_PORT')}"
    try:
        if service.http:
            until(partial(_require_ready, process, address, log), 60, name)
        yield address
        process.terminate()
        assert process.wait(deadline(GRACE)) in (0, -signal.SIGTERM), log.read_text()
    finally:
        process.kill()
        process.wait()


def _require_ready(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    assert process.poll() is None, log.read_text()
    try:
        urlopen(f"{address}/health", timeout=deadline(5)).close()
    except (OSError, HTTPException) as error:
        raise ServiceDown(str(error)) from error


@pytest.fixture
def loaded(platform: Settings, monkeypatch: pytest.MonkeyPatch) -> "Any":
    """The settings with which the process of a service connects."""

    def load(name: str) -> Settings:
        for variable in [each for each in os.environ if each.startswith("TRUELOG_")]:
            monkeypatch.delenv(variable)
        for variable, value in environment(platform, SERVICES[name]).items():
            monkeypatch.setenv(variable, value)
        return SERVICES[name].settings()

    return load


@pytest.mark.parametrize("name", REACHED)
def test_a_process_that_is_reached_gets_no_secret_of_an_owner(name: str) -> None:
    assert OF_OWNERS.intersection(chart.secrets_of_services()[name]) == set()


def test_the_collector_stores_an_event_and_decides_a_command(platform: Settings, tmp_path: Path) -> None:
    key = {"Authorization": f"Bearer {platform.producer_key.get_secret_value()}"}
    with (
        running(platform, "commands", tmp_path / "commands.log"),
        running(platform, "collector", log := tmp_path / "collector.log") as address,
    ):
        answer = httpx.post(f"{address}/events", json=PAGE_VIEW, headers=key, timeout=deadline(15))
        assert answer.status_code == 200, answer.text
        [stored] = answer.json()["good"]

        def claimed() -> None:
            about = {"username": "ann", "person_id": "p1"}
            decided = httpx.post(f"{address}/commands/claim_username", json=about, headers=key, timeout=deadline(15))
            if decided.status_code not in (200, 202):
                raise ServiceDown(f"{decided.text} {log.read_text()}")
            told = httpx.get(f"{address}/commands/receipts/{decided.json()['receipt']}", headers=key)
            assert told.status_code == 200, told.text

        until(claimed, 60, "the states of commands")
    place = Range(stored["topic"], stored["partition"], stored["offset"], stored["offset"] + 1)
    [records] = range_reader.read(platform.kafka(KafkaUser.READER), [place])
    assert b'"e1"' in records.column("value")[0].as_py()


def test_the_api_reads_the_row_of_a_key(platform: Settings, tmp_path: Path) -> None:
    key = {"Authorization": f"Bearer {platform.reader_key.get_secret_value()}"}
    with connect(platform, autocommit=True) as connection:
        deploy_views(connection)
        count(connection, [("a.example", None, 7), ("b.example", None, 8)])
        reach(connection, 17, 4)
        with running(platform, "api", tmp_path / "api.log") as address:
            get = partial(httpx.get, headers=key, timeout=deadline(15))
            rows = get(f"{address}/views/{PAGES}/rows", params={"where": "host=b.example"})
            assert [row["views"] for row in rows.json()["rows"]] == [8], rows.text
            past = get(f"{address}/views/{PAGES}/rows", params={"as_of": "2026-01-01T00:00:00Z"})
            assert past.status_code == 202, past.text
            archivist = {"Authorization": f"Bearer {platform.admin_key.get_secret_value()}"}
            tables = httpx.get(f"{address}/iceberg/v1/namespaces/log/tables", headers=archivist, timeout=deadline(30))
            assert (tables.status_code, "no keys" in tables.text) == (503, True), tables.text
        assert [each.answers for each in view_readers.readers(connection, PAGES)] == [2]


def _deliver(settings: Settings, topic: str) -> int | None:
    """The code of the error with which the collector's principal fails to write to the topic; None if it does not."""
    failed: list[KafkaError | None] = []
    producer = Producer({**settings.kafka(KafkaUser.COLLECTOR), "log_level": 0})
    producer.produce(topic, b"{}", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(deadline(15)) == 0
    [error] = failed
    return error.code() if error else None


def test_the_collector_may_do_nothing_else_in_kafka(platform: Settings, loaded: Any) -> None:
    outputs = ("relay.places", "view.cart.v1")
    for topic in outputs:
        create_topic(platform, KafkaUser.RELAY, topic, {})
    settings: Settings = loaded("collector")
    for topic in ("ticks", "erasure", "claim", *outputs):
        assert _deliver(settings, topic) in DENIED
    broker = topics.client(settings, KafkaUser.COLLECTOR)
    for request in (
        broker.delete_topics(["page_view"], request_timeout=deadline(15)),
        broker.create_topics([NewTopic("page_view_2", 1, 1)], request_timeout=deadline(15)),
    ):
        for future in request.values():
            with pytest.raises(KafkaException) as refused:
                future.result()
            assert refused.value.args[0].code() in DENIED
    consumer = open_consumer({**settings.kafka(KafkaUser.COLLECTOR), "group.id": "truelog-thief", "log_level": 0})
    consumer.assign([TopicPartition("page_view", 0, 0)])
    message = consumer.poll(deadline(15))
    consumer.close()
    assert message is not None
    assert message.error().code() in DENIED | {KafkaError.GROUP_AUTHORIZATION_FAILED}
    for user in (KafkaUser.ADMIN, KafkaUser.READER, KafkaUser.RELAY, KafkaUser.ERASER):
        with pytest.raises(NotSetUp, match="TRUELOG_KAFKA_PASSWORD"):
            settings.kafka(user)


FORBIDDEN = {
    "collector": (
        "SELECT * FROM truelog.view",
        "SELECT * FROM truelog.past_question",
        "SELECT * FROM truelog.erasure_subject",
        f"SELECT * FROM views.{PAGES}",
        "SELECT * FROM truelog.published_change",
        "SELECT * FROM iceberg.iceberg_tables",
    ),
    "api": (
        "SELECT * FROM truelog.view",
        "SELECT * FROM truelog.command",
        "SELECT * FROM truelog.erasure_subject",
        f"SELECT * FROM views.{PAGES}",
        "SELECT * FROM truelog.published_change",
        "SELECT truelog.hold_registrations()",
        "SELECT * FROM truelog.limits_of('{}')",
    ),
}
# Columns of tables that the role may not change.
UNCHANGED = {
    "collector": (
        ("truelog", "api_key", "role"),
        ("truelog", "command_key", "state"),
        ("truelog", "command", "answer"),
        ("truelog", "command_event", "value"),
        ("truelog", "position", "next_offset"),
    ),
    "api": (("truelog", "api_key", "role"), ("iceberg", "iceberg_tables", "metadata_location")),
}
CHANGES = ("UPDATE {table} SET {column} = {column}", "DELETE FROM {table}", "TRUNCATE {table}")
FOR_ALL = (
    f"UPDATE state.{PAGES}_v1 SET views = 0",
    "SELECT pg_advisory_lock(1)",
    "SELECT lo_create(0)",
    "CREATE TABLE truelog.own (x int)",
    "CREATE TEMP TABLE own (x int)",
    "SET ROLE truelog",
)


@pytest.mark.parametrize("name", REACHED)
def test_the_role_of_a_process_may_do_nothing_else(platform: Settings, loaded: Any, name: str) -> None:
    with connect(platform, autocommit=True) as connection:
        deploy_views(connection)
    with connect(loaded(name), autocommit=True) as connection:
        for statement in (*FORBIDDEN[name], *FOR_ALL):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        for schema, table, column in UNCHANGED[name]:
            of = {"table": sql.Identifier(schema, table), "column": sql.Identifier(column)}
            for change in CHANGES:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(sql.SQL(change).format(**of))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(sql.SQL("INSERT INTO {} DEFAULT VALUES").format(sql.Identifier("truelog", "api_key")))


@pytest.mark.parametrize("name", REACHED)
def test_a_process_without_keys_cannot_open_the_bucket(loaded: Any, name: str) -> None:
    with pytest.raises(NotSetUp, match="TRUELOG_S3_ACCESS_KEY"):
        loaded(name).object_store()
    with pytest.raises(NotSetUp, match="TRUELOG_DATABASE_PASSWORD"):
        Settings().database()


def test_the_catalog_reads_with_keys_of_the_operator(platform: Settings, loaded: Any) -> None:
    keys = {"s3_reader_access_key": platform.s3_access_key, "s3_reader_secret_key": platform.s3_secret_key}
    catalog = ArchiveCatalog(loaded("api").model_copy(update=keys).only_reading())
    assert catalog.tables("log", PageParameters()).status_code == 200
    with pytest.raises(NotFound, match="no table page_view"):
        catalog.table(Request({"type": "http", "headers": []}), "log", "page_view", SnapshotParameter())


@pytest.mark.parametrize("role", [COLLECTOR_ROLE, API_SERVICE_ROLE])
def test_preparing_again_leaves_a_role_only_its_rights(platform: Settings, role: str) -> None:
    expected = {
        (table, right.partition(" ")[0], column.strip() or None)
        for table, rights in process_roles.RIGHTS[role].items()
        for right in rights
        for column in right.partition("(")[2].rstrip(")").split(",")
    }
    with admin(platform, platform.database_name) as connection, connection.transaction(force_rollback=True):
        connection.execute(f"GRANT SELECT ON truelog.view, truelog.erasure TO {role}".encode())
        for statement in process_roles.statements(platform.names, platform.database_name):
            connection.execute(statement)
        assert {tuple(row) for row in connection.execute(_RIGHTS, {"role": role}).fetchall()} == expected


def test_the_collector_asks_the_database_about_addresses_and_counts_keys(platform: Settings, loaded: Any) -> None:
    settings: Settings = loaded("collector")
    ask = DecisionReader(settings)
    with pytest.raises(NotSetUp, match="do not both exist yet"):
        ask(["192.0.2.1"])
    with connect(platform, autocommit=True) as connection, limiting(connection):
        found = ask(["192.0.2.1", "192.0.2.3"])
    assert {address: each.allowed for address, each in found.items()} == {"192.0.2.1": False, "192.0.2.3": True}
    with connect(settings) as connection:
        assert count_in_use(connection, "page_view") == 0
