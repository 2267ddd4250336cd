"""The request for an erasure: it covers every event that was acknowledged before, also behind open transactions."""

import json
import uuid
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from tests.deadline import deadline, until
from truelog.control import log_cuts
from truelog.control.log_cuts import OpenCut
from truelog.forgetting.request import wait_for_archive, wanted
from truelog.log import topics
from truelog.log.leader_epochs import Cut
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput, ServiceDown
from truelog.support.settings import KafkaUser, Settings

TOPIC, PERSON = "page_view", "xanthippe-4711"
NAMED = frozenset({("visitor_id", PERSON)})


def a_producer(settings: Settings, **more: str) -> Producer:
    return Producer({**settings.kafka(KafkaUser.ADMIN), "acks": "all", **more})


def send(producer: Producer) -> None:
    """Send an event of the person, and wait until Kafka has acknowledged it."""
    event = {"event_id": uuid.uuid4().hex, "visitor_id": PERSON}
    producer.produce(TOPIC, json.dumps(event).encode(), partition=0)
    assert producer.flush(deadline(30)) == 0


def require_closed(settings: Settings) -> None:
    broker = topics.client(settings)
    if topics.committed_ends(broker, [TOPIC]) != topics.ends(broker, [TOPIC]):
        raise ServiceDown("a transaction is open")


def test_an_event_behind_an_open_transaction_is_covered(platform: Settings) -> None:
    """The archive reads it when the transaction has ended. Until then, the erasure waits and says for what."""
    impatient = platform.model_copy(update={"archive_wait_seconds": 0.1})
    transaction = a_producer(platform, **{"transactional.id": "forgetting"})
    transaction.init_transactions(deadline(30))
    transaction.begin_transaction()
    send(transaction)
    send(a_producer(platform))
    erasure = wanted(platform, NAMED)
    assert erasure.ends.at(TOPIC, 0) == 2
    with pytest.raises(ArchiveBehind, match=f"a transaction at 0 of {TOPIC} 0 has not ended"):
        wait_for_archive(impatient, erasure)

    transaction.abort_transaction(deadline(30))
    until(lambda: require_closed(platform), 30, "the end of the transaction")
    with pytest.raises(ArchiveBehind, match="Is the archive application running"):
        wait_for_archive(impatient, erasure)


def test_an_erasure_is_refused_while_the_log_of_a_topic_is_cut(platform: Settings) -> None:
    """A cut of another topic, or of an earlier topic with the name, refuses nothing."""
    ids = topics.topic_ids(platform, [TOPIC, "profile"])
    cut = Cut(TOPIC, ids[TOPIC], 0, epoch=0, position=9, end=1)
    others = [Cut("profile", ids["profile"], 0, 0, 9, 1), replace(cut, topic_id="an-earlier-life")]
    with connect(platform, autocommit=True) as connection:
        log_cuts.record_cuts(connection, others, "a test")
        wanted(platform, NAMED)
        log_cuts.record_cuts(connection, [cut], "a test")
        with pytest.raises(BadInput, match=f"the log of {TOPIC} was cut.*Run `truelog archive accept-cut`"):
            wanted(platform, NAMED)
        log_cuts.accept(connection, OpenCut(TOPIC, ids[TOPIC], 0, (1,), (0,), None), 9, "tester")
        wanted(platform, NAMED)
