"""Keeps schemas of the registry, and publishes the schemas of the event types.

A record whose schema was not kept when it was written is invalid, as any record is judged by the version in force at
its offset. So keep a schema before its first record is written: a release of the producer registers it, then keeps it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from truelog.control import event_registry
from truelog.control.schema_registry.client import SchemaRegistryClient
from truelog.schema.event import EventType
from truelog.schema.frames.avro_schema import MOST_CHARACTERS, require_readable
from truelog.schema.frames.kept_schema import AVRO, KeptSchema
from truelog.support.errors import BadDeclaration, BadInput, RegistryBehind, TopicRefused
from truelog.support.settings import Settings

_REFUSALS = (BadDeclaration, BadInput, RegistryBehind, TopicRefused)


@dataclass(frozen=True)
class Kept:
    """The schemas that an event type keeps now, its version, and whether the command has made this version."""

    event: str
    version: int
    is_new: bool
    schemas: tuple[KeptSchema, ...]


@dataclass(frozen=True)
class Published:
    """The number that a subject's schema has in the registry, or why it was refused."""

    event: str
    subject: str
    id: int | None
    refused: str | None = None


def subject_of(settings: Settings, event: str) -> str:
    """The subject of the values of a topic, as the serializers of producers name it by default."""
    return f"{settings.names.topic_of(event)}-value"


def keep(settings: Settings, event: str, numbers: Collection[int]) -> Kept:
    """Keep the schemas with these numbers; without numbers, those of all versions of the topic's subject.

    Raises:
        BadInput: the registry has no such schema, it cannot be kept, or there is no such event type.
        ReadsOnly: the events are another environment's, which keeps their schemas.
        ServiceDown: the registry or Kafka does not answer.
    """
    settings.require_own_events("the keeping of schemas")
    client = SchemaRegistryClient(settings)
    subject = subject_of(settings, event)
    found = [client.schema(each) for each in numbers] if numbers else client.schemas_of(subject)
    if not found:
        raise BadInput(f"the schema registry has no subject {subject}; name the numbers of the schemas")
    for each in found:
        _require_keepable(each)
    registered = event_registry.keep_schemas(settings, event, found)
    return Kept(event, registered.event_type.version, registered.is_new, registered.event_type.frames)


def _require_keepable(schema: KeptSchema) -> None:
    if len(schema.text) > MOST_CHARACTERS:
        raise BadInput(f"schema {schema.id} cannot be kept: it has more than {MOST_CHARACTERS:,} characters")
    if schema.kind != AVRO:
        return
    try:
        require_readable(schema.text)
    except BadDeclaration as reason:
        raise BadInput(f"schema {schema.id} cannot be kept: {reason}") from None


def publish(settings: Settings, types: Collection[EventType]) -> list[Published]:
    """Register the JSON Schema of each event type that producers write, and keep the number that it gets.

    Raises:
        ReadsOnly: the events are another environment's, which keeps their schemas.
        ServiceDown: the registry or Kafka does not answer. Some may be published; repeat the command.
    """
    settings.require_own_events("the keeping of schemas")
    return [_publish(settings, each) for each in types if not each.topic.internal]


def _publish(settings: Settings, event_type: EventType) -> Published:
    event, subject = event_type.name, subject_of(settings, event_type.name)
    try:
        schema = SchemaRegistryClient(settings).register(subject, event_type.json_schema)
        event_registry.keep_schemas(settings, event, [schema])
    except _REFUSALS as reason:
        return Published(event, subject, None, str(reason))
    return Published(event, subject, schema.id)
