"""The doctor finds each planted fault of a real Kafka: principals, encryption, and topics that are not as declared."""

from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from pydantic import SecretStr

from tests.deadline import deadline
from truelog.doctor.kafka import KAFKA
from truelog.doctor.result import Outcome, Result
from truelog.support.settings import KafkaUser, Settings

TYPE = '''"""A type whose topic does not exist."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="thing_id", subject=(), partitions=1, retention="7 days", compacted=False)


class Unborn(Event):
    """Nothing happened."""

    thing_id: str = Field(min_length=1, max_length=64, description="The id of the thing.")
'''


def examined(settings: Settings, **changes: object) -> dict[str, Result]:
    return {each.check: each for each in KAFKA.examine(settings.model_copy(update=changes))}


def retain(settings: Settings, topic: str, milliseconds: int) -> None:
    broker = AdminClient(settings.kafka(KafkaUser.ADMIN))
    entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    changed = broker.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
    for each in changed.values():
        each.result(deadline(30))


def test_sound_brokers_need_no_cure(platform: Settings) -> None:
    found = examined(platform)
    assert {check: each.found for check, each in found.items() if each.outcome is not Outcome.FINE} == {}
    assert "topics" in found
    assert set(map(str, KafkaUser)) <= found.keys()


def test_records_that_are_deleted_too_early_are_found(platform: Settings) -> None:
    retain(platform, "page_view", 3_600_000)
    found = examined(platform)["topic page_view"]
    retain(platform, "page_view", 7 * 86_400_000)
    assert (found.outcome, found.found) == (
        Outcome.FAILED,
        "records are deleted after 60 min, before the declared time",
    )


def test_topics_that_are_missing_and_files_that_are_broken_are_found(platform: Settings, tmp_path: Path) -> None:
    (tmp_path / "unborn.py").write_text(TYPE)
    (tmp_path / "broken.py").write_text("TOPIC = (")
    found = examined(platform, events_folder=tmp_path)
    assert found["topic unborn"].outcome is Outcome.FAILED
    assert "Kafka has no topic unborn" in found["topic unborn"].found
    assert found["event broken"].outcome is Outcome.FAILED


def test_a_principal_with_a_wrong_password_or_none_is_named(platform: Settings) -> None:
    found = examined(platform, kafka_ticks_password=SecretStr("wrong"), kafka_relay_password=SecretStr(""))
    assert (found["truelog-ticks"].outcome, "uthentication" in found["truelog-ticks"].found) == (Outcome.FAILED, True)
    assert found["truelog-relay"].outcome is Outcome.WARNING


def test_passwords_never_leave_the_machine_unencrypted(platform: Settings) -> None:
    elsewhere = platform.model_copy(update={"kafka_bootstrap": "127.0.0.1:9,broker.example:9092"})
    assert next(KAFKA.examine(elsewhere)).outcome is Outcome.FAILED
