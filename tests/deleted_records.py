"""Deletes records at the beginning of a partition, as Kafka's retention does.

`AdminClient.delete_records` of confluent-kafka 2.11.1 releases one reference too many to its list. The memory then
belongs to two objects, and the process crashes or hangs some time later. So no test calls that method itself.
"""

import ctypes
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.deadline import deadline


def deletions(broker: AdminClient, *places: TopicPartition) -> Mapping[TopicPartition, Future[Any]]:
    """The answers to the deletion of all records below these offsets. They need the client."""
    listed = list(places)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(listed))
    answers: Mapping[TopicPartition, Future[Any]] = broker.delete_records(listed)
    return answers


def delete_records(broker: AdminClient, *places: TopicPartition) -> None:
    """Delete all records below these offsets."""
    for answered in deletions(broker, *places).values():
        answered.result(deadline(30))
