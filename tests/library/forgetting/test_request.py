"""The request for an erasure: it covers every event that was acknowledged before, also behind open transactions."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from tests.deadline import deadline, until
from tests.library.archive_files import records_of, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.control import log_cuts
from truelog.control.log_cuts import OpenCut
from truelog.erasure.ledger import Entry, Step
from truelog.forgetting.receipt import receipt_of
from truelog.forgetting.request import preview, wait_for_archive, wanted
from truelog.log import topics
from truelog.log.leader_epochs import Cut
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput, ServiceDown
from truelog.support.settings import KafkaUser, Settings

TOPIC, PERSON = "page_view", "xanthippe-4711"
NOW = datetime.now(UTC)
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


def archive_likes(settings: Settings, *people: str) -> None:
    """Archive a like of each person as the first records of the topic's partition 0, without the topic."""
    topic_id = topics.topic_ids(settings, ["like"])["like"]
    event = {"occurred_at": "2026-03-01T00:00:00Z", "target_id": "p1", "verb": "liked"}
    values = [json.dumps(event | {"event_id": each, "person_id": each}).encode() for each in people]
    with open_catalog(settings) as catalog:
        table = ensure_table(catalog, load_events()["like"], topic_id, {0: 0})
        data = tuple(each.data_file for each in written(settings, table.metadata, records_of("like", values), "like"))
        commit(catalog, Append("like", topic_id, {0: 0}, {0: len(people)}, {0: len(people)}, data))


def require_gone(settings: Settings, *names: str) -> None:
    if left := topics.existing_topics(topics.client(settings, KafkaUser.ADMIN)) & {*names}:
        raise ServiceDown(f"Kafka still has {', '.join(left)}")


def test_a_deleted_topic_is_covered_as_far_as_it_is_archived(platform: Settings) -> None:
    """A topic that was never archived is left out. Its records are gone, and nothing can have them."""
    archive_likes(platform, "ann", "bob")
    whose = frozenset({("person_id", "ann")})
    before = wanted(platform, whose)
    broker = topics.client(platform, KafkaUser.ADMIN)
    for future in broker.delete_topics(["like", "share"]).values():
        future.result()
    until(lambda: require_gone(platform, "like", "share"), 30, "the end of the topics")

    erasure = wanted(platform, whose)
    assert (erasure.ends.offsets["like"], erasure.ends.ids["like"]) == ({0: 2}, before.ends.ids["like"])
    assert erasure.ends.only(["profile"]) == before.ends.only(["profile"])
    assert before.fields.keys() - erasure.fields.keys() == {"share"}
    wait_for_archive(platform, replace(erasure, ends=erasure.ends.only(["like"])))
    assert preview(platform, whose).records == {"like": 1}
    kept = receipt_of(platform, Entry(erasure, Step.PROVED, NOW, NOW, {"like": 1, "profile": 1})).kafka
    assert kept.keys() == {"profile"}


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
