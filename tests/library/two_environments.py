"""Two environments on one Kafka, each with the topic `visits`."""

from tests.deadline import deadline
from truelog.kafka.producer import open_producer
from truelog.log import access, topics
from truelog.log.admin_client import Client
from truelog.schema.event import Event, EventType, Topic
from truelog.support.settings import KafkaUser, Settings


class Visit(Event):
    """A visit."""

    user: str


VISITS = {"visits": EventType("visits", Visit, Topic("user", ("user",), 2, "7 days"))}


def namespaced(kafka: Settings, namespace: str, records: int) -> Settings:
    """An environment whose topic has so many records in its first partition."""
    made = kafka.model_copy(update={"namespace": namespace})
    access.create_users(topics.client(made, KafkaUser.ADMIN), made)
    topics.sync_topics(made, VISITS)
    producer = open_producer({**made.kafka(KafkaUser.PRODUCER), "acks": "all"})
    for _ in range(records):
        producer.produce("visits", namespace.encode(), partition=0)
    assert producer.flush(deadline(15)) == 0
    return made


def outside(settings: Settings) -> Client:
    """A client that sees what Kafka has, by Kafka's names."""
    return topics.client(settings.model_copy(update={"namespace": ""}), KafkaUser.ADMIN)
