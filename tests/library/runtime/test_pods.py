"""Pods get from the environment what `truelog up` writes on a machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import chart, pods
from runtime.credentials import generated_secrets
from truelog.support.errors import NotSetUp
from truelog.support.settings import ENVIRONMENT_FILE, Settings

GIVEN = {chart.variable(name): f"{name} '\"# of the store" for name in chart.GIVEN}
PLACES = {
    "TRUELOG_STORES": "own",
    "TRUELOG_KAFKA_BOOTSTRAP": "kafka.example:9094",
    "TRUELOG_DATABASE_HOST": "db.example",
    "TRUELOG_DATABASE_PORT": "5432",
    "TRUELOG_S3_ENDPOINT": "https://s3.example",
    "TRUELOG_AIRFLOW_PORT": "18081",
}


def run(command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command in an environment without the settings of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRUELOG_")}
    words = [sys.executable, "-m", "runtime.pods", command]
    return subprocess.run(words, env=kept | variables, capture_output=True, text=True, check=False)


def test_the_new_secrets_and_those_of_the_stores_are_all_that_the_chart_requires(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods.secrets()
    made = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    required = {chart.variable(name) for name in chart.used_secrets() - {*chart.optional()}}
    assert made.keys() | GIVEN.keys() == required
    assert made.keys() & GIVEN.keys() == set()
    assert len(set(made.values())) == len(made)


def test_the_home_has_the_settings_of_the_environment(tmp_path: Path) -> None:
    secrets = {chart.variable(name): value for name, value in generated_secrets().items() if name in chart.AIRFLOW}
    channels = {"TRUELOG_SPARK_CONF": '{"spark.driver.extraJavaOptions": "-Da=\'b c\'"}'}
    home = tmp_path / "home"
    ended = run("home", TRUELOG_HOME=str(home), **{**PLACES, **secrets, **GIVEN, **channels})
    assert ended.returncode == 0, ended.stderr
    found = Settings(home=home)
    assert (found.database_host, found.airflow_port, found.stores) == ("db.example", 18081, "own")
    assert found.kafka_password.get_secret_value() == GIVEN["TRUELOG_KAFKA_PASSWORD"]
    assert found.spark_conf == {"spark.driver.extraJavaOptions": "-Da='b c'"}
    for file in (home / ENVIRONMENT_FILE, home / "airflow" / "airflow.cfg"):
        assert file.stat().st_mode & 0o077 == 0
    assert found.airflow_fernet_key.get_secret_value() in (home / "airflow" / "airflow.cfg").read_text()


def test_a_value_that_the_file_cannot_contain_is_refused_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "refers to ${HOME}"
    monkeypatch.setenv("TRUELOG_HOME", str(tmp_path))
    monkeypatch.setenv("TRUELOG_KAFKA_PASSWORD", value)
    monkeypatch.setenv("TRUELOG_KAFKA_USER", "quotes '")
    with pytest.raises(NotSetUp, match="TRUELOG_KAFKA_PASSWORD") as refused:
        pods.home()
    assert value not in str(refused.value)
    assert not (tmp_path / ENVIRONMENT_FILE).exists()


def test_the_stores_are_prepared(platform: Settings) -> None:
    """The stores of the test are prepared already, so this shows that all is found and nothing is changed."""
    lines = (platform.home / ENVIRONMENT_FILE).read_text().splitlines()
    ended = run("stores", **dict(line.split("=", 1) for line in lines), TRUELOG_STORES="own", TRUELOG_HOME="/nowhere")
    assert ended.returncode == 0, ended.stderr


def test_the_stores_are_not_prepared_with_an_empty_password(platform: Settings) -> None:
    """The collector's pod would have no password then."""
    lines = (platform.home / ENVIRONMENT_FILE).read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines) | {"TRUELOG_STORES": "own", "TRUELOG_HOME": "/nowhere"}
    ended = run("stores", **given | {"TRUELOG_COLLECTOR_PASSWORD": "", "TRUELOG_KAFKA_RELAY_PASSWORD": ""})
    assert ended.returncode == 1
    assert "no value for TRUELOG_COLLECTOR_PASSWORD, TRUELOG_KAFKA_RELAY_PASSWORD" in ended.stderr


def test_another_word_is_answered_with_the_usage() -> None:
    ended = run("everything")
    assert (ended.returncode, "python -m runtime.pods stores" in ended.stderr) == (1, True)
