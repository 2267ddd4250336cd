"""A producer whose topics have the platform's names."""

from collections.abc import Mapping
from typing import Any

import confluent_kafka

from truelog.kafka.options import opened
from truelog.support.setting_groups.namespace import Names


def open_producer(config: Mapping[str, Any]) -> confluent_kafka.Producer:
    """A producer with the options of `settings.kafka(…)` and more. Without a namespace, it is librdkafka's own."""
    return opened(config, confluent_kafka.Producer, Producer)


class Producer(confluent_kafka.Producer):  # type: ignore[misc]  # confluent-kafka has no types
    """A producer of one environment. The messages of its callbacks have Kafka's names of their topics.

    It refuses a topic of another environment (`ReadsOnly`).
    """

    def __init__(self, config: dict[str, Any], names: Names) -> None:
        super().__init__(config)
        self._names = names

    def produce(self, topic: str, *args: Any, **more: Any) -> None:
        super().produce(self._names.own_topic(topic), *args, **more)
