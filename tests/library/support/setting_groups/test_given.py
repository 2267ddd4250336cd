"""A process loads its settings without the secrets that it lacks, and fails where it would use one of them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from truelog.support.errors import NotSetUp
from truelog.support.settings import API_SERVICE_ROLE, COLLECTOR_ROLE, KafkaUser, Settings

PLACES = {"kafka_bootstrap": "kafka.example", "database_port": 5432, "s3_endpoint": "http://s3.example"}
USES: list[tuple[str, Callable[[Settings], object]]] = [
    ("DATABASE_PASSWORD", Settings.database),
    ("DATABASE_PASSWORD", Settings.database_uri),
    ("DATABASE_PASSWORD", Settings.catalog_uri),
    ("CATALOG_PASSWORD", Settings.catalog_jdbc),
    ("STAGER_PASSWORD", Settings.staging_uri),
    ("KAFKA_PASSWORD", Settings.kafka),
    ("KAFKA_RELAY_PASSWORD", lambda settings: settings.kafka(KafkaUser.RELAY)),
    ("KAFKA_READER_PASSWORD", Settings.spark_kafka),
    ("COLLECTOR_PASSWORD", lambda settings: settings.signed_in_as(COLLECTOR_ROLE)),
    ("API_SERVICE_PASSWORD", lambda settings: settings.signed_in_as(API_SERVICE_ROLE)),
    ("S3_ACCESS_KEY", Settings.object_store),
    ("S3_ACCESS_KEY", Settings.spark_object_store),
]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    monkeypatch.delenv("TRUELOG_HOME", raising=False)
    return lambda **more: Settings(home=tmp_path, **PLACES | more)


@pytest.mark.parametrize(("name", "use"), USES, ids=range(len(USES)))
def test_the_use_of_a_secret_that_is_lacking_names_it(
    made: Callable[..., Settings], name: str, use: Callable[[Settings], object]
) -> None:
    with pytest.raises(NotSetUp, match=f"This process has no TRUELOG_{name}"):
        use(made())


def test_a_process_with_an_empty_password_and_no_other_learns_which_one_it_needs(made: Callable[..., Settings]) -> None:
    """As in a pod whose Secret has an empty entry."""
    empty = made(collector_password="", kafka_collector_password="")
    with pytest.raises(NotSetUp, match=r"Give it TRUELOG_COLLECTOR_PASSWORD\.$"):
        empty.signed_in_as(COLLECTOR_ROLE)
    with pytest.raises(NotSetUp, match=r"Give it TRUELOG_KAFKA_COLLECTOR_PASSWORD\.$"):
        empty.kafka(KafkaUser.COLLECTOR)


def test_an_empty_secret_was_given(made: Callable[..., Settings]) -> None:
    empty = made(database_password="", kafka_password="", s3_access_key="", s3_secret_key="")
    assert empty.database()["password"] == empty.kafka()["sasl.password"] == ""
    assert empty.object_store()["s3.access-key-id"] == ""


def test_without_sign_in_no_password_is_needed(made: Callable[..., Settings]) -> None:
    assert made(kafka_protocol="PLAINTEXT").kafka()["security.protocol"] == "PLAINTEXT"


def test_a_process_signs_in_as_its_role_or_as_the_owner(made: Callable[..., Settings]) -> None:
    settings = made(namespace="red", collector_password="of-collector", api_service_password="of-api")
    for role, password in ((COLLECTOR_ROLE, "of-collector"), (API_SERVICE_ROLE, "of-api")):
        found = settings.signed_in_as(role).database()
        assert (found["user"], found["password"]) == (f"red_{role}", password)
    owner = made(database_password="of-owner").signed_in_as(COLLECTOR_ROLE).database()
    assert (owner["user"], owner["password"]) == ("truelog", "of-owner")


def test_keys_that_may_only_read_are_used_if_both_are_given(made: Callable[..., Settings]) -> None:
    keys = {"s3_access_key": "writes", "s3_secret_key": "w"}
    readers = {"s3_reader_access_key": "reads", "s3_reader_secret_key": SecretStr("r")}
    assert made(**keys).only_reading().object_store()["s3.access-key-id"] == "writes"
    assert made(**keys, s3_reader_access_key="reads").only_reading().object_store()["s3.access-key-id"] == "writes"
    store = made(**readers).only_reading().object_store()
    assert (store["s3.access-key-id"], store["s3.secret-access-key"]) == ("reads", "r")
