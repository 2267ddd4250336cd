"""Topics: the declared ones made as declared, and what the broker says about them.

Only a topic that stamps records with the broker's own time (LogAppendTime) is read: a producer's clock must not
decide when a record came [36]. A topic is known by its id, since one deleted and made again starts its offsets anew.
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

from truelog.log.positions import Positions
from truelog.schema.event import EventType, Topic
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import Settings

_TIMEOUT = 10.0
_SOON = 3.0  # where somebody looks on
_TIMESTAMPS = "message.timestamp.type"
# What a broker answers while it starts or loses its lead; `retriable()` knows these of transactions alone.
_PASSING = frozenset(
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
# Compaction must not outrun the archive, which would then miss records [24].
_COMPACTION_LAG_MS = 7 * 86_400_000


PartitionKey = tuple[str, int]  # topic, partition


@dataclass(frozen=True)
class PartitionOffsets:
    """Where partitions begin or end; and of those of which the brokers do not tell, why."""

    positions: Positions
    untold: Mapping[PartitionKey, str]

    def whole(self) -> Positions:
        """Of all of them, or none.

        Raises:
            ServiceDown: of some partition nothing is told.
        """
        if self.untold:
            raise ServiceDown(" ".join(self.untold.values()))
        return self.positions


def apply(settings: Settings, types: Mapping[str, EventType]) -> None:
    """Make the topics as they are declared; what is right already is left as it is.

    1. Refuse, before anything is changed, what cannot be made right.
    2. Create what is missing, add partitions, set the configuration.
    3. Wait until every partition has a leader.
    """
    broker = client(settings)
    there = existing_topics(broker)
    present = _described(broker, [name for name in types if name in there])
    _require_log_append_time(broker, present)
    for name, description in present.items():
        _require_no_fewer(name, len(description.partitions), types[name].topic)
    _create(broker, {name: each.topic for name, each in types.items() if name not in present})
    _grow(broker, {name: types[name].topic for name, found in present.items() if _is_short(found, types[name])})
    _configure(broker, {name: types[name].topic for name in present})
    _wait_for_leaders(broker, types)


def client(settings: Settings) -> AdminClient:
    """A client that says what fails by exceptions alone."""
    return AdminClient({**settings.kafka(), "log_level": 0})


def topic_ids(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """The id that the broker gave each topic when it was created."""
    return {name: str(found.topic_id) for name, found in _described(client(settings), topics).items()}


def end_offsets(settings: Settings, topics: Iterable[str]) -> Positions:
    """Past the last record of each partition."""
    return ends(client(settings), topics)


def earliest_offsets(settings: Settings, topics: Iterable[str]) -> Positions:
    """The first record of each partition that retention has left."""
    return begins(client(settings), topics)


def ends(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """`end_offsets` by a client that the caller keeps."""
    return ends_by_partition(broker, topics).whole()


def begins(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """`earliest_offsets` by a client that the caller keeps."""
    return begins_by_partition(broker, topics).whole()


def committed_ends(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """Past the last record that those are given who read what is committed: a transaction left open ends the log."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return _offsets(broker, topics, latest, IsolationLevel.READ_COMMITTED).whole()


def first_since(broker: AdminClient, topics: Iterable[str], moment: datetime) -> datetime | None:
    """When the first committed record after `moment` came, by the broker's clock; None where none has come.

    Raises:
        ServiceDown: none is known of, and not all partitions are.
    """
    after = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000) + 1)
    described = _described(broker, topics, _SOON)
    answers, untold = _answers(broker, described, after, IsolationLevel.READ_COMMITTED)
    came = [each.timestamp for each in answers.values() if each.offset >= 0]
    if untold and not came:
        raise ServiceDown(" ".join(untold.values()))
    return datetime.fromtimestamp(min(came) / 1000, UTC) if came else None


def ends_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The same, as far as the brokers tell it."""
    return _offsets(broker, topics, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def begins_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The same, as far as the brokers tell it."""
    return _offsets(broker, topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]


def existing_topics(broker: AdminClient) -> set[str]:
    """Every topic that there is."""
    try:
        return set(broker.list_topics(timeout=_TIMEOUT).topics)
    except KafkaException as failed:
        raise ServiceDown(f"Kafka did not answer: {failed.args[0].str()}; see `truelog status`.") from failed


def retention_seconds(broker: AdminClient, topics: Iterable[str]) -> dict[str, float | None]:
    """Seconds for which the brokers keep a record of each topic, by what they go by now; None for ever."""
    return {name: _retention(told) for name, told in _configurations(broker, topics).items()}


def _retention(told: Mapping[str, ConfigEntry]) -> float | None:
    milliseconds = int(str(told["retention.ms"].value))
    forever = milliseconds < 0 or "delete" not in str(told["cleanup.policy"].value)
    return None if forever else milliseconds / 1000


def require_log_append_time(settings: Settings, topics: Iterable[str]) -> None:
    """Refuse topics whose records carry their producers' clocks."""
    broker = client(settings)
    _require_log_append_time(broker, _described(broker, topics))


def _require_log_append_time(broker: AdminClient, topics: Iterable[str]) -> None:
    for name, told in _configurations(broker, topics).items():
        stamped = told[_TIMESTAMPS].value
        if stamped != "LogAppendTime":
            raise TopicRefused(
                f"{name} has {_TIMESTAMPS}={stamped}: its records carry their producers' clocks, and those already in "
                "it always will. Send to a topic that `truelog up` made, or delete this one and let it be made anew."
            )


def _configurations(broker: AdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    if not resources:
        return {}
    found = broker.describe_configs(list(resources.values()), request_timeout=_TIMEOUT)
    return {name: _result(name, found[resource]) for name, resource in resources.items()}


def _require_no_fewer(name: str, partitions: int, topic: Topic) -> None:
    if partitions > topic.partitions:
        raise TopicRefused(
            f"{name} has {partitions} partitions, its declaration says {topic.partitions}: partitions cannot be taken "
            f"away. Declare `partitions={partitions}` in include/events/{name}.py."
        )


def _is_short(found: TopicDescription, event_type: EventType) -> bool:
    return len(found.partitions) < event_type.topic.partitions


def _create(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    new = [NewTopic(name, topic.partitions, config=_config(topic)) for name, topic in topics.items()]
    if new:
        for name, future in broker.create_topics(new, request_timeout=_TIMEOUT).items():
            _result(name, future, unless=KafkaError.TOPIC_ALREADY_EXISTS)  # somebody else applies them too


def _grow(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    more = [NewPartitions(name, topic.partitions) for name, topic in topics.items()]
    if more:
        for name, future in broker.create_partitions(more, request_timeout=_TIMEOUT).items():
            _result(name, future)


def _configure(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=_entries(topic)) for name, topic in topics.items()
    ]
    if resources:
        for resource, future in broker.incremental_alter_configs(resources, request_timeout=_TIMEOUT).items():
            _result(resource.name, future)


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
        if all(_is_led(broker, name, each.topic.partitions) for name, each in types.items()):
            return
        time.sleep(0.05)
    raise ServiceDown(f"Kafka elected no leaders for {', '.join(types)}; is a broker missing?")


def _is_led(broker: AdminClient, name: str, partitions: int) -> bool:
    try:
        found = _described(broker, [name])[name]
    except TopicRefused:  # made a moment ago, and not known to this broker yet
        return False
    return len(found.partitions) == partitions and not partitions_without_leader([found])


def partitions_without_leader(described: Iterable[TopicDescription]) -> dict[PartitionKey, str]:
    """The partitions that no broker answers for, which would be waited for in vain; each with the reason."""
    return {
        (found.name, each.id): f"{found.name} {each.id} has no leader: is a broker missing? See `truelog status`."
        for found in described
        for each in found.partitions
        if each.leader is None or each.leader.id < 0
    }


def _described(broker: AdminClient, topics: Iterable[str], timeout: float = _TIMEOUT) -> dict[str, TopicDescription]:
    names = list(topics)
    if not names:
        return {}
    futures = broker.describe_topics(TopicCollection(names), request_timeout=timeout)
    return {name: _result(name, futures[name]) for name in names}


def _offsets(
    broker: AdminClient,
    topics: Iterable[str],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> PartitionOffsets:
    described = _described(broker, topics)
    answers, untold = _answers(broker, described, spec, isolation)
    offsets: dict[str, dict[int, int]] = {name: {} for name in described}
    for (topic, partition), answer in answers.items():
        offsets[topic][partition] = answer.offset
    return PartitionOffsets(
        Positions(offsets, {name: str(found.topic_id) for name, found in described.items()}), untold
    )


def _answers(
    broker: AdminClient, described: Mapping[str, TopicDescription], spec: OffsetSpec, isolation: IsolationLevel
) -> tuple[dict[PartitionKey, ListOffsetsResultInfo], dict[PartitionKey, str]]:
    """What the brokers answer about each partition; and why they do not."""
    answers, untold = dict[PartitionKey, ListOffsetsResultInfo](), partitions_without_leader(described.values())
    places = [(name, each.id) for name, found in described.items() for each in found.partitions]
    asked = {TopicPartition(*place): spec for place in places if place not in untold}
    told = broker.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT)
    for partition, future in told.items():
        place = (partition.topic, partition.partition)
        try:
            answers[place] = _result(partition.topic, future)
        except ServiceDown as silent:
            untold[place] = str(silent)
    return answers, untold


def _result(topic: str, future: "Future[Any]", unless: int | None = None) -> Any:
    """What the broker answered about the topic; errors in the platform's words."""
    try:
        return future.result()
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        if error.code() == unless:
            return None
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicRefused(f"Kafka has no topic {topic}; `truelog up` makes those that are declared.") from None
        if error.code() < 0 or error.code() in _PASSING:
            raise ServiceDown(f"Kafka did not answer about {topic}: {error.str()}; see `truelog status`.") from failed
        raise TopicRefused(f"{topic}: {error.str()}.") from failed
