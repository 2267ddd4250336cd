"""The OpenAPI document of the collector, with a schema for each event type that producers may send."""

from collections.abc import Iterable
from typing import Any

from truelog.schema.event import Event, EventType
from truelog.services.collector.declaration import EVENTS, OPENAPI
from truelog.sources.collector import cloud_event
from truelog.sources.collector.classifier import RECEIPT

_STATUSES = {
    "200": "All events are in the log.",
    "207": "Some events are in the log. The others are dead letters; sending them again unchanged is useless.",
    "400": "The body is incomplete or cannot be decompressed. Nothing is stored.",
    "401": "The key is missing or unknown.",
    "403": "The key does not permit the request.",
    "408": "The body took too long to arrive. Nothing is stored.",
    "413": "The body, an event, or the number of events is too large. Nothing is stored.",
    "415": "The Content-Type or the Content-Encoding is not supported.",
    "422": "No event is valid. All of them are dead letters.",
    "429": "Too many requests or dead letters, or a refused address. Send again after `Retry-After` seconds.",
    "503": "Kafka is unavailable. Nothing is acknowledged. Send again after `Retry-After` seconds.",
}
_STORED = {"200", "207", "422"}
_CLOUD_EVENT = "cloud_event"
_IN_HEADER = "An attribute of a CloudEvent whose data is the body (binary mode)."
_TIME = {"type": "string", "format": "date-time"}
_ATTRIBUTES = {
    "specversion": {"const": cloud_event.VERSION},
    "id": {"type": "string", "minLength": 1, "description": "Unique within the source."},
    "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
    "time": _TIME | {"description": "When the event happened."},
    "sentat": _TIME | {"description": "When the event was sent, by the same clock."},
    "datacontenttype": {"type": "string", "description": "A type of JSON."},
    "traceparent": {"type": "string", "description": "The trace of the event, instead of the request's."},
}


def document(types: Iterable[EventType]) -> dict[str, Any]:
    """The document, in the words of OpenAPI 3.1."""
    public = [each for each in types if not each.topic.internal]
    schemas = {each.name: _schema(each) for each in public}
    cloud_events = {f"{each.name}_{_CLOUD_EVENT}": _cloud_event(each) for each in public}
    event = {"oneOf": [_reference(name) for name in schemas], "discriminator": {"propertyName": "type"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Truelog collector", "version": "1"},
        "security": [{"key": []}],
        "paths": {
            EVENTS.path: {"post": _post()},
            OPENAPI.path: {
                "get": {"summary": "This document.", "responses": {"200": {"description": "The document."}}}
            },
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                **schemas,
                **cloud_events,
                "event": event,
                _CLOUD_EVENT: {"oneOf": [_reference(name) for name in cloud_events]},
                **_RESPONSES,
            },
        },
    }


def _schema(event_type: EventType) -> dict[str, Any]:
    """The event as a producer sends it: with its type, and without the time that the collector adds."""
    found = event_type.json_schema
    properties = {name: each for name, each in found["properties"].items() if name != RECEIPT}
    return found | {
        "properties": {"type": {"const": event_type.name}, **properties},
        "required": ["type", *found["required"]],
        "not": {"required": [RECEIPT]},
    }


def _cloud_event(event_type: EventType) -> dict[str, Any]:
    """The event as a CloudEvent in structured mode."""
    found = event_type.json_schema
    data = found | {
        "properties": {name: each for name, each in found["properties"].items() if name not in Event.model_fields},
        "required": [name for name in found["required"] if name not in Event.model_fields],
        "propertyNames": {"not": {"enum": list(cloud_event.TAKEN)}},
    }
    named = {"type": "string", "pattern": rf"^(.*\.)?{event_type.name}$"}
    return {
        "type": "object",
        "description": found.get("description", ""),
        "properties": {**_ATTRIBUTES, "type": named, "data": data},
        "required": [*cloud_event.REQUIRED, *(["data"] if data["required"] else [])],
    }


def _reference(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def _post() -> dict[str, Any]:
    event, cloud = _reference("event"), _reference(_CLOUD_EVENT)
    content = {
        "application/json": {"schema": {"oneOf": [event, {"type": "array", "items": event}]}},
        "application/x-ndjson": {"schema": {"type": "string", "description": "One event per line."}},
        cloud_event.STRUCTURED: {"schema": cloud},
        cloud_event.BATCHED: {"schema": {"type": "array", "items": cloud}},
    }
    attributes = [
        {"name": cloud_event.HEADER + name, "in": "header", "schema": {"type": "string"}, "description": _IN_HEADER}
        for name in (*cloud_event.REQUIRED, "sentat", "traceparent")
    ]
    encoding = {"name": "Content-Encoding", "in": "header", "schema": {"enum": ["gzip", "identity"]}}
    trace = {
        "name": "traceparent",
        "in": "header",
        "schema": {"type": "string"},
        "description": "The trace of the request (W3C Trace Context), which becomes a header of each record.",
    }
    return {
        "summary": "Send events.",
        "parameters": [encoding, trace, *attributes],
        "requestBody": {"required": True, "content": content},
        "responses": {status: _response(status, about) for status, about in _STATUSES.items()},
    }


def _response(status: str, about: str) -> dict[str, Any]:
    name = "stored" if status in _STORED else "refused"
    return {
        "description": about,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}},
    }


_PLACE = {
    "index": {"type": "integer", "description": "The number of the event in the body, from 0."},
    "topic": {"type": "string"},
    "partition": {"type": "integer"},
    "offset": {"type": "integer"},
}
_DEFECT = {"field": {"type": "string"}, "reason": {"type": "string"}}
_RESPONSES = {
    "stored": {
        "type": "object",
        "properties": {
            "good": {"type": "array", "items": {"type": "object", "properties": _PLACE, "required": [*_PLACE]}},
            "bad": {
                "type": "array",
                "items": {"type": "object", "properties": _PLACE | _DEFECT, "required": [*_PLACE, *_DEFECT]},
            },
        },
        "required": ["good", "bad"],
    },
    "refused": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
}
