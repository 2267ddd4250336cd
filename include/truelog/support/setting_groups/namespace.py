"""The namespace: the prefix of the names that an environment has on shared servers.

Event types, positions, archive tables and fingerprints have names without the prefix. A name gets it where it leaves
the platform: in Kafka's clients (`truelog.kafka`), and in the settings' methods for other clients. Without a namespace,
all names stay as they are.

An environment may read the event topics of another one instead of its own. All other names stay its own.
"""

import re
from dataclasses import dataclass

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings

from truelog.support.errors import ReadsOnly

_FORM = re.compile(r"[a-z][a-z0-9]{0,15}")
# Names of environments without a namespace begin with these words, and roles of PostgreSQL itself with `pg_`.
_RESERVED = frozenset({"pg", "relay", "truelog", "view"})


@dataclass(frozen=True)
class Names:
    """The names of one environment, inside the platform and outside.

    No event type, and no other name of the platform in Kafka but those of outputs, has a dot. A namespace has none, so
    the prefix of one environment is never the beginning of another's names.

    `reads` is the namespace of the environment whose event topics are read instead of its own; None if there is none.
    """

    namespace: str = ""
    reads: str | None = None

    def topic_of(self, name: str) -> str:
        """Kafka's name of a topic."""
        return _prefixed(self.reads or "", name) if self.is_read(name) else self.in_kafka(name)

    def own_topic(self, name: str) -> str:
        """Kafka's name of a topic for a client that changes it.

        Raises:
            ReadsOnly: the topic is another environment's.
        """
        if self.is_read(name):
            raise ReadsOnly(f"{self.topic_of(name)} belongs to {described(self.reads or '')}, and only that writes it.")
        return self.in_kafka(name)

    def name_of(self, topic: str) -> str | None:
        """The platform's name of a topic of Kafka; None if the topic is another environment's, and is not read."""
        if self.owns(topic):
            name = topic.removeprefix(self.in_kafka(""))
            return None if self.is_read(name) else name
        read = topic.removeprefix(_prefixed(self.reads or "", ""))
        return read if self.is_read(read) and self.topic_of(read) == topic else None

    def is_read(self, name: str) -> bool:
        """Whether the platform's name of a topic is an event type, whose topic is another environment's."""
        return self.reads is not None and "." not in name

    def owns(self, name: str) -> bool:
        """Whether a name of Kafka belongs to this environment. Without a namespace, every name does."""
        return name.startswith(self.in_kafka(""))

    def in_kafka(self, name: str) -> str:
        """Kafka's name of a principal, a consumer group, a transactional id, or a topic of this environment."""
        return _prefixed(self.namespace, name)

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


def described(namespace: str) -> str:
    """An environment for messages."""
    return f"the environment {namespace}" if namespace else "the environment without a namespace"


def _prefixed(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name


class NamespaceSettings(BaseSettings):
    """The name of this environment. `truelog.support.settings` says where values come from."""

    namespace: str = ""  # the prefix of the names on shared servers (docs/production.md); none by default
    # With a bucket, the events are those of the environment that has this namespace, or none, and this bucket.
    reads_namespace: str = ""
    reads_bucket: str = Field(default="", validate_default=True)

    @field_validator("reads_bucket")
    @classmethod
    def _of_another(cls, value: str, others: ValidationInfo) -> str:
        own, read = others.data.get("namespace"), others.data.get("reads_namespace")
        if read and not value:
            raise ValueError("TRUELOG_READS_NAMESPACE needs TRUELOG_READS_BUCKET, the bucket of that environment")
        if value and not own and own is not None:
            raise ValueError("an environment that reads the events of another one needs TRUELOG_NAMESPACE")
        if value and own == read:
            raise ValueError("TRUELOG_READS_NAMESPACE is TRUELOG_NAMESPACE: name another environment")
        return value

    @field_validator("namespace", "reads_namespace")
    @classmethod
    def _has_form(cls, value: str) -> str:
        if value and (value in _RESERVED or not _FORM.fullmatch(value)):
            reserved = ", ".join(sorted(_RESERVED))
            form = "1 to 16 of a-z and 0-9, begins with a letter"
            raise ValueError(f"a namespace has {form}, and is not one of {reserved}")
        return value

    @property
    def names(self) -> Names:
        return Names(self.namespace, self.reads_namespace if self.reads_events else None)

    @property
    def reads_events(self) -> bool:
        """Whether the events are those of another environment."""
        return bool(self.reads_bucket)

    @property
    def read_environment(self) -> str:
        """The other environment, for messages."""
        return described(self.reads_namespace)

    def require_own_events(self, what: str) -> None:
        """Require that this environment writes its own events.

        Raises:
            ReadsOnly: it reads those of another one, which has to do what `what` says.
        """
        if self.reads_events:
            raise ReadsOnly(
                f"{what} is a matter of {self.read_environment}: this one only reads its events "
                "(TRUELOG_READS_BUCKET). Ask there."
            )
