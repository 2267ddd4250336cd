"""The lag service where PostgreSQL is all that answers: it says so, tells what it knows, and to whom it may."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPMessage
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine

from runtime import lag
from truelog.control.application import ARCHIVE
from truelog.lag import lag_groups
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.monitor import metrics
from truelog.monitor.lag_service import Impatient
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until


@pytest.fixture
def blind(postgresql: Settings) -> Iterator["subprocess.Popen[str]"]:
    """A service for which there is no Kafka and no store."""
    given = {"TRUELOG_KAFKA_BOOTSTRAP": "127.0.0.1:1", "TRUELOG_S3_ENDPOINT": "http://127.0.0.1:1"}
    with subprocess.Popen(
        lag.SERVICE.command(postgresql), env=os.environ | given, stderr=subprocess.PIPE, text=True
    ) as it:
        yield it
        it.kill()


def get(settings: Settings, path: str, authorization: str = "") -> tuple[int, HTTPMessage, str]:
    connection = HTTPConnection(settings.lag_host, settings.lag_port, timeout=10)
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def bearer(key: SecretStr) -> str:
    return f"Bearer {key.get_secret_value()}"


def test_postgresql_is_not_waited_for_without_end(postgresql: Settings) -> None:
    """Neither where a statement takes too long nor where the server has vanished; the archive's catalog is alike."""
    impatient = Impatient(**postgresql.model_dump())
    with connect(impatient) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("10s",)
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)
        assert {"tcp_user_timeout": "10000", "keepalives_idle": "5"}.items() <= connection.info.get_parameters().items()
    catalog = create_engine(impatient.iceberg()["uri"])
    with catalog.connect() as connected:
        assert connected.exec_driver_sql("SHOW search_path").scalar() == "iceberg"
        driver: Any = connected.connection.driver_connection
        assert driver.info.get_parameters()["tcp_user_timeout"] == "10000"
    catalog.dispose()


def test_groups_that_cannot_be_published_hold_up_no_other(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a broker each is asked, and each is told of."""
    monkeypatch.setattr(lag_groups, "_TIMEOUT", 1.0)
    broker = topics.client(postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"}))
    with pytest.raises(ServiceDown, match=r"truelog\.archive: .*; truelog\.stream\.one: "):
        lag_groups.publish_groups(postgresql, broker, dict.fromkeys((ARCHIVE, "one"), Positions({"page_view": {0: 1}})))


def test_a_service_that_sees_nothing_says_so_and_tells_what_it_knows(
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
        lag.SERVICE.ready(postgresql)

    for nobody in ("", "Bearer ", "Bearer reader.wrong", "Basic " + postgresql.reader_key.get_secret_value()):
        status, headers, text = get(postgresql, "/metrics", nobody)
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
    _, logged = blind.communicate(timeout=60)
    assert blind.returncode == -signal.SIGTERM  # which uvicorn passes on when it has answered everybody
    assert "Traceback" not in logged
    assert postgresql.reader_key.get_secret_value() not in logged
