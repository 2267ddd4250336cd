"""Settings of a platform with stores elsewhere. Nothing connects."""

from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import SecretStr

from tests.beds.authority import Authority
from truelog.support.settings import Settings


class Chosen(Protocol):
    """Makes settings with changes."""

    def __call__(self, **changes: Any) -> Settings: ...


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Authority(tmp_path_factory.mktemp("authority"), "private-ca").file


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    monkeypatch.delenv("TRUELOG_HOME", raising=False)
    given: dict[str, Any] = {
        "home": tmp_path,
        "kafka_bootstrap": "kafka-1.example:9094,kafka-2.example:9094",
        "kafka_password": SecretStr("of-kafka"),
        "s3_endpoint": "http://s3.example",
        "s3_access_key": "key",
        "s3_secret_key": SecretStr("of-s3"),
        "database_host": "db.example",
        "database_port": 5432,
        "database_password": SecretStr("of/db"),
        "source_password": SecretStr("of-source"),
    }
    return lambda **changes: Settings(**given | changes)
