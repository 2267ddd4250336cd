"""A client for Kafka's administration, whose errors become exceptions of the platform."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from truelog.kafka.admin_client import NamedAdminClient
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings

# Errors from a broker that is starting or losing leadership. `retriable()` is true only for transaction errors.
_TRANSIENT = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)

_CURES = {
    KafkaError._AUTHENTICATION: "Check the {sign_in} settings",
    KafkaError._SSL: "Check TRUELOG_KAFKA_CA_FILE and TRUELOG_KAFKA_BOOTSTRAP: `truelog doctor` says more",
}


class Client(NamedAdminClient):
    """A client that reports errors only through exceptions, not on standard error."""

    def __init__(self, settings: Settings, user: KafkaUser) -> None:
        self._errors: list[KafkaError] = []
        self._sign_in = settings.kafka_sign_in_settings
        config: dict[str, Any] = {**settings.kafka(user), "error_cb": self._errors.append, "log_level": 0}
        super().__init__(config)

    def refusal(self) -> str:
        """Why Kafka refuses the principal, or why the client refuses Kafka; an empty string if neither does.

        Otherwise a wrong password and a wrong certificate would look like silence.
        """
        self.poll(0)
        found = {error.code(): error.str() for error in self._errors}
        self._errors.clear()
        cures = {code: cure.format(sign_in=self._sign_in) for code, cure in _CURES.items()}
        return next((f"{found[code]}. {cure}" for code, cure in cures.items() if code in found), "")


def reason(broker: AdminClient, error: KafkaError) -> str:
    return (broker.refusal() if isinstance(broker, Client) else "") or error.str()


def result(broker: AdminClient, topic: str, future: "Future[Any]", unless: int | None = None) -> Any:
    """The broker's answer about the topic, or None for the error `unless`. Other errors become platform exceptions."""
    try:
        return future.result()
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        if error.code() == unless:
            return None
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicRefused(f"Kafka has no topic {topic}; `truelog up` creates the declared topics.") from None
        if error.code() < 0 or error.code() in _TRANSIENT:
            why = reason(broker, error)
            raise ServiceDown(f"Kafka did not answer about {topic}: {why}; see `truelog status`.") from failed
        raise TopicRefused(f"{topic}: {error.str()}.") from failed


def settled(
    broker: AdminClient, futures: Mapping[str, "Future[Any]"], unless: int | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The broker's answers by topic, and the reasons for the topics that it refuses."""
    answers, refused = dict[str, Any](), dict[str, str]()
    for name, future in futures.items():
        try:
            answers[name] = result(broker, name, future, unless)
        except TopicRefused as error:
            refused[name] = str(error)
    return answers, refused


def describe_all(broker: AdminClient, topics: Iterable[str], timeout: float) -> dict[str, TopicDescription]:
    """The topics, which must exist."""
    return {name: result(broker, name, future) for name, future in _descriptions(broker, topics, timeout).items()}


def describe_existing(
    broker: AdminClient, topics: Iterable[str], timeout: float
) -> tuple[dict[str, TopicDescription], dict[str, str]]:
    """The topics that Kafka has, and the reasons for the other topics."""
    return settled(broker, _descriptions(broker, topics, timeout))


def missing_topics(broker: AdminClient, topics: Iterable[str], timeout: float) -> set[str]:
    """The topics that Kafka does not have.

    Raises:
        TopicRefused: the principal may not see one of them, so nothing is known about it.
    """
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    asked = _descriptions(broker, topics, timeout)
    return {name for name, future in asked.items() if result(broker, name, future, unknown) is None}


def _descriptions(broker: AdminClient, topics: Iterable[str], timeout: float) -> dict[str, "Future[Any]"]:
    names = list(topics)
    return broker.describe_topics(TopicCollection(names), request_timeout=timeout) if names else {}
