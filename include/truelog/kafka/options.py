"""Divides the options of a client into librdkafka's own and the names of the environment."""

from collections.abc import Mapping
from typing import Any

from truelog.support.setting_groups.kafka import NAMESPACE
from truelog.support.setting_groups.namespace import Names


def divided(config: Mapping[str, Any]) -> tuple[dict[str, Any], Names]:
    """The options that librdkafka knows, with the names of Kafka, and the names of the environment."""
    names = Names(config.get(NAMESPACE, ""))
    named = {each: names.in_kafka(config[each]) for each in ("group.id", "transactional.id") if each in config}
    return {option: value for option, value in config.items() if option != NAMESPACE} | named, names
