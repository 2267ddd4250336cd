"""Settings: where they come from, what they show, and who may read them."""

import stat
from pathlib import Path

import pytest

import runtime
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRUELOG_HOME", "TRUELOG_JARS"):
        monkeypatch.delenv(name, raising=False)


def test_the_file_with_secrets_is_private(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    assert stat.S_IMODE((tmp_path / "settings.env").stat().st_mode) == 0o600


def test_set_up_twice_changes_no_secret_and_adds_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    runtime.set_up(tmp_path)
    first = file.read_text().splitlines()
    file.write_text("\n".join(first[1:]) + "\n")
    runtime.set_up(tmp_path)
    again = file.read_text().splitlines()
    assert again[:-1] == first[1:]
    assert again[-1].partition("=")[0] == first[0].partition("=")[0]


def test_random_ports_differ(tmp_path: Path) -> None:
    made = runtime.set_up(tmp_path, random_ports=True)
    addresses = [made.kafka_bootstrap, made.s3_endpoint, made.database_port, made.kafka_controller_port]
    ports = {str(address).rpartition(":")[2] for address in addresses}
    assert len(ports) == len(addresses)


def test_the_environment_goes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.set_up(tmp_path)
    monkeypatch.setenv("TRUELOG_KAFKA_BOOTSTRAP", "broker.example:9093")
    assert Settings(home=tmp_path).kafka()["bootstrap.servers"] == "broker.example:9093"


def test_no_secret_is_printed(tmp_path: Path) -> None:
    made = runtime.set_up(tmp_path)
    shown = f"{made!r} {made}"
    for secret in (made.kafka_password, made.s3_secret_key, made.database_password, made.analyst_password):
        assert secret.get_secret_value() not in shown


def test_a_home_that_was_not_set_up_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="truelog up"):
        Settings(home=tmp_path)


def test_a_wrong_value_is_named_but_not_shown(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    with pytest.raises(NotSetUp, match="database_port") as refused:
        Settings(home=tmp_path, database_port="hunter2")
    assert "hunter2" not in str(refused.value)


def test_a_misspelt_setting_is_refused(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    with (tmp_path / "settings.env").open("a") as file:
        file.write("TRUELOG_LOG_DAY_SECOND=60\n")
    with pytest.raises(NotSetUp, match="log_day_second"):
        Settings(home=tmp_path)


def test_missing_jars_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="make install"):
        runtime.set_up(tmp_path).jars("spark")


def test_a_password_survives_the_uri(tmp_path: Path) -> None:
    made = runtime.set_up(tmp_path)
    odd = made.model_copy(update={"database_password": type(made.database_password)("p@ss/w:rd")})
    assert "p%40ss%2Fw%3Ard@" in odd.database_uri()
