"""The namespace: the prefix of the names that an environment has on shared servers.

Event types, positions, archive tables and fingerprints have names without the prefix. A name gets it where it leaves
the platform: in Kafka's clients (`truelog.kafka`), and in the settings' methods for other clients. Without a namespace,
all names stay as they are.
"""

import re
from dataclasses import dataclass

from pydantic import field_validator
from pydantic_settings import BaseSettings

_FORM = re.compile(r"[a-z][a-z0-9]{0,15}")
# Names of environments without a namespace begin with these words, and roles of PostgreSQL itself with `pg_`.
_RESERVED = frozenset({"pg", "relay", "truelog", "view"})


@dataclass(frozen=True)
class Names:
    """The names of one environment, inside the platform and outside.

    No event type, and no other name of the platform in Kafka but those of outputs, has a dot. A namespace has none, so
    the prefix of one environment is never the beginning of another's names.
    """

    namespace: str = ""

    def topic_of(self, name: str) -> str:
        """Kafka's name of a topic."""
        return self.in_kafka(name)

    def name_of(self, topic: str) -> str | None:
        """The platform's name of a topic of Kafka; None if the topic is another environment's."""
        if not self.namespace:
            return topic
        prefix = self.in_kafka("")
        return topic.removeprefix(prefix) if topic.startswith(prefix) else None

    def in_kafka(self, name: str) -> str:
        """Kafka's name of a topic, a principal, a consumer group or a transactional id."""
        return f"{self.namespace}.{name}" if self.namespace else name

    def for_receivers(self, key: object) -> str:
        """The key by which receivers know an incident or a message. Two environments may have the same key."""
        return f"{self.namespace}/{key}" if self.namespace else str(key)

    @property
    def labels(self) -> dict[str, str]:
        """The label of the environment in Prometheus and Alertmanager; none without a namespace."""
        return {"namespace": self.namespace} if self.namespace else {}

    def in_postgresql(self, name: str) -> str:
        """PostgreSQL's name of a role, a replication slot or a publication."""
        return f"{self.namespace}_{name}" if self.namespace else name


class NamespaceSettings(BaseSettings):
    """The name of this environment. `truelog.support.settings` says where values come from."""

    namespace: str = ""  # the prefix of the names on shared servers (docs/production.md); none by default

    @field_validator("namespace")
    @classmethod
    def _has_form(cls, value: str) -> str:
        if value and (value in _RESERVED or not _FORM.fullmatch(value)):
            reserved = ", ".join(sorted(_RESERVED))
            form = "1 to 16 of a-z and 0-9, begins with a letter"
            raise ValueError(f"a namespace has {form}, and is not one of {reserved}")
        return value

    @property
    def names(self) -> Names:
        return Names(self.namespace)
