"""A client for Kafka's administration whose topics and groups have the platform's names.

It sees the topics of its environment. If the events are another environment's, it sees their topics and refuses to
change them.
Principals and rules have Kafka's names (`truelog.log.access`).
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from truelog.kafka.options import divided, refused

# With a namespace, these methods would need names that they do not know.
REFUSED = (
    "alter_configs",
    "delete_consumer_groups",
    "delete_records",
    "describe_consumer_groups",
    "elect_leaders",
    "list_consumer_group_offsets",
    "list_consumer_groups",
    "list_groups",
)

_Answers = dict[str, "Future[Any]"]


class NamedAdminClient(AdminClient):  # type: ignore[misc]  # confluent-kafka has no types
    """A client with the options of `settings.kafka(…)`. A method that would take other names is refused."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        known, self._names = divided(config)
        super().__init__(known)
        if self._names.namespace:
            for method in REFUSED:
                setattr(self, method, refused)

    def list_topics(self, *args: Any, **more: Any) -> ClusterMetadata:
        found = super().list_topics(*args, **more)
        named = {self._names.name_of(topic): each for topic, each in found.topics.items()}
        found.topics = {name: each for name, each in named.items() if name is not None}
        return found

    def describe_topics(self, topics: TopicCollection, **more: Any) -> _Answers:
        outside = TopicCollection([self._names.topic_of(each) for each in topics.topic_names])
        answers = self._inside(super().describe_topics(outside, **more))
        return {name: _changed(answer, partial(_renamed, name)) for name, answer in answers.items()}

    def list_offsets(
        self, requests: Mapping[TopicPartition, OffsetSpec], **more: Any
    ) -> dict[TopicPartition, "Future[Any]"]:
        outside = {TopicPartition(self._names.topic_of(p.topic), p.partition): spec for p, spec in requests.items()}
        answers = {(p.topic, p.partition): answer for p, answer in super().list_offsets(outside, **more).items()}
        return {each: answers[self._names.topic_of(each.topic), each.partition] for each in requests}

    def describe_configs(self, resources: Iterable[ConfigResource], **more: Any) -> dict[ConfigResource, "Future[Any]"]:
        return self._of_resources(super().describe_configs, self._names.topic_of, resources, more)

    def incremental_alter_configs(
        self, resources: Iterable[ConfigResource], **more: Any
    ) -> dict[ConfigResource, "Future[Any]"]:
        return self._of_resources(super().incremental_alter_configs, self._names.own_topic, resources, more)

    def create_topics(self, topics: Iterable[NewTopic], **more: Any) -> _Answers:
        own = self._names.own_topic
        outside = [
            NewTopic(own(each.topic), each.num_partitions, each.replication_factor, config=each.config or {})
            for each in topics
        ]
        return self._inside(super().create_topics(outside, **more))

    def create_partitions(self, partitions: Iterable[NewPartitions], **more: Any) -> _Answers:
        outside = [NewPartitions(self._names.own_topic(each.topic), each.new_total_count) for each in partitions]
        return self._inside(super().create_partitions(outside, **more))

    def delete_topics(self, topics: Iterable[str], **more: Any) -> _Answers:
        return self._inside(super().delete_topics([self._names.own_topic(each) for each in topics], **more))

    def alter_consumer_group_offsets(self, requests: Iterable[ConsumerGroupTopicPartitions], **more: Any) -> _Answers:
        outside = [self._group(each) for each in requests]
        return self._inside(super().alter_consumer_group_offsets(outside, **more))

    def _of_resources(
        self,
        ask: Callable[..., Any],
        topic_of: Callable[[str], str],
        resources: Iterable[ConfigResource],
        more: Mapping[str, Any],
    ) -> dict[ConfigResource, "Future[Any]"]:
        """The answers about topics, which are the only resources that the platform asks about."""
        given = {topic_of(each.name): each for each in resources}
        outside = [
            ConfigResource(each.restype, topic, incremental_configs=each.incremental_configs)
            for topic, each in given.items()
        ]
        return {given[each.name]: answer for each, answer in ask(outside, **more).items()}

    def _group(self, request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
        partitions = [
            TopicPartition(self._names.topic_of(each.topic), each.partition, each.offset)
            for each in request.topic_partitions or []
        ]
        return ConsumerGroupTopicPartitions(self._names.in_kafka(request.group_id), partitions)

    def _inside(self, answers: Mapping[str, "Future[Any]"]) -> _Answers:
        return {self._names.name_of(each) or each: answer for each, answer in answers.items()}


def _renamed(name: str, found: TopicDescription) -> TopicDescription:
    found.name = name
    return found


def _changed(answer: "Future[Any]", change: Callable[[Any], Any]) -> "Future[Any]":
    """The same answer, changed when it arrives."""
    changed: Future[Any] = Future()

    def arrived(ended: "Future[Any]") -> None:
        if (error := ended.exception()) is not None:
            changed.set_exception(error)
        else:
            changed.set_result(change(ended.result()))

    answer.add_done_callback(arrived)
    return changed
