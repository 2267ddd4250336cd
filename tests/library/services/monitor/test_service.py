"""The lag service when it can reach only PostgreSQL: its health, its metrics and its access control."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPMessage
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine

from runtime.services import SERVICES
from tests.deadline import deadline, until
from truelog.control.application import ARCHIVE
from truelog.lag import groups as lag_groups
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reports import metrics
from truelog.services.monitor.short_timeouts import ShortTimeouts
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

LAG = SERVICES["lag"]


@pytest.fixture
def blind(postgresql: Settings) -> Iterator["subprocess.Popen[str]"]:
    """A lag service that can reach neither Kafka nor the object store, and gives analysts five seconds."""
    given = {"TRUELOG_KAFKA_BOOTSTRAP": "127.0.0.1:1", "TRUELOG_S3_ENDPOINT": "http://127.0.0.1:1"}
    given["TRUELOG_ANALYST_SECONDS"] = "5"
    with subprocess.Popen(LAG.command(postgresql), env=os.environ | given, stderr=subprocess.PIPE, text=True) as it:
        yield it
        it.kill()


def get(settings: Settings, path: str, authorization: str = "") -> tuple[int, HTTPMessage, str]:
    address = settings.address("lag")
    connection = HTTPConnection(address.host, address.port, timeout=deadline(10))
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def bearer(key: SecretStr) -> str:
    return f"Bearer {key.get_secret_value()}"


def test_waiting_for_postgresql_is_limited(postgresql: Settings) -> None:
    """The limits cover slow statements and a server that is gone. The same limits apply to the archive's catalog."""
    limited = ShortTimeouts(**postgresql.model_dump())
    with connect(limited) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("10s",)
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
        assert {"tcp_user_timeout": "10000", "keepalives_idle": "5"}.items() <= connection.info.get_parameters().items()
    catalog = create_engine(limited.iceberg()["uri"])
    with catalog.connect() as connected:
        assert connected.exec_driver_sql("SHOW search_path").scalar() == "iceberg"
        driver: Any = connected.connection.driver_connection
        assert driver.info.get_parameters()["tcp_user_timeout"] == "10000"
    catalog.dispose()


def test_a_group_that_cannot_be_published_does_not_prevent_the_others(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the broker is unreachable, the service tries each group and reports each failure."""
    monkeypatch.setattr(lag_groups, "_TIMEOUT", 1.0)
    broker = topics.client(postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"}))
    with pytest.raises(ServiceDown, match=r"truelog\.archive: .*; truelog\.stream\.one: "):
        lag_groups.publish_groups(postgresql, broker, dict.fromkeys((ARCHIVE, "one"), Positions({"page_view": {0: 1}})))


def test_a_service_without_kafka_reports_that_and_still_serves_metrics(
    postgresql: Settings, blind: "subprocess.Popen[str]"
) -> None:
    def answers() -> None:
        try:
            get(postgresql, "/health")
        except OSError as away:
            raise ServiceDown(str(away)) from away

    until(answers, 30, "the service")
    status, _, text = get(postgresql, "/health")
    assert (status, json.loads(text)) == (503, {"views": False, "archive": False})
    with pytest.raises(ServiceDown, match="'views': False"):
        LAG.ready(postgresql)

    for wrong in ("", "Bearer ", "Bearer reader.wrong", "Basic " + postgresql.reader_key.get_secret_value()):
        status, headers, text = get(postgresql, "/metrics", wrong)
        assert (status, headers["WWW-Authenticate"], "truelog_" in text) == (401, "Bearer", False)
    assert get(postgresql, "/metrics", bearer(postgresql.producer_key))[0] == 403
    assert get(postgresql, "/metrics", bearer(postgresql.admin_key))[0] == 200
    status, headers, text = get(postgresql, "/metrics", bearer(postgresql.reader_key))
    assert (status, headers["Content-Type"]) == (200, metrics.CONTENT_TYPE)
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    assert families == list(metrics.FAMILIES)
    assert 'truelog_lag_verdict{application="archive",reader="archive",verdict="UNKNOWN"} 1' in text
    assert [get(postgresql, path)[0] for path in ("/", "/docs", "/openapi.json")] == [404] * 3

    blind.send_signal(signal.SIGTERM)
    _, logged = blind.communicate(timeout=deadline(60))
    assert blind.returncode == -signal.SIGTERM  # uvicorn raises the signal again after it has shut down
    assert "Traceback" not in logged
    assert postgresql.reader_key.get_secret_value() not in logged


@pytest.mark.usefixtures("blind")
def test_an_analyst_cannot_switch_off_the_time_limit(postgresql: Settings) -> None:
    """The service ends sessions that work or wait in a long transaction, and spares all others."""
    analyst = postgresql.database() | {"user": "analyst", "password": postgresql.analyst_password.get_secret_value()}
    with ExitStack() as opened:
        idle, working, spared = (opened.enter_context(psycopg.connect(**analyst, autocommit=True)) for _ in range(3))
        owner = opened.enter_context(connect(postgresql))
        for each in (idle, working, spared):
            each.execute("SET statement_timeout = 0")
            each.execute("SET idle_in_transaction_session_timeout = 0")
        idle.execute("BEGIN")
        owner.execute("SET idle_in_transaction_session_timeout = 0")  # in a transaction that lasts until the end
        with pytest.raises(psycopg.errors.AdminShutdown):
            working.execute(f"SELECT pg_sleep({deadline(60)})")
        with pytest.raises(psycopg.errors.AdminShutdown):
            idle.execute(f"SELECT pg_sleep({deadline(60)})")
        assert spared.execute("SELECT 1").fetchone() == (1,)
        assert owner.execute("SELECT 1").fetchone() == (1,)
        owner.rollback()


def test_an_analyst_cannot_raise_the_limit_of_temporary_files(postgresql: Settings) -> None:
    analyst = postgresql.database() | {"user": "analyst", "password": postgresql.analyst_password.get_secret_value()}
    with psycopg.connect(**analyst) as connection:
        assert connection.execute("SHOW temp_file_limit").fetchone() == ("4GB",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SET temp_file_limit = -1")
