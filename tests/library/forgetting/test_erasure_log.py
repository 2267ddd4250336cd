"""The topic of erasures: an erasure counts only with the home's secret, and other records stop nothing."""

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from pydantic import SecretStr

from tests.builders.erasures import forget_erasures
from tests.deadline import deadline
from truelog.control import event_registry
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.secret import require_secret_of, secret_of
from truelog.erasure.subject import Subject, seal, secret_check
from truelog.forgetting import erasure_log
from truelog.forgetting.forget import add_published, restore_ledger
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import KafkaUser, Settings

ENDS = Positions({"profile": {0: 0}}, {"profile": "an-earlier-life"})


def erasure_of(secret: bytes) -> Erasure:
    subjects = frozenset({Subject.of(secret, "person_id", "ann")})
    return Erasure(uuid.uuid4(), subjects, {"profile": ("person_id",)}, ENDS, secret_check(secret))


def send(settings: Settings, erasure_id: str, value: bytes) -> None:
    producer = Producer(settings.kafka(KafkaUser.ADMIN))
    producer.produce(erasure_log.TOPIC, value, erasure_id)
    assert producer.flush(deadline(30)) == 0


@pytest.fixture
def clean(connection: Connection) -> Iterator[Connection]:
    forget_erasures(connection)
    yield connection
    forget_erasures(connection)


def test_only_sealed_erasures_count(platform: Settings, clean: Connection, caplog: pytest.LogCaptureFixture) -> None:
    types, secret = event_registry.confirmed_types(platform), secret_of(platform)
    made = erasure_of(secret)
    erasure_log.publish(platform, types, made)
    wider = replace(made, ends=Positions({"profile": {0: 9}}, ENDS.ids))
    forged = {"erasure": str(made.id), "content": wider.as_text(), "seal": seal(b"guessed", wider.as_text())}
    for value in (b"\xff", b"[]", b"{}", b'{"content": "{}"}', json.dumps(forged).encode()):
        send(platform, str(uuid.uuid4()), value)
    with caplog.at_level(logging.ERROR):
        assert made in erasure_log.read_published(platform, types)
    assert len([each for each in caplog.messages if "is left out" in each]) >= 5
    assert restore_ledger(platform) >= 1
    assert made in ledger.unfinished(clean)


def test_an_erasure_of_another_secret_is_not_performed(platform: Settings, clean: Connection) -> None:
    made = erasure_of(secret_of(platform))
    require_secret_of(platform, made)
    erasure_log.publish(platform, event_registry.confirmed_types(platform), made)
    other = platform.model_copy(update={"erasure_secret": SecretStr("another")})
    with pytest.raises(NotSetUp, match="another TRUELOG_ERASURE_SECRET"):
        require_secret_of(other, made)
    with pytest.raises(NotSetUp, match="another TRUELOG_ERASURE_SECRET"):
        add_published(other, clean)
