"""What the log contains about commands: the records of a topic, and the history of a claim."""

import json
from typing import Any

from truelog.commands.claims import CLAIM
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def in_log(settings: Settings, topic: str) -> list[dict[str, Any]]:
    """The committed records of a topic, in the order of each partition."""
    begins, ends = topics.earliest_offsets(settings, [topic]), topics.committed_ends(topics.client(settings), [topic])
    return [
        json.loads(message.value() or b"")
        for partition, end in ends.offsets[topic].items()
        for message in messages(settings, topic, partition, begins.at(topic, partition), end)
    ]


def claims_of(settings: Settings, username: str) -> list[tuple[str, str]]:
    """What the log says about a username, in order."""
    found = in_log(settings, CLAIM)
    return [(each["verb"], each["holder"]) for each in found if each["name"] == f"username:{username}"]


def require_claims(settings: Settings, username: str, count: int) -> None:
    if len(claims_of(settings, username)) < count:
        raise ServiceDown("not in the log yet")
