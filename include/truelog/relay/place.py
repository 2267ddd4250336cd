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
from truelog.support.wait import until

_READABLE_SECONDS = 1.0  # longer than most transactions of a relay; meanwhile, the other relays of the service wait

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
    """The place of each feed that was committed before this call.

    All feeds share the topic, so a relay that died in its transaction hides later places of other feeds. An earlier
    place would repeat rows, so no place is returned until that transaction has ended.

    Raises:
        TopicRefused: no relay has created the topic yet.
        ServiceDown: a transaction has not ended. Its relay ends it when it starts again, or else Kafka after a time.
        ServiceDown, KafkaException: Kafka did not answer.
    """
    broker, found = topics.client(settings), dict[str, Place]()
    begin = topics.begins(broker, [RELAY_PLACES]).at(RELAY_PLACES, 0)
    end = topics.ends(broker, [RELAY_PLACES]).at(RELAY_PLACES, 0)

    def read() -> None:
        for each in messages(settings, RELAY_PLACES, 0, begin, end):
            key, value = each.key(), each.value()
            if key is not None and value is not None:
                found[_text(key)] = Place(**json.loads(value))

    until(read, _READABLE_SECONDS, "the places of the relays")
    return found


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()
