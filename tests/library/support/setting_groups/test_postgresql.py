"""All kinds of PostgreSQL clients connect alike: as strictly, and with the same CA."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from runtime.airflow_configuration import text
from tests.library.support.setting_groups.conftest import Chosen
from truelog.support.settings import Settings

LIMITS = "tcp_user_timeout=60000&keepalives_idle=10&keepalives_interval=5&keepalives_count=3"


def all_clients(settings: Settings) -> list[dict[str, Any]]:
    """What each kind of client says about TLS."""
    addresses = (settings.database_uri(), settings.staging_uri(), settings.catalog_uri().replace("+psycopg", ""))
    jdbc = parse_qs(urlsplit(settings.catalog_jdbc()["uri"].removeprefix("jdbc:")).query)
    debezium = {name.removeprefix("database."): value for name, value in settings.source_connector().items()}
    found: list[dict[str, Any]] = [settings.database(), settings.source(), settings.api_database(), debezium]
    found += [*map(conninfo_to_dict, addresses), {name: value for name, [value] in jdbc.items()}]
    return [{name: each[name] for name in ("sslmode", "sslrootcert") if name in each} for each in found]


def test_by_default_each_client_takes_what_the_server_offers(chosen: Chosen) -> None:
    settings = chosen(api_password=SecretStr("of-api"))
    assert all_clients(settings) == [{}] * 8
    assert settings.database_uri() == f"postgresql://truelog:of%2Fdb@db.example:5432/truelog?{LIMITS}"
    assert settings.catalog_uri() == (
        "postgresql+psycopg://truelog:of%2Fdb@db.example:5432/truelog"
        f"?options=-csearch_path%3Diceberg%20-cidle_in_transaction_session_timeout%3D15s&{LIMITS}"
    )
    assert settings.catalog_jdbc()["uri"] == (
        "jdbc:postgresql://db.example:5432/truelog"
        "?currentSchema=iceberg&options=-cidle_in_transaction_session_timeout%3D15s"
    )


@pytest.mark.parametrize("sslmode", ["verify-ca", "verify-full"])
def test_each_client_verifies_the_server_with_the_same_ca(chosen: Chosen, ca: Path, sslmode: str) -> None:
    settings = chosen(api_password=SecretStr("of-api"), database_sslmode=sslmode, database_ca_file=ca)
    assert all_clients(settings) == [{"sslmode": sslmode, "sslrootcert": str(ca)}] * 8


def test_encryption_alone_needs_no_ca(chosen: Chosen) -> None:
    settings = chosen(api_password=SecretStr("of-api"), database_sslmode="require", database_ca_file="/nowhere")
    assert all_clients(settings) == [{"sslmode": "require"}] * 8


def test_the_captured_database_may_differ(chosen: Chosen, ca: Path) -> None:
    settings = chosen(database_sslmode="verify-full", database_ca_file=ca, source_host="shop.example")
    assert settings.source()["sslmode"] == "verify-full"
    other = settings.model_copy(update={"source_sslmode": "require"})
    assert (other.source()["sslmode"], other.database()["sslmode"]) == ("require", "verify-full")
    assert "sslrootcert" not in other.source()
    debezium = {"database.sslmode": "require", "database.hostname": "shop.example"}
    assert other.source_connector().items() >= debezium.items()
    plain = settings.model_copy(update={"source_sslmode": "prefer"})
    assert "sslmode" not in plain.source()


def test_airflow_reaches_its_own_database_alike(chosen: Chosen, ca: Path, tmp_path: Path) -> None:
    settings = chosen(database_sslmode="verify-full", database_ca_file=ca, airflow_password=SecretStr("of-airflow"))
    wanted = f"@db.example:5432/airflow?{LIMITS}&sslmode=verify-full&sslrootcert={ca}"
    assert text(settings).count(wanted) == 2


def test_each_session_ends_if_its_server_is_gone(postgresql: Settings) -> None:
    """libpq takes the limits, and the other clients of libpq get the same ones."""
    limits = {name: value for name, [value] in parse_qs(LIMITS).items()}
    for arguments in (postgresql.database(), postgresql.api_database()):
        with psycopg.connect(**arguments) as connection:
            assert limits.items() <= connection.info.get_parameters().items()
    assert limits.items() <= postgresql.source().items()
    for uri in (postgresql.database_uri(), postgresql.staging_uri(), postgresql.catalog_uri().replace("+psycopg", "")):
        assert limits.items() <= conninfo_to_dict(uri).items()
