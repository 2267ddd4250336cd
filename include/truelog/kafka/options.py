"""What the clients of one environment share: their options, and the methods that they refuse."""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from truelog.support.setting_groups.kafka import NAMESPACE, READS
from truelog.support.setting_groups.namespace import Names

Made = TypeVar("Made")


def opened(config: Mapping[str, Any], plain: Callable[..., Made], named: Callable[..., Made]) -> Made:
    """A client of the environment that the options name, or librdkafka's own if they name none."""
    known, names = divided(config)
    return named(known, names) if names.namespace else plain(known)


def divided(config: Mapping[str, Any]) -> tuple[dict[str, Any], Names]:
    """The options that librdkafka knows, with the names of Kafka, and the names of the environment."""
    names = Names(config.get(NAMESPACE, ""), config.get(READS))
    named = {each: names.in_kafka(config[each]) for each in ("group.id", "transactional.id") if each in config}
    return {option: value for option, value in config.items() if option not in (NAMESPACE, READS)} | named, names


def refused(*_: Any, **__: Any) -> NoReturn:
    """Stands for a method that would take or return names of Kafka."""
    raise NotImplementedError("this method does not know the namespace")
