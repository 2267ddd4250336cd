"""Topics: their creation from declarations, and the broker's information about them.

Truelog reads only topics that stamp records with the broker's own time (LogAppendTime), because a producer's clock must
not decide when a record arrived. A topic is identified by its id, because a topic that was deleted and created again
starts at offset 0.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its annotations do not re-export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from truelog.log import access
from truelog.log.positions import Positions
from truelog.schema.event import EventType, Topic
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings

_TIMEOUT = 10.0
_SHORT_TIMEOUT = 3.0  # for a caller that checks every few seconds
_TIMESTAMPS = "message.timestamp.type"
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
# Compaction must not remove records that the archive has not read yet.
_COMPACTION_LAG_MS = 7 * 86_400_000


PartitionKey = tuple[str, int]  # topic, partition


@dataclass(frozen=True)
class PartitionOffsets:
    """The first or end offsets of partitions. `unknown` contains a reason for each partition without an answer."""

    positions: Positions
    unknown: Mapping[PartitionKey, str]

    def whole(self) -> Positions:
        """The offsets of all partitions.

        Raises:
            ServiceDown: the offset of at least one partition is unknown.
        """
        if self.unknown:
            raise ServiceDown(" ".join(self.unknown.values()))
        return self.positions


def sync_topics(settings: Settings, types: Mapping[str, EventType]) -> None:
    """Create and configure the topics as declared. Correct topics remain unchanged.

    1. Before any change, raise TopicRefused if a topic cannot be corrected.
    2. Create missing topics, add partitions, and set the configuration.
    3. Let the topics' producers write to them.
    4. Wait until every partition has a leader.
    """
    broker = client(settings, KafkaUser.ADMIN)
    existing = existing_topics(broker)
    present = _described(broker, [name for name in types if name in existing], _TIMEOUT)
    require_broker_timestamps(broker, present)
    for name, description in present.items():
        _require_no_fewer_partitions(name, len(description.partitions), types[name].topic)
    _create(broker, {name: each.topic for name, each in types.items() if name not in present})
    growing = {n: types[n].topic for n, found in present.items() if _needs_partitions(found, types[n])}
    _add_partitions(broker, growing)
    _configure(broker, {name: types[name].topic for name in present})
    access.grant_writing(broker, types)
    _wait_for_leaders(broker, types)


class Client(AdminClient):
    """A client that reports errors only through exceptions, not on standard error."""

    def __init__(self, settings: Settings, user: KafkaUser) -> None:
        self._errors: list[KafkaError] = []
        config: dict[str, Any] = {**settings.kafka(user), "error_cb": self._errors.append, "log_level": 0}
        super().__init__(config)

    def refusal(self) -> str:
        """Why Kafka refuses the principal, or an empty string. Otherwise a wrong password would look like silence."""
        self.poll(0)
        refusals = [error.str() for error in self._errors if error.code() == KafkaError._AUTHENTICATION]
        self._errors.clear()
        return f"{refusals[-1]}. Check the TRUELOG_KAFKA_…_PASSWORD settings" if refusals else ""


def client(settings: Settings, user: KafkaUser = KafkaUser.READER) -> Client:
    return Client(settings, user)


def topic_ids(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """The id that the broker assigned to each topic when it was created."""
    return current_ids(client(settings), topics)


def current_ids(broker: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """The same as `topic_ids`, with the caller's client."""
    return {name: str(found.topic_id) for name, found in _described(broker, topics, _TIMEOUT).items()}


def end_offsets(settings: Settings, topics: Iterable[str]) -> Positions:
    """The offset after the last record of each partition."""
    return ends(client(settings), topics)


def earliest_offsets(settings: Settings, topics: Iterable[str]) -> Positions:
    """For each partition, the offset of the first record that retention has not deleted."""
    return begins(client(settings), topics)


def ends(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """The same as `end_offsets`, with the caller's client."""
    return ends_by_partition(broker, topics).whole()


def begins(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """The same as `earliest_offsets`, with the caller's client."""
    return begins_by_partition(broker, topics).whole()


def committed_ends(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """The end offsets for readers of committed records. An open transaction holds them back."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return _offsets(broker, topics, latest, IsolationLevel.READ_COMMITTED).whole()


def first_since(broker: AdminClient, topics: Iterable[str], moment: datetime) -> datetime | None:
    """When the first committed record after `moment` arrived, by the broker's clock. None if there is no such record.

    Raises:
        ServiceDown: no such record was found, and the state of at least one partition is unknown.
    """
    after = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000) + 1)
    described = _described(broker, topics, _SHORT_TIMEOUT)
    answers, unknown = _answers(broker, described, after, IsolationLevel.READ_COMMITTED)
    arrivals = [each.timestamp for each in answers.values() if each.offset >= 0]
    if unknown and not arrivals:
        raise ServiceDown(" ".join(unknown.values()))
    return datetime.fromtimestamp(min(arrivals) / 1000, UTC) if arrivals else None


def leader_epochs(broker: AdminClient, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """The current leader epoch of each partition.

    Raises:
        ServiceDown: Kafka does not answer about a partition.
    """
    keys = list(partitions)
    try:
        return _leader_epochs(broker, keys)
    except ServiceDown:
        existing_topics(broker)  # refreshes the client's leaders, which a crash of the broker leaves out of date
        return _leader_epochs(broker, keys)


def _leader_epochs(broker: AdminClient, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(*key): latest for key in partitions}
    found = broker.list_offsets(wanted, request_timeout=_TIMEOUT) if wanted else {}
    answers = {(each.topic, each.partition): _result(broker, each.topic, future) for each, future in found.items()}
    return {key: answer.leader_epoch for key, answer in answers.items()}


def ends_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The end offsets that the brokers return. Unlike `ends`, this function does not require all of them."""
    return _offsets(broker, topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def begins_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The first offsets that the brokers return. Unlike `begins`, this function does not require all of them."""
    return _offsets(broker, topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def existing_topics(broker: AdminClient) -> set[str]:
    """The names of all topics."""
    try:
        return set(broker.list_topics(timeout=_TIMEOUT).topics)
    except KafkaException as error:
        raise ServiceDown(f"Kafka did not answer: {_reason(broker, error.args[0])}; see `truelog status`.") from error


def retention_seconds(broker: AdminClient, topics: Iterable[str]) -> dict[str, float | None]:
    """For each topic, the number of seconds that the brokers currently keep its records. None means forever."""
    return {name: _retention(entries) for name, entries in _configurations(broker, topics).items()}


def _retention(entries: Mapping[str, ConfigEntry]) -> float | None:
    milliseconds = int(str(entries["retention.ms"].value))
    forever = milliseconds < 0 or "delete" not in str(entries["cleanup.policy"].value)
    return None if forever else milliseconds / 1000


def compacted_topics(settings: Settings, topics: Iterable[str]) -> set[str]:
    """The topics from which the brokers currently remove records that have a newer record with the same key."""
    found = _configurations(client(settings), topics)
    return {name for name, entries in found.items() if "compact" in str(entries["cleanup.policy"].value)}


def require_log_append_time(settings: Settings, topics: Iterable[str]) -> None:
    """Raise TopicRefused if the records of a topic carry timestamps from their producers' clocks."""
    broker = client(settings)
    require_broker_timestamps(broker, _described(broker, topics, _TIMEOUT))


def require_broker_timestamps(broker: AdminClient, topics: Iterable[str]) -> None:
    """The same as `require_log_append_time`, with the caller's client and topics that exist."""
    for name, entries in _configurations(broker, topics).items():
        value = entries[_TIMESTAMPS].value
        if value != "LogAppendTime":
            raise TopicRefused(
                f"{name} has {_TIMESTAMPS}={value}: its records carry timestamps from their producers' clocks, and its "
                "existing records cannot be corrected. Send to a topic that `truelog up` created, or delete this topic "
                "and run `truelog up`."
            )


def _configurations(broker: AdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    if not resources:
        return {}
    found = broker.describe_configs(list(resources.values()), request_timeout=_TIMEOUT)
    return {name: _result(broker, name, found[resource]) for name, resource in resources.items()}


def _require_no_fewer_partitions(name: str, partitions: int, topic: Topic) -> None:
    if partitions > topic.partitions:
        raise TopicRefused(
            f"{name} has {partitions} partitions, but its declaration says {topic.partitions}: partitions "
            f"cannot be removed. Declare `partitions={partitions}` in include/events/{name}.py."
        )


def _needs_partitions(found: TopicDescription, event_type: EventType) -> bool:
    return len(found.partitions) < event_type.topic.partitions


def _create(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    new = [NewTopic(name, topic.partitions, config=_config(topic)) for name, topic in topics.items()]
    if new:
        for name, future in broker.create_topics(new, request_timeout=_TIMEOUT).items():
            _result(broker, name, future, unless=KafkaError.TOPIC_ALREADY_EXISTS)  # a concurrent call created it


def _add_partitions(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    new = [NewPartitions(name, topic.partitions) for name, topic in topics.items()]
    if new:
        for name, future in broker.create_partitions(new, request_timeout=_TIMEOUT).items():
            _result(broker, name, future)


def _configure(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=_entries(topic)) for name, topic in topics.items()
    ]
    if resources:
        for resource, future in broker.incremental_alter_configs(resources, request_timeout=_TIMEOUT).items():
            _result(broker, resource.name, future)


def _config(topic: Topic) -> dict[str, str]:
    return {
        _TIMESTAMPS: "LogAppendTime",
        "cleanup.policy": "compact" if topic.compacted else "delete",
        "retention.ms": str(topic.retention_ms),
        "min.compaction.lag.ms": str(_COMPACTION_LAG_MS if topic.compacted else 0),
    }


def _entries(topic: Topic) -> list[ConfigEntry]:
    return [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in _config(topic).items()
    ]


def _wait_for_leaders(broker: AdminClient, types: Mapping[str, EventType]) -> None:
    deadline = time.monotonic() + 3 * _TIMEOUT
    while time.monotonic() < deadline:
        if all(_has_leaders(broker, name, each.topic.partitions) for name, each in types.items()):
            return
        time.sleep(0.05)
    raise ServiceDown(f"Kafka has not elected a leader for some partitions of {', '.join(types)}; is a broker missing?")


def _has_leaders(broker: AdminClient, name: str, partitions: int) -> bool:
    try:
        found = _described(broker, [name], _TIMEOUT)[name]
    except TopicRefused:  # just created, and still unknown to this broker
        return False
    return len(found.partitions) == partitions and not partitions_without_leader([found])


def partitions_without_leader(described: Iterable[TopicDescription]) -> dict[PartitionKey, str]:
    """The partitions without a leader, each with a message. No broker would answer a request about them."""
    return {
        (found.name, each.id): f"{found.name} {each.id} has no leader: is a broker missing? See `truelog status`."
        for found in described
        for each in found.partitions
        if each.leader is None or each.leader.id < 0
    }


def _described(broker: AdminClient, topics: Iterable[str], timeout: float) -> dict[str, TopicDescription]:
    names = list(topics)
    if not names:
        return {}
    futures = broker.describe_topics(TopicCollection(names), request_timeout=timeout)
    return {name: _result(broker, name, futures[name]) for name in names}


def _offsets(
    broker: AdminClient,
    topics: Iterable[str],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> PartitionOffsets:
    described = _described(broker, topics, _TIMEOUT)
    answers, unknown = _answers(broker, described, spec, isolation)
    offsets: dict[str, dict[int, int]] = {name: {} for name in described}
    for (topic, partition), answer in answers.items():
        offsets[topic][partition] = answer.offset
    ids = {name: str(found.topic_id) for name, found in described.items()}
    return PartitionOffsets(Positions(offsets, ids), unknown)


def _answers(
    broker: AdminClient, described: Mapping[str, TopicDescription], spec: OffsetSpec, isolation: IsolationLevel
) -> tuple[dict[PartitionKey, ListOffsetsResultInfo], dict[PartitionKey, str]]:
    """The brokers' answer for each partition, and a reason for each partition without an answer."""
    answers, unknown = dict[PartitionKey, ListOffsetsResultInfo](), partitions_without_leader(described.values())
    keys = [(name, each.id) for name, found in described.items() for each in found.partitions]
    request = {TopicPartition(*key): spec for key in keys if key not in unknown}
    futures = broker.list_offsets(request, isolation_level=isolation, request_timeout=_TIMEOUT)
    for partition, future in futures.items():
        key = (partition.topic, partition.partition)
        try:
            answers[key] = _result(broker, partition.topic, future)
        except ServiceDown as down:
            unknown[key] = str(down)
    return answers, unknown


def _reason(broker: AdminClient, error: KafkaError) -> str:
    return (broker.refusal() if isinstance(broker, Client) else "") or error.str()


def _result(broker: AdminClient, topic: str, future: "Future[Any]", unless: int | None = None) -> Any:
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
            reason = _reason(broker, error)
            raise ServiceDown(f"Kafka did not answer about {topic}: {reason}; see `truelog status`.") from failed
        raise TopicRefused(f"{topic}: {error.str()}.") from failed
