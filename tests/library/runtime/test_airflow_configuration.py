"""Airflow's configuration file, commands and environment, tested without starting Airflow."""

import stat
from configparser import ConfigParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml
from pydantic import SecretStr

import runtime
from runtime import airflow, airflow_configuration
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@pytest.fixture
def made(tmp_path: Path) -> Settings:
    return runtime.set_up(tmp_path, random_ports=True)


def parsed(settings: Settings) -> ConfigParser:
    """The file as Airflow reads it, with references resolved."""
    parser = ConfigParser()
    parser.read_string(airflow_configuration.text(settings))
    return parser


def secrets(settings: Settings) -> list[str]:
    return [value.get_secret_value() for _, value in settings if isinstance(value, SecretStr) and value]


def known_options() -> dict[str, Any]:
    """The options that Airflow documents. Airflow silently ignores unknown options."""
    package = find_spec("airflow")
    assert package is not None
    assert package.submodule_search_locations
    file = Path(package.submodule_search_locations[0]) / "config_templates" / "config.yml"
    return {section: each["options"] for section, each in yaml.safe_load(file.read_text()).items()}


def test_airflow_knows_every_option(made: Settings) -> None:
    known, parser = known_options(), parsed(made)
    named = [(section, option) for section in parser.sections() for option in parser[section]]
    assert len(named) > 20
    assert [each for each in named if each[1] not in known.get(each[0], {})] == []


def test_it_listens_on_loopback_at_its_own_port(made: Settings) -> None:
    api = parsed(made)["api"]
    assert (api["host"], api.getint("port")) == ("127.0.0.1", made.airflow_port)
    assert airflow.address(made) == api["base_url"] == f"http://127.0.0.1:{made.airflow_port}"
    assert parsed(made)["core"]["execution_api_server_url"] == f"{api['base_url']}/execution/"


def test_folders_and_parallelism_are_settings(made: Settings, tmp_path: Path) -> None:
    changes = {"dags_folder": tmp_path / "d", "plugins_folder": tmp_path / "p", "airflow_parallelism": 2}
    core = parsed(made.model_copy(update=changes))["core"]
    assert (core["dags_folder"], core["plugins_folder"]) == (str(tmp_path / "d"), str(tmp_path / "p"))
    assert core.getint("parallelism") == 2


def test_its_role_connects_to_its_own_database(made: Settings) -> None:
    password = made.airflow_password.get_secret_value()
    limits = urlencode(made.tcp_limits())
    uri = f"postgresql+psycopg://airflow:{password}@127.0.0.1:{made.database_port}/airflow?{limits}"
    database = parsed(made)["database"]
    assert database["sql_alchemy_conn"] == database["sql_alchemy_conn_async"] == uri


def test_a_percent_sign_survives(made: Settings, tmp_path: Path) -> None:
    odd = {"airflow_password": SecretStr("p@ss%w"), "dags_folder": tmp_path / "100%(s)s"}
    parser = parsed(made.model_copy(update=odd))
    assert parser["core"]["dags_folder"] == str(tmp_path / "100%(s)s")
    assert ":p%40ss%25w@" in parser["database"]["sql_alchemy_conn"]


def test_the_file_and_its_folder_are_private(made: Settings) -> None:
    airflow_configuration.write(made)
    folder = airflow_configuration.folder(made)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "airflow.cfg").stat().st_mode) == 0o600


def test_no_secret_is_in_a_command_or_an_environment(made: Settings) -> None:
    shown = [word for each in airflow.SERVICES for word in each.command(made)]
    shown += [value for each in airflow.SERVICES for value in each.environment(made).values()]
    assert not [secret for secret in secrets(made) for word in shown if secret in word]


def test_every_secret_is_unique(made: Settings) -> None:
    assert len(set(secrets(made))) == len(secrets(made)) > 15


def test_metrics_are_sent_only_if_an_address_is_set(made: Settings) -> None:
    exporting = made.model_copy(update={"otlp_endpoint": "http://127.0.0.1:4318", "otlp_seconds": 7.5})
    assert (parsed(made)["metrics"].getboolean("otel_on"), parsed(exporting)["metrics"].getboolean("otel_on")) == (
        False,
        True,
    )
    assert not [name for each in airflow.SERVICES for name in each.environment(made) if name.startswith("OTEL_")]
    found = [each.environment(exporting) for each in airflow.SERVICES]
    assert {each["OTEL_METRIC_EXPORT_INTERVAL"] for each in found} == {"7500"}
    assert len({each["OTEL_RESOURCE_ATTRIBUTES"] for each in found}) == len(airflow.SERVICES)


def test_no_component_serves_logs_over_http() -> None:
    """The scheduler and the triggerer would listen on every address, regardless of `[api] host`."""
    settings = Settings.model_construct()
    words = {each.name: each.command(settings) for each in airflow.SERVICES}
    assert "--skip-serve-logs" in words["airflow-scheduler"]
    assert "--skip-serve-logs" in words["airflow-triggerer"]


def test_a_home_of_an_earlier_release_gets_advice(made: Settings) -> None:
    with pytest.raises(NotSetUp, match="truelog up"):
        airflow.configure(made.model_copy(update={"airflow_port": 0}))
