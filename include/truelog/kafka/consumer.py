"""A consumer whose topics have the platform's names."""

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import Message, TopicPartition

from truelog.kafka.options import opened, refused
from truelog.support.setting_groups.namespace import Names


def open_consumer(config: Mapping[str, Any]) -> confluent_kafka.Consumer:
    """A consumer with the options of `settings.kafka(…)` and more. Without a namespace, it is librdkafka's own."""
    return opened(config, confluent_kafka.Consumer, Consumer)


class Consumer(confluent_kafka.Consumer):  # type: ignore[misc]  # confluent-kafka has no types
    """A consumer of one environment. A method that would take other names is refused."""

    def __init__(self, config: dict[str, Any], names: Names) -> None:
        super().__init__(config)
        self._names = names

    def assign(self, partitions: list[TopicPartition]) -> None:
        super().assign(self._outside(partitions))

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        super().incremental_assign(self._outside(partitions))

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        super().incremental_unassign(self._outside(partitions))

    def get_watermark_offsets(self, partition: TopicPartition, *args: Any, **more: Any) -> Any:
        [outside] = self._outside([partition])
        return super().get_watermark_offsets(outside, *args, **more)

    def poll(self, timeout: float = -1) -> Message | None:
        message = super().poll(timeout)
        return message and self._inside(message)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        return [self._inside(each) for each in super().consume(num_messages, timeout)]

    subscribe = commit = committed = position = seek = pause = resume = store_offsets = refused
    offsets_for_times = list_topics = assignment = refused

    def _inside(self, message: Message) -> Message:
        topic = message.topic()  # None in an error of the whole client
        return message if topic is None else _Named(message, self._names.name_of(topic) or topic)

    def _outside(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(
                self._names.topic_of(each.topic),
                each.partition,
                each.offset,
                leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch,
            )
            for each in partitions
        ]


class _Named:
    """A message whose topic has the platform's name."""

    def __init__(self, message: Message, topic: str) -> None:
        self._message, self._topic = message, topic

    def topic(self) -> str:
        return self._topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)
