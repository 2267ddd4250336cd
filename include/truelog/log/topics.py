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

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
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
from truelog.log.admin_client import Client, describe_all, describe_existing, reason, result, settled
from truelog.log.positions import Positions
from truelog.schema.event import EventType, Topic
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import until

_TIMEOUT = 10.0
_SHORT_TIMEOUT = 3.0  # for a caller that checks every few seconds
_TIMESTAMPS = "message.timestamp.type"
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

    Raises:
        TopicRefused: a topic cannot be created or corrected. It remains unchanged, and the others are as declared.
    """
    if refused := sync_each(settings, types):
        raise TopicRefused(" ".join(refused.values()))


def sync_each(settings: Settings, types: Mapping[str, EventType], *, grow: bool = True) -> dict[str, str]:
    """The same, but return the reason for each refused topic. Each step is one request for all topics.

    If `grow` is false, a topic with fewer partitions than declared is left alone.

    1. Refuse topics that cannot be corrected.
    2. Create missing topics, add partitions, and set the configuration.
    3. Let the topics' producers write to them.
    4. Wait until every partition has a leader.
    """
    if not types:
        return {}
    settings.require_own_events("the creation of event topics")
    broker = client(settings, KafkaUser.ADMIN)
    present, _ = describe_existing(broker, types, _TIMEOUT)
    refused = _uncorrectable(broker, present, types)  # 1
    small = {name for name, each in present.items() if _lacks(each, types[name].topic)}
    topics = {name: each.topic for name, each in types.items() if grow or name not in small}
    refused |= _create(broker, {name: each for name, each in topics.items() if name not in present})  # 2
    present = {name: each for name, each in present.items() if name in topics.keys() - refused}
    refused |= _add_partitions(broker, {n: topics[n] for n, each in present.items() if _lacks(each, topics[n])})
    refused |= _configure(broker, {name: topics[name] for name in present if name not in refused})
    good = {name: each for name, each in topics.items() if name not in refused}
    access.grant_writing(broker, settings.names, good)  # 3
    _wait_for_leaders(broker, good)  # 4
    return refused


def client(settings: Settings, user: KafkaUser = KafkaUser.READER) -> Client:
    return Client(settings, user)


def topic_ids(settings: Settings, topics: Iterable[str]) -> dict[str, str]:
    """The id that the broker assigned to each topic when it was created."""
    return current_ids(client(settings), topics)


def current_ids(broker: AdminClient, topics: Iterable[str]) -> dict[str, str]:
    """The same as `topic_ids`, with the caller's client."""
    return {name: str(found.topic_id) for name, found in describe_all(broker, topics, _TIMEOUT).items()}


def partition_counts(broker: AdminClient, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each of these topics has. A topic that Kafka does not have is left out."""
    return {name: len(found.partitions) for name, found in describe_existing(broker, topics, _TIMEOUT)[0].items()}


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


def ends_of_existing(broker: AdminClient, topics: Iterable[str]) -> tuple[PartitionOffsets, dict[str, str]]:
    """The end offsets that the brokers return, and the reason for each topic that Kafka does not have."""
    described, refused = describe_existing(broker, topics, _TIMEOUT)
    latest = OffsetSpec.latest()
    return _offsets_of(broker, described, latest, IsolationLevel.READ_UNCOMMITTED), refused


def committed_ends(broker: AdminClient, topics: Iterable[str]) -> Positions:
    """The end offsets for readers of committed records. An open transaction holds them back."""
    return committed_ends_by_partition(broker, topics).whole()


def committed_ends_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The same as `committed_ends`, without requiring all of them."""
    latest = OffsetSpec.latest()
    return _offsets(broker, topics, latest, IsolationLevel.READ_COMMITTED)


def first_since(broker: AdminClient, topics: Iterable[str], moment: datetime) -> datetime | None:
    """When the first committed record after `moment` arrived, by the broker's clock. None if there is no such record.

    Raises:
        ServiceDown: no such record was found, and the state of at least one partition is unknown.
    """
    after = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000) + 1)
    described = describe_all(broker, topics, _SHORT_TIMEOUT)
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
    keys, epochs = list(partitions), dict[PartitionKey, int]()

    def ask() -> None:
        try:
            epochs.update(_leader_epochs(broker, keys))
        except ServiceDown:
            existing_topics(broker)  # refreshes the client's leaders, which a crash of the broker leaves out of date
            raise

    until(ask, _SHORT_TIMEOUT, "leader epochs")  # a broker that has just started can still name its former leaders
    return epochs


def _leader_epochs(broker: AdminClient, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    latest = OffsetSpec.latest()
    wanted = {TopicPartition(*key): latest for key in partitions}
    found = broker.list_offsets(wanted, request_timeout=_TIMEOUT) if wanted else {}
    answers = {(each.topic, each.partition): result(broker, each.topic, future) for each, future in found.items()}
    return {key: answer.leader_epoch for key, answer in answers.items()}


def ends_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The end offsets that the brokers return. Unlike `ends`, this function does not require all of them."""
    return _offsets(broker, topics, OffsetSpec.latest())


def begins_by_partition(broker: AdminClient, topics: Iterable[str]) -> PartitionOffsets:
    """The first offsets that the brokers return. Unlike `begins`, this function does not require all of them."""
    return _offsets(broker, topics, OffsetSpec.earliest())


def existing_topics(broker: AdminClient) -> set[str]:
    """The names of all topics."""
    try:
        return set(broker.list_topics(timeout=_TIMEOUT).topics)
    except KafkaException as error:
        raise ServiceDown(f"Kafka did not answer: {reason(broker, error.args[0])}; see `truelog status`.") from error


def retention_seconds(broker: AdminClient, topics: Iterable[str]) -> dict[str, float | None]:
    """For each topic, the number of seconds that the brokers currently keep its records. None means forever."""
    return {name: _retention(entries) for name, entries in _configurations(broker, topics).items()}


def longest_seconds(broker: AdminClient, topics: Iterable[str]) -> dict[str, float | None]:
    """The same for the last record of each topic, which the brokers delete with its whole segment."""
    found = _configurations(broker, topics).items()
    segments = {name: int(str(entries["segment.ms"].value)) / 1000 for name, entries in found}
    return {name: None if (kept := _retention(each)) is None else kept + segments[name] for name, each in found}


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
    require_broker_timestamps(broker, describe_all(broker, topics, _TIMEOUT))


def require_broker_timestamps(broker: AdminClient, topics: Iterable[str]) -> None:
    """The same as `require_log_append_time`, with the caller's client and topics that exist."""
    for name, entries in _configurations(broker, topics).items():
        if why := _producer_timestamps(name, entries):
            raise TopicRefused(why)


def _producer_timestamps(name: str, entries: Mapping[str, ConfigEntry]) -> str:
    """Why the topic is refused if its records do not have the broker's time, or an empty string."""
    value = entries[_TIMESTAMPS].value
    if value == "LogAppendTime":
        return ""
    return (
        f"{name} has {_TIMESTAMPS}={value}: its records carry timestamps from their producers' clocks, and its "
        "existing records cannot be corrected. Send to a topic that `truelog up` created, or delete this topic "
        "and run `truelog up`."
    )


def _configurations(broker: AdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, ConfigEntry]]:
    return {name: result(broker, name, future) for name, future in _configuration_requests(broker, topics).items()}


def _configuration_requests(broker: AdminClient, topics: Iterable[str]) -> dict[str, "Future[Any]"]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = broker.describe_configs(resources, request_timeout=_TIMEOUT) if resources else {}
    return {each.name: future for each, future in found.items()}


def _uncorrectable(
    broker: AdminClient, present: Mapping[str, TopicDescription], types: Mapping[str, EventType]
) -> dict[str, str]:
    """The topics that cannot become as declared, with the reasons."""
    entries, refused = settled(broker, _configuration_requests(broker, present))
    for name, each in entries.items():
        partitions = len(present[name].partitions)
        if why := _producer_timestamps(name, each) or _fewer_partitions(name, partitions, types[name].topic):
            refused[name] = why
    return refused


def _fewer_partitions(name: str, partitions: int, topic: Topic) -> str:
    """Why the topic is refused if it has more partitions than declared, or an empty string."""
    if partitions <= topic.partitions:
        return ""
    return (
        f"{name} has {partitions} partitions, but its declaration says {topic.partitions}: partitions "
        f"cannot be removed. Declare `partitions={partitions}` in include/events/{name}.py."
    )


def _lacks(found: TopicDescription, topic: Topic) -> bool:
    """Whether the topic has fewer partitions than declared."""
    return len(found.partitions) < topic.partitions


def _create(broker: AdminClient, topics: Mapping[str, Topic]) -> dict[str, str]:
    new = [NewTopic(name, topic.partitions, config=_config(topic)) for name, topic in topics.items()]
    futures = broker.create_topics(new, request_timeout=_TIMEOUT) if new else {}
    return settled(broker, futures, unless=KafkaError.TOPIC_ALREADY_EXISTS)[1]  # a concurrent call created it


def _add_partitions(broker: AdminClient, topics: Mapping[str, Topic]) -> dict[str, str]:
    new = [NewPartitions(name, topic.partitions) for name, topic in topics.items()]
    return settled(broker, broker.create_partitions(new, request_timeout=_TIMEOUT) if new else {})[1]


def _configure(broker: AdminClient, topics: Mapping[str, Topic]) -> dict[str, str]:
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=_entries(topic)) for name, topic in topics.items()
    ]
    changed = broker.incremental_alter_configs(resources, request_timeout=_TIMEOUT) if resources else {}
    return settled(broker, {each.name: future for each, future in changed.items()})[1]


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


def _wait_for_leaders(broker: AdminClient, topics: Mapping[str, Topic]) -> None:
    deadline = time.monotonic() + 3 * _TIMEOUT
    while left := _incomplete(broker, topics):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(left))
            raise ServiceDown(f"Kafka has not elected a leader for some partitions of {names}; is a broker missing?")
        time.sleep(0.05)


def _incomplete(broker: AdminClient, topics: Mapping[str, Topic]) -> set[str]:
    """The topics with partitions that are missing or have no leader. The broker may not know a new topic yet."""
    found, unknown = describe_existing(broker, topics, _TIMEOUT)
    missing = {name for name, each in found.items() if len(each.partitions) != topics[name].partitions}
    return missing.union(unknown, (name for name, _ in partitions_without_leader(found.values())))


def partitions_without_leader(described: Iterable[TopicDescription]) -> dict[PartitionKey, str]:
    """The partitions without a leader, each with a message. No broker would answer a request about them."""
    return {
        (found.name, each.id): f"{found.name} {each.id} has no leader: is a broker missing? See `truelog status`."
        for found in described
        for each in found.partitions
        if each.leader is None or each.leader.id < 0
    }


def _offsets(
    broker: AdminClient,
    topics: Iterable[str],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> PartitionOffsets:
    return _offsets_of(broker, describe_all(broker, topics, _TIMEOUT), spec, isolation)


def _offsets_of(
    broker: AdminClient, described: Mapping[str, TopicDescription], spec: OffsetSpec, isolation: IsolationLevel
) -> PartitionOffsets:
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
            answers[key] = result(broker, partition.topic, future)
        except ServiceDown as down:
            unknown[key] = str(down)
    return answers, unknown
