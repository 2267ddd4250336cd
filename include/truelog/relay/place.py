"""The place of a relay: how far it has published its feed.

The place is a record of the topic `relay.places`, in the same Kafka transaction as the rows. A transaction that was
aborted therefore moves no place, and a relay that starts again knows exactly what its predecessor has published. The
topic is compacted, so it contains little more than the last place of each feed.
"""

import json
from dataclasses import asdict, dataclass

from truelog.log import topics
from truelog.log.access import RELAY_PLACES
from truelog.log.kafka_reader import messages
from truelog.support.settings import Settings

PLACES_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2**20),  # Kafka compacts no segment that it still writes
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class Place:
    """The last published row of a feed, and the beginning since which it was published."""

    number: int
    id: str
    beginning: str

    def as_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_places(settings: Settings) -> dict[str, Place]:
    """The committed place of each feed.

    Raises:
        TopicRefused: no relay has created the topic yet.
        ServiceDown, KafkaException: Kafka did not answer.
    """
    broker, found = topics.client(settings), dict[str, Place]()
    begins, ends = topics.begins(broker, [RELAY_PLACES]), topics.committed_ends(broker, [RELAY_PLACES])
    for each in messages(settings, RELAY_PLACES, 0, begins.at(RELAY_PLACES, 0), ends.at(RELAY_PLACES, 0)):
        key, value = each.key(), each.value()
        if key is not None and value is not None:
            found[_text(key)] = Place(**json.loads(value))
    return found


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()
