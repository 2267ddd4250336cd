"""What a stream calls a change of its topics' health, and what it records of it. Without Kafka."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from truelog.control import topic_status
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicHealth
from truelog.storage.database import Connection
from truelog.streaming import stream_topics
from truelog.streaming.stream_topics import StreamTopics
from truelog.support.settings import Settings

NONE: Mapping[str, str] = {}


def health(bad: Mapping[str, str] = NONE, **begins: Mapping[int, int]) -> TopicHealth:
    return TopicHealth(Positions(begins, {topic: f"{topic} 1" for topic in begins}), bad)


def created_again(topic: str) -> TopicHealth:
    return TopicHealth(Positions({topic: {0: 0}}, {topic: "another"}))


@dataclass(frozen=True)
class Case:
    """Two looks at the topics, and what has changed between them."""

    before: TopicHealth
    after: TopicHealth
    change: str = ""
    reached: Positions = field(default_factory=Positions)


CLICK = health(click={0: 0, 1: 0})
READ = Positions({"click": {0: 5, 1: 5}})
CASES = {
    "nothing": Case(CLICK, CLICK),
    "a topic is bad": Case(CLICK, health({"click": "it is gone"}), "click: it is gone"),
    "a topic is good again": Case(health({"click": "it is gone"}), CLICK, "click: can be read"),
    "a topic is bad for another reason": Case(health({"click": "it is gone"}), health({"click": "no leader"})),
    "a topic was created again": Case(health(click={0: 0}), created_again("click"), "click: created again"),
    "a partition was added": Case(CLICK, health(click={0: 0, 1: 0, 2: 0}), "click: has 3 partitions now"),
    "the log begins later": Case(CLICK, health(click={0: 5, 1: 7}), "click: the log now begins at 7", READ),
    "the log begins where it was read": Case(CLICK, health(click={0: 5, 1: 5}), "", READ),
    "another log begins later": Case(health(vote={0: 0}), health(vote={0: 9}), "", READ),
    "several topics": Case(
        health({"vote": "it is gone"}, click={0: 0}),
        health({"cart": "no leader"}, click={0: 0, 1: 0}, vote={0: 0}),
        "cart: no leader, click: has 2 partitions now, vote: can be read",
    ),
}


@pytest.mark.parametrize("why", CASES)
def test_what_has_changed(
    postgresql: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    case, application = CASES[why], f"a{uuid.uuid4().hex[:8]}"
    looks = iter([case.before, case.after])
    monkeypatch.setattr(topics, "client", lambda _: None)
    monkeypatch.setattr(stream_topics, "examine_topics", lambda *_: next(looks))
    watched = StreamTopics(postgresql, application)
    assert watched.examine(["click"], {}) == case.before
    suspended = [each for each in topic_status.suspended_topics(connection) if each.application == application]
    assert {each.topic: each.reason for each in suspended} == case.before.bad
    watched.reached = case.reached
    assert watched.changed() == case.change
