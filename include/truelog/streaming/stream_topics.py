"""The topics that a stream application reads: which of them it suspends, and whether that has changed."""

from collections.abc import Iterable

from truelog.control import topic_status
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicHealth, examine_topics
from truelog.schema.event import EventTypes, registered_topics
from truelog.storage.database import connect
from truelog.support.settings import Settings


class StreamTopics:
    """Examines the topics of an application's views, and notices when their health has changed."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._application = settings, name
        self._broker = topics.client(settings)
        self._names: frozenset[str] = frozenset()
        self._registered: dict[str, str] = {}
        self._health = TopicHealth()
        self.reached = Positions()  # up to which the current query has read

    def examine(self, names: Iterable[str], types: EventTypes) -> TopicHealth:
        """Examine these topics and record the suspended topics."""
        self._names, self._registered = frozenset(names), registered_topics(types)
        self._health = self._examine()
        with connect(self._settings) as connection:
            topic_status.record_suspended(connection, self._application, self._health.bad)
        return self._health

    def changed(self) -> str:
        """What has changed since the topics were last examined, or an empty string."""
        before, after = self._health, self._examine()
        changed = {topic: after.bad.get(topic, "can be read") for topic in before.bad.keys() ^ after.bad.keys()}
        changed |= {t: "created again" for t, i in after.earliest.ids.items() if before.earliest.ids.get(t, i) != i}
        known = before.earliest.offsets
        grown = {t: by for t, by in after.earliest.offsets.items() if by.keys() - known.get(t, by).keys()}
        changed |= {topic: f"has {len(by)} partitions now" for topic, by in grown.items()}
        lost = self.reached.ranges_to(after.earliest.only(self.reached.offsets))
        changed |= {each.topic: f"the log now begins at {each.end}" for each in lost}
        return ", ".join(f"{topic}: {reason}" for topic, reason in sorted(changed.items()))

    def _examine(self) -> TopicHealth:
        return examine_topics(self._broker, self._names, self._registered)
