"""The request for an erasure: it covers every event that was acknowledged before, also behind open transactions."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.builders.commands import an_unread_event, forget_commands
from tests.builders.erasures import an_erasure, forget_erasures
from tests.deadline import deadline, until
from tests.library.archive_files import records_of, written
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, identifier, open_catalog
from truelog.batch.batch_context import BatchContext
from truelog.control import event_registry, log_cuts
from truelog.control.log_cuts import OpenCut
from truelog.erasure import ledger
from truelog.erasure.ledger import Entry, Step
from truelog.forgetting.forget import perform_all
from truelog.forgetting.receipt import receipt_of
from truelog.forgetting.request import in_kafka, preview, requests, wait_for_archive, wanted
from truelog.log import topics
from truelog.log.leader_epochs import Cut
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.errors import ArchiveBehind, BadInput, ServiceDown
from truelog.support.settings import KafkaUser, Settings

TOPIC, PERSON = "page_view", "xanthippe-4711"
NOW = datetime.now(UTC)
NAMED = frozenset({("visitor_id", PERSON)})


def a_producer(settings: Settings, **more: str) -> Producer:
    return Producer({**settings.kafka(KafkaUser.ADMIN), "acks": "all", **more})


def send(producer: Producer, topic: str = TOPIC) -> None:
    """Send an event of the person, and wait until Kafka has acknowledged it."""
    event = {"event_id": uuid.uuid4().hex, "visitor_id": PERSON}
    producer.produce(topic, json.dumps(event).encode(), partition=0)
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


def archive(settings: Settings, topic: str, topic_id: str, field: str, *people: str) -> None:
    """Archive an event of each person as the first records of the topic's partition 0, without the topic."""
    event = {"occurred_at": "2026-03-01T00:00:00Z", "target_id": "p1", "verb": "liked"}
    values = [json.dumps(event | {"event_id": each, field: each}).encode() for each in people]
    with open_catalog(settings) as catalog:
        table = ensure_table(catalog, load_events()[topic], topic_id, {0: 0})
        data = tuple(each.data_file for each in written(settings, table.metadata, records_of(topic, values), topic))
        commit(catalog, Append(topic, topic_id, {0: 0}, {0: len(people)}, {0: len(people)}, data))


def require_gone(settings: Settings, *names: str) -> None:
    if left := topics.existing_topics(topics.client(settings, KafkaUser.ADMIN)) & {*names}:
        raise ServiceDown(f"Kafka still has {', '.join(left)}")


def test_a_deleted_topic_is_covered_as_far_as_it_is_archived(platform: Settings) -> None:
    """A topic that was never archived is left out. Its records are gone, and nothing can have them."""
    archive(platform, "like", topics.topic_ids(platform, ["like"])["like"], "person_id", "ann", "bob")
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


def test_the_records_of_an_earlier_topic_are_erased_too(platform: Settings) -> None:
    """Before and after an operator has renamed its table, so that the archive reads the new topic."""
    name, old = identifier("comment"), "log.comment_of_2025"
    archive(platform, "comment", "an-earlier-id", "author_id", "ann", "bob")
    whose, types = frozenset({("author_id", "ann")}), event_registry.confirmed_types(platform)
    now, earlier = requests(platform, whose)
    assert now.ends.ids["comment"] == topics.topic_ids(platform, ["comment"])["comment"]
    assert earlier.ends == Positions({"comment": {0: 2}}, {"comment": "an-earlier-id"})
    assert preview(platform, whose).records == {"comment": 1}
    context = BatchContext(cast(SparkSession, None), platform, types)
    with (
        open_catalog(platform) as catalog,
        connect(platform, autocommit=True) as connection,
        ledger.exclusive(connection),
    ):
        an_erasure(connection, earlier, Step.COUNTED)  # when the table is renamed
        catalog.rename_table(name, old)
        ensure_table(catalog, types["comment"], now.ends.ids["comment"], dict.fromkeys(range(4), 0))
        an_unread_event(connection, "comment", b"{}")  # which can only get into the new topic
        assert preview(platform, whose).records == {"comment": 1}
        [done] = perform_all(context, connection, [earlier], "tester")
        kept = catalog.load_table(old).scan().to_arrow().sort_by("offset")
        forget_commands(connection)
        forget_erasures(connection)
    assert done.entry.is_finished
    assert (kept["erased"].to_pylist(), kept["value"][0].as_py()) == ([True, False], None)
    assert receipt_of(platform, replace(done.entry, records={"comment": 1})).kafka == {}
    [_] = requests(platform, whose)
    assert preview(platform, whose).records == {}


@pytest.mark.parametrize("again", [False, True])
def test_the_rest_of_a_topic_that_is_gone_is_not_waited_for(platform: Settings, again: bool) -> None:
    """Its last records are nowhere. So one topic does not hold back the erasure of all others for ever."""
    topic, types = "follow" if again else "post", load_events()
    impatient = platform.model_copy(update={"archive_wait_seconds": 0.1})
    send(a_producer(platform), topic)
    erasure = wanted(platform, frozenset({(types[topic].topic.subject[0], "ann")}))
    erasure = replace(erasure, ends=erasure.ends.only([topic]))
    with pytest.raises(ArchiveBehind, match="the archive is 1 events behind"):
        wait_for_archive(impatient, erasure)
    broker = topics.client(platform, KafkaUser.ADMIN)  # in a variable, because its requests end with the client
    broker.delete_topics([topic])[topic].result(deadline(30))
    until(lambda: require_gone(platform, topic), 30, "the end of the topic")
    if again:
        topics.sync_topics(platform, {topic: types[topic]})
    assert in_kafka(platform, erasure.ends) == set()
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
