"""The topic of erasures: each erasure is an event, which a database that was restored from a backup reads again.

The topic is compacted by the id of the erasure, so it keeps all of them. An event that was sent twice is one erasure.
Only a principal of its own may write to the topic, and the secret of the hashes seals each event, so that no
other program can make or change an erasure.
"""

import hmac
import json
import logging
from datetime import UTC, datetime

from truelog.erasure.erasure import Erasure
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import seal, secret_check
from truelog.log import topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.log.kafka_reader import messages
from truelog.schema.event import EventType, EventTypes
from truelog.support.errors import NotSetUp
from truelog.support.settings import KafkaUser, Settings

TOPIC = "erasure"

log = logging.getLogger("truelog.forgetting")


def publish(settings: Settings, types: EventTypes, erasure: Erasure) -> None:
    """Send the event, and wait until all replicas have it."""
    model = _event_type(types).model
    text = erasure.as_text()
    content = {"erasure": str(erasure.id), "content": text, "seal": seal(secret_of(settings), text)}
    event = model.model_validate({"event_id": str(erasure.id), "occurred_at": datetime.now(UTC), **content})
    with KafkaSender(settings, [TOPIC], KafkaUser.ERASER) as sender:
        sender.send(OutgoingRecord(TOPIC, str(erasure.id), event.model_dump_json(exclude_none=True).encode()))


def read_published(settings: Settings, types: EventTypes) -> list[Erasure]:
    """The erasures of the topic, oldest first, also those of another secret. Other records are reported.

    Raises:
        NotSetUp: an earlier release has set up the home, so there is no such topic.
    """
    _event_type(types)
    return read_topic(settings)


def read_topic(settings: Settings) -> list[Erasure]:
    """The erasures of the topic, which must exist."""
    broker = topics.client(settings)
    begins, ends = topics.begins(broker, [TOPIC]), topics.committed_ends(broker, [TOPIC])
    found = dict[str, Erasure]()
    for each in messages(settings, TOPIC, 0, begins.at(TOPIC, 0), ends.at(TOPIC, 0)):
        try:
            erasure = _erasure(each.value() or b"", secret_of(settings))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            log.error(
                "offset %s of topic %s is left out, because it is not an erasure: %r", each.offset(), TOPIC, error
            )
        else:
            found[str(erasure.id)] = erasure
    return list(found.values())


def _erasure(value: bytes, secret: bytes) -> Erasure:
    """The erasure of a record. A seal by another secret cannot be checked, and the caller refuses such an erasure.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: the record is not an erasure, or its seal is wrong.
    """
    event = json.loads(value)
    erasure = Erasure.from_text(event["content"])
    of_this_secret = erasure.secret_check == secret_check(secret)
    if of_this_secret and not hmac.compare_digest(str(event["seal"]), seal(secret, event["content"])):
        raise ValueError("its seal is wrong")
    return erasure


def _event_type(types: EventTypes) -> EventType:
    if TOPIC not in types:
        raise NotSetUp(f"the event type {TOPIC} is not registered: see `truelog status`.")
    return types[TOPIC]
