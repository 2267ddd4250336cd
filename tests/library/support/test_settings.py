"""Settings: where they come from, what they print, and who may read their file."""

import re
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

import runtime
from demo import shop
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

# Settings that are not secret, although they are named like secrets.
NO_SECRETS = {
    "api_token_requests",
    "api_token_seconds",
    "api_token_subscribers",
    "collector_key_dead_letters",
    "collector_key_share",
    "kafka_oauth_token_url",
    "s3_access_key",
    "s3_reader_access_key",
}


def secrets() -> set[str]:
    return {name for name, each in Settings.model_fields.items() if each.annotation is SecretStr}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TRUELOG_HOME", "TRUELOG_JARS"):
        monkeypatch.delenv(name, raising=False)


def test_the_settings_file_is_private(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    assert stat.S_IMODE((tmp_path / "settings.env").stat().st_mode) == 0o600


def test_a_second_set_up_changes_no_secret_and_adds_missing_settings(tmp_path: Path) -> None:
    file = tmp_path / "settings.env"
    runtime.set_up(tmp_path)
    first = file.read_text().splitlines()
    file.write_text("\n".join(first[1:]) + "\n")
    runtime.set_up(tmp_path)
    again = file.read_text().splitlines()
    assert again[:-1] == first[1:]
    assert again[-1].partition("=")[0] == first[0].partition("=")[0]


def test_set_up_reads_the_file_as_its_reader_does(tmp_path: Path) -> None:
    """A generated value would come behind the person's own. The last line has no end, as some editors leave it."""
    lines = ("export TRUELOG_DATABASE_PASSWORD=a", "TRUELOG_KAFKA_PASSWORD = b", "truelog_airflow_password=c")
    (tmp_path / "settings.env").write_text("\n".join((*lines, "TRUELOG_SHUFFLE_PARTITIONS=7")))
    made = runtime.set_up(tmp_path)
    passwords = (made.database_password, made.kafka_password, made.airflow_password)
    assert [each.get_secret_value() for each in passwords] == ["a", "b", "c"]
    assert made.shuffle_partitions == 7


def test_the_demos_add_whole_lines_and_replace_no_setting_of_a_person(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    file = tmp_path / "settings.env"
    file.write_text(file.read_text() + "TRUELOG_SHUFFLE_PARTITIONS=7")
    shop.allow(tmp_path)
    made = Settings(home=tmp_path)
    assert (made.shuffle_partitions, made.api_origins[:17]) == (7, "http://127.0.0.1:")
    file.write_text(file.read_text().replace("TRUELOG_API_ORIGINS=", "truelog_api_origins = http://a.example #"))
    shop.allow(tmp_path)
    assert Settings(home=tmp_path).api_origins == "http://a.example"


def test_the_environment_overrides_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.set_up(tmp_path)
    monkeypatch.setenv("TRUELOG_KAFKA_BOOTSTRAP", "broker.example:9093")
    assert Settings(home=tmp_path).kafka()["bootstrap.servers"] == "broker.example:9093"


def test_settings_that_are_named_like_secrets_are_secrets() -> None:
    named = {name for name in Settings.model_fields if re.search(r"password|secret|token|salt|_key(_|$)", name)}
    assert named - secrets() == NO_SECRETS


def test_no_secret_is_printed(tmp_path: Path) -> None:
    """Each secret has a value here, whether set-up makes it or a person gives it."""
    given = {name: SecretStr(f"the-{name}-itself") for name in secrets()}
    settings = runtime.set_up(tmp_path).model_copy(update=given)
    printed = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
    assert [name for name, value in given.items() if value.get_secret_value() in printed] == []


def test_the_error_for_a_home_without_set_up_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="truelog up"):
        Settings(home=tmp_path)


def test_an_invalid_setting_is_named_without_its_value(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    with pytest.raises(NotSetUp, match="database_port") as raised:
        Settings(home=tmp_path, database_port="hunter2")
    assert "hunter2" not in str(raised.value)


def test_a_misspelt_setting_is_rejected(tmp_path: Path) -> None:
    runtime.set_up(tmp_path)
    with (tmp_path / "settings.env").open("a") as file:
        file.write("TRUELOG_LOG_DAY_SECOND=60\n")
    with pytest.raises(NotSetUp, match="log_day_second"):
        Settings(home=tmp_path)


def test_the_error_for_missing_jars_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="make install"):
        runtime.set_up(tmp_path).jars("spark")


def test_the_uri_escapes_the_password(tmp_path: Path) -> None:
    settings = runtime.set_up(tmp_path)
    odd = settings.model_copy(update={"database_password": type(settings.database_password)("p@ss/w:rd")})
    assert "p%40ss%2Fw%3Ard@" in odd.database_uri()
