"""Event types and views as data contracts, in the form of the Open Data Contract Standard.

A contract has the fields or columns with their meanings and bounds, the key, and the checks that the platform makes. A
view's first check is the comparison with a rebuild from the archive.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from psycopg import sql

from truelog.reports.contracts.described import Column, Description, columns_of
from truelog.reports.declared_view import about_view
from truelog.schema.event import EventType
from truelog.schema.field import Field
from truelog.schema.quality import Quality
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views.view import View

VERSION = "v3.1.0"
_SCHEMA = "presented"
_PROVED = sql.SQL(
    "SELECT count(*) FROM truelog.answer WHERE view = {} AND reason = '' AND proved_at > now() - interval '2 days'"
)
_BROKEN = sql.SQL("SELECT count(*) FROM {} WHERE NOT ({})")
_LOGICAL: Mapping[Any, str] = {
    str: "string",
    int: "integer",
    bool: "boolean",
    float: "number",
    datetime: "timestamp",
    list[str]: "array",
}

Contract = dict[str, Any]


def event_contract(settings: Settings, event_type: EventType, about: Description) -> Contract:
    """The contract of an event type: the records of its topic."""
    topic = event_type.topic
    records = {
        "name": event_type.name,
        "physicalName": settings.names.topic_of(event_type.name),
        "physicalType": "topic",
        "logicalType": "object",
        "description": about.about,
        "properties": [_field(each, event_type, about) for each in event_type.fields],
        "quality": list(_of_log_days(event_type)),
    }
    kept = "for the last record of each key" if topic.compacted else topic.retention
    retention = {"property": "retention", "value": kept, "element": event_type.name}
    server = {"server": "kafka", "type": "kafka", "host": settings.kafka_bootstrap, "format": "json"}
    return {
        **_head("event", event_type.name, event_type.version, about.about),
        "servers": [server],
        "schema": [records],
        "slaProperties": [retention | {"description": "In Kafka. The archive keeps each event."}],
    }


def view_contract(settings: Settings, connection: Connection, name: str, view: View) -> Contract | None:
    """The contract of a view and of the relations that it presents. None if the view has no table yet."""
    columns = columns_of(connection, name)
    if not columns:
        return None
    about = view.about or about_view(settings, name)
    rows = _relation(name, about, columns, view.key) | {"quality": list(_of_rows(connection, name, view, columns))}
    server = {
        "server": "postgresql",
        "type": "postgres",
        "host": settings.database_host,
        "port": settings.database_port,
        "database": settings.database_name,
        "schema": _SCHEMA,
    }
    kept = {"property": "retention", "value": view.keep, "element": name, "description": "By the log's clock."}
    return {
        **_head("view", name, view.version, about),
        "servers": [server],
        "schema": [rows, *_further(connection, name, view)],
        **({"slaProperties": [kept]} if view.keep else {}),
        **({"team": {"name": view.owner}} if view.owner else {}),
        "customProperties": [{"property": "reads", "value": list(view.reads)}],
    }


def _head(kind: str, name: str, version: int, about: str) -> Contract:
    return {
        "apiVersion": VERSION,
        "kind": "DataContract",
        "id": f"truelog.{kind}.{name}",
        "name": name,
        "version": str(version),
        "status": "active",
        "description": {"purpose": about},
    }


def _field(field: Field, event_type: EventType, about: Description) -> Contract:
    bounds: dict[str, float | None] = {"minimum": field.least, "maximum": field.most}
    sizes = ("minItems", "maxItems") if field.python_type == list[str] else ("minLength", "maxLength")
    bounds |= dict(zip(sizes, (field.shortest, field.longest), strict=True))
    given = {name: bound for name, bound in bounds.items() if bound is not None and isfinite(bound)}
    checks = list(_of_field(field, event_type))
    return {
        "name": field.name,
        "logicalType": _LOGICAL[field.python_type],
        "required": field.required,
        **({"description": about.fields[field.name]} if field.name in about.fields else {}),
        **({"logicalTypeOptions": given} if given else {}),
        **({"items": {"logicalType": "string"}} if field.python_type == list[str] else {}),
        **({"partitioned": True, "partitionKeyPosition": 1} if field.name == event_type.topic.key else {}),
        **({"classification": "personal"} if field.name in event_type.topic.subject else {}),
        **({"quality": checks} if checks else {}),
    }


def _of_field(field: Field, event_type: EventType) -> Iterator[Contract]:
    if field.values:
        valid = {"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": list(field.values)}}
        yield {"type": "library", "dimension": "conformity", **valid}
    for rule in event_type.required:
        if rule.field == field.name:
            yield _text("completeness", f"An event needs {field.name} if {rule.condition}.")
    if (share := event_type.quality.nulls.get(field.name)) is not None:
        most = {"metric": "nullValues", "mustBeLessOrEqualTo": round(100 * share, 6), "unit": "percent"}
        yield {"type": "library", "dimension": "completeness", **most}


def _of_log_days(event_type: EventType) -> Iterator[Contract]:
    """The checks of each log day, as the page *Data quality* shows their results."""
    quality: Quality = event_type.quality
    yield _text("conformity", f"At most {_percent(quality.malformed)} of the records of a log day are invalid.")
    late = f"At most {_percent(quality.late)} of the events of a log day arrive more than {quality.lateness} after they"
    yield _text("timeliness", f"{late} happened.")
    least, most = quality.volume
    usual = "times the median of the seven log days before"
    yield _text("completeness", f"The number of events of a log day is {least:g} to {most:g} {usual}.")


def _relation(name: str, about: str, columns: Iterable[Column], key: tuple[str, ...] = ()) -> Contract:
    return {
        "name": name,
        "physicalName": name,
        "physicalType": "view",
        "logicalType": "object",
        "description": about,
        "properties": [_column(each, key) for each in columns],
    }


def _further(connection: Connection, name: str, view: View) -> Iterator[Contract]:
    for each in view.present:
        if columns := columns_of(connection, f"{name}_{each}"):
            about = view.meanings[each].about if each in view.meanings else f"{each} of the view {name}"
            yield _relation(f"{name}_{each}", about, columns)


def _column(column: Column, key: tuple[str, ...]) -> Contract:
    place = {"primaryKey": True, "primaryKeyPosition": key.index(column.name) + 1} if column.name in key else {}
    said = {"description": column.about} if column.about else {}
    return {"name": column.name, "logicalType": column.logical_type, "physicalType": column.kind, **said, **place}


def _of_rows(connection: Connection, name: str, view: View, columns: Iterable[Column]) -> Iterator[Contract]:
    yield {
        "name": f"{name}_is_equal_to_the_log",
        "description": "A comparison has found the rows equal to a rebuild from the archive within the last two days, "
        "and the platform knows nothing that is wrong with the view.",
        "type": "sql",
        "dimension": "accuracy",
        "method": "reconciliation",
        "query": _PROVED.format(name).as_string(connection),
        "mustBe": 1,
        "scheduler": "cron",
        "schedule": "0 * * * *",
    }
    if {*view.key} <= {each.name for each in columns}:
        unique = {"metric": "duplicateValues", "mustBe": 0, "arguments": {"properties": list(view.key)}}
        yield {"name": f"{name}_has_each_key_once", "type": "library", "dimension": "uniqueness", **unique}
    table = sql.Identifier(_SCHEMA, name)
    for number, check in enumerate(view.checks, 1):
        query = _BROKEN.format(table, sql.SQL(check)).as_string(connection)
        about = {"name": f"{name}_meets_check_{number}", "description": f"Each row fulfils {check}."}
        yield {**about, "type": "sql", "dimension": "conformity", "query": query, "mustBe": 0}


def _text(dimension: str, description: str) -> Contract:
    return {"type": "text", "dimension": dimension, "description": description}


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
