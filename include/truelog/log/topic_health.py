"""Which topics a reader can trust now, and the proof that a topic has stayed the same topic while it was read.

One bad topic must not stop the reading of the others, so each topic is examined on its own.

The proof relies on the order of two events. The broker never uses a topic's id again, so if a topic has the expected id
now, every record that was read by the topic's name since the positions were taken belongs to that id. A reader
therefore checks the id after it has read the records and before it commits anything that it made from them. A check
before reading would prove nothing, because the topic could be deleted and created again in between.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from truelog.log import leader_epochs, topics
from truelog.log.admin_client import missing_topics
from truelog.log.leader_epochs import Epochs
from truelog.log.positions import Positions
from truelog.support.errors import TopicRefused
from truelog.support.settings import KafkaUser, Settings

_TIMEOUT = 10.0  # seconds


@dataclass(frozen=True)
class TopicHealth:
    """The earliest offsets of the good topics, and the reason for each topic that cannot be read."""

    earliest: Positions = field(default_factory=Positions)
    bad: Mapping[str, str] = field(default_factory=dict)


def examine_topics(broker: AdminClient, names: Iterable[str], registered: Mapping[str, str]) -> TopicHealth:
    """Examine each topic: it must exist, each partition must have a leader, and the broker must set the timestamps.

    `registered` contains the topic ids for which event types are registered. Another id is a topic created again, whose
    event type must be registered for the new topic first.

    Raises:
        ServiceDown: Kafka does not answer, so nothing is known about any topic.
    """
    earliest, bad = Positions(), dict[str, str]()
    for name in sorted(set(names)):
        try:
            found = topics.begins_by_partition(broker, [name])
            topics.require_broker_timestamps(broker, [name])
        except TopicRefused as refused:
            bad[name] = str(refused)
            continue
        topic_id = found.positions.ids[name]
        if found.unknown:
            bad[name] = " ".join(found.unknown.values())
        elif registered.get(name, topic_id) != topic_id:
            bad[name] = f"{name} was deleted and created again, and its file is not registered for the new topic yet."
        else:
            earliest = earliest.latest(found.positions)
    return TopicHealth(earliest, bad)


def gone_topics(settings: Settings, names: Collection[str], user: KafkaUser = KafkaUser.READER) -> set[str]:
    """The registered topics that Kafka no longer has. One that it only does not list, as when it starts, is not gone.

    A topic of another environment is gone, too, if the user may not see it.

    Raises:
        TopicRefused: Kafka does not show a topic.
        ServiceDown: Kafka does not answer.
    """
    broker = topics.client(settings, user)
    absent = set(names) - topics.existing_topics(broker)
    return absent if settings.reads_events else missing_topics(broker, absent, _TIMEOUT)


class TopicGuard:
    """Proves, after records were read, that their topics are still those in the positions. Safe for many threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self._broker = settings, topics.client(settings)

    def require_unchanged(self, read: Positions) -> None:
        """Require that each topic now has the id that it has in `read`.

        Raises:
            TopicRecreated: a topic was deleted and created again, so the records may belong to the new topic.
            TopicRefused: a topic no longer exists.
            ServiceDown: Kafka does not answer, so nothing is proved.
        """
        read.require_same_topics(Positions(ids=topics.current_ids(self._broker, read.ids)))

    def take_epochs(self, positions: Positions) -> Epochs:
        """The leader epochs of these partitions, which a reader takes before it reads."""
        return leader_epochs.take_epochs(self._broker, positions)

    def require_same_leaders(self, taken: Epochs, read: Positions) -> None:
        """Require, after records up to `read` were read, that no leader has changed since the epochs were taken.

        Raises:
            LeaderChanged: the batch must be repeated.
        """
        leader_epochs.require_same(taken, self.take_epochs(read))
