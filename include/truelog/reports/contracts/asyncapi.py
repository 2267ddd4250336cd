"""The topics as an AsyncAPI document: the events that the platform receives, and the rows that it sends.

An operation says what the platform does: it receives events, and sends the changed rows of published views. It also
sends the events of its internal topics, such as dead letters.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from truelog import __version__
from truelog.control import view_versions
from truelog.lag import output_lag
from truelog.relay import trace
from truelog.relay.view_feed import topic_of
from truelog.reports.contracts.described import Column, Description, columns_of, descriptions
from truelog.reports.declared_view import about_view, declared_view, stored_view
from truelog.schema.event import EventType
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.table import STATUS
from truelog.views.catalogue import table_name
from truelog.views.view import View

VERSION = "3.0.0"
_BINDING = {"bindingVersion": "0.5.0"}
_ABOUT = (
    "The log of events, and the rows of views that follow from it. Events may also be sent to the collector over HTTP, "
    "whose OpenAPI document describes that."
)
_WITH_PASSWORD = {"SCRAM-SHA-256": "scramSha256", "SCRAM-SHA-512": "scramSha512", "PLAIN": "plain"}
_TEXT = {"type": "string"}
_ACTION = "action"  # what the platform does at a channel, which is not a part of the channel
_ROW_HEADERS = {
    "truelog.number": "The number of the row in the view. None is missing.",
    "truelog.last": "The number of the last row of the same transaction.",
    "truelog.positions": "The positions of the view after the transaction, as JSON.",
    "ce_id": "The id of the change, as a CloudEvent has one.",
    "ce_time": "The time of the transaction.",
}

Document = dict[str, Any]


def document(settings: Settings, connection: Connection, types: Iterable[EventType]) -> Document:
    """The document of these event types, and of the outputs that the views have."""
    about = descriptions(settings)
    channels = [_events(each, about.get(each.name, Description())) for each in types]
    channels += _outputs(settings, connection)
    channels = [each | {"address": settings.names.topic_of(each["address"])} for each in channels]
    return {
        "asyncapi": VERSION,
        "info": {"title": "Truelog", "version": __version__, "description": _ABOUT},
        "defaultContentType": "application/json",
        "servers": _servers(settings),
        "channels": {each["address"]: {n: value for n, value in each.items() if n != _ACTION} for each in channels},
        "operations": {f"{each[_ACTION]}_{each['address'].replace('.', '_')}": _operation(each) for each in channels},
    }


def _operation(channel: Document) -> Document:
    return {"action": channel[_ACTION], "channel": {"$ref": f"#/channels/{channel['address']}"}}


def _servers(settings: Settings) -> Document:
    protocol = "kafka-secure" if settings.kafka_is_encrypted else "kafka"
    has_users = settings.kafka_protocol.startswith("SASL")
    security = {"security": [_sign_in(settings)]} if has_users else {}
    return {
        f"kafka{number or ''}": {"host": address, "protocol": protocol, **security}
        for number, address in enumerate(settings.kafka_bootstrap.split(","))
    }


def _sign_in(settings: Settings) -> Document:
    if not settings.kafka_uses_oauth:
        return {"type": _WITH_PASSWORD[settings.kafka_mechanism]}
    scopes = settings.kafka_oauth_scope.split()
    flow = {"tokenUrl": settings.kafka_oauth_token_url, "availableScopes": dict.fromkeys(scopes, "A scope of Kafka.")}
    return {"type": "oauth2", "flows": {"clientCredentials": flow}, "scopes": scopes}


def _events(event_type: EventType, about: Description) -> Document:
    """The channel of an event type, with the action of the platform."""
    topic = event_type.topic
    key = {"key": _TEXT | {"description": f"The field {topic.key}."}} if topic.key and not topic.source else {}
    message = {
        "title": event_type.name,
        "payload": _payload(event_type, about),
        "headers": {"type": "object", "properties": {trace.NAME: _TEXT}},
        "bindings": {"kafka": key | _BINDING},
    }
    kept = {"cleanup.policy": ["compact"]} if topic.compacted else _deleted_after(topic.retention_ms)
    written = " Only the platform writes it." if topic.internal else ""
    return {
        _ACTION: "send" if topic.internal else "receive",
        "address": event_type.name,
        "description": f"{about.about}{written}".strip(),
        "messages": {event_type.name: message},
        "bindings": {"kafka": {"partitions": topic.partitions, "topicConfiguration": kept} | _BINDING},
    }


def _payload(event_type: EventType, about: Description) -> Document:
    if event_type.topic.source:
        return {"description": f"A change of the table {event_type.topic.source}, as Debezium writes it."}
    schema = event_type.json_schema
    described = {
        name: each | ({"description": about.fields[name]} if name in about.fields else {})
        for name, each in schema["properties"].items()
    }
    return schema | {"properties": described, "description": about.about}


def _deleted_after(milliseconds: int) -> Document:
    return {"cleanup.policy": ["delete"], "retention.ms": milliseconds}


def _outputs(settings: Settings, connection: Connection) -> Iterator[Document]:
    for output in output_lag.outputs(connection):
        columns = columns_of(connection, table_name(output.view, output.version))
        view = _view(settings, connection, output.view, output.version)
        if columns and view is not None:
            yield output_channel(output.view, view, about_view(settings, output.view), columns)


def _view(settings: Settings, connection: Connection, name: str, version: int) -> View | None:
    """The declaration of a version. An earlier version has the file with which it was deployed."""
    view, _ = declared_view(settings, name)
    if view is not None and view.version == version:
        return view
    return next((stored_view(settings, each) for each in view_versions.stored(connection, [(name, version)])), None)


def output_channel(name: str, view: View, about: str, columns: Iterable[Column]) -> Document:
    """The channel of a version's output. The status of a window changes with the clock, so rows do not contain it."""
    schemas = {each.name: each.json_schema for each in columns if view.window is None or each.name != STATUS}
    row = {"type": "object", "properties": schemas, "required": list(schemas), "additionalProperties": False}
    return {
        _ACTION: "send",
        "address": topic_of(name, view.version),
        "description": about,
        "messages": {
            "changed": _change(name, view, "changed", row | {"description": "The row."}, schemas),
            "removed": _change(name, view, "removed", {"type": "null", "description": "A tombstone."}, schemas),
        },
        "bindings": {
            "kafka": {"partitions": 1, "topicConfiguration": {"cleanup.policy": ["compact"]}} | _BINDING,
        },
    }


def _change(name: str, view: View, kind: str, payload: Document, schemas: Mapping[str, Document]) -> Document:
    fixed = {
        "truelog.view": name,
        "truelog.version": str(view.version),
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_type": f"truelog.row.{kind}",
        "ce_source": f"/views/{name}/v{view.version}",
    }
    headers = {each: {"const": value} for each, value in fixed.items()}
    headers |= {each: _TEXT | {"description": about} for each, about in _ROW_HEADERS.items()}
    key = {"type": "object", "properties": {each: schemas[each] for each in view.key}, "required": list(view.key)}
    return {
        "title": f"a row of {name} was {kind}",
        "payload": payload,
        "headers": {"type": "object", "properties": headers | {trace.NAME: _TEXT}, "required": list(headers)},
        "bindings": {"kafka": {"key": key | {"description": "The row's key, as JSON."}} | _BINDING},
    }
