"""A table of the captured database: what its capture needs of it, and whether it has that."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from psycopg import sql

from truelog.schema.change import Change
from truelog.schema.event import EventType
from truelog.schema.field import Field
from truelog.schema.loading.events import load_proposals
from truelog.storage.database import Connection, read_value
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import Settings

# Java and PostgreSQL write some numbers of this type as different decimals, so both sides are compared in this form.
REAL = "{}::real::text::float8"

# For each type of a field: the columns that Debezium writes exactly, and how to turn a value into that of the view.
_UTC = "{}::timestamp AT TIME ZONE 'UTC'"
_NUMERIC = (  # Debezium spells the numbers that are not finite in its own way
    "CASE {0} WHEN 'NaN' THEN 'NAN' WHEN 'Infinity' THEN 'POSITIVE_INFINITY' WHEN '-Infinity' THEN 'NEGATIVE_INFINITY' "
    "ELSE {0}::text END"
)
COLUMNS: Mapping[Any, Mapping[str, str]] = {
    int: dict.fromkeys(("int2", "int4", "int8"), "{}"),
    bool: {"bool": "{}"},
    float: {"float4": REAL, "float8": "{}"},
    datetime: {"timestamptz": "{}", "timestamp": _UTC, "date": _UTC},
    str: dict.fromkeys(("text", "varchar", "uuid", "json", "jsonb", "enum"), "{}::text")
    | {
        "numeric": _NUMERIC,
        "bytea": "translate(encode({}, 'base64'), E'\\n', '')",
    },
    list[str]: dict.fromkeys(("_text", "_varchar"), "({}::text[])[:]"),  # without the number of its first element
}
_LONGEST_NAME = 63
# PostgreSQL logs a change of a partitioned table as its partition says, and publishes it as the table says.
_NOT_WHOLE = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relreplident <> 'f'
    AND (c.oid = %(table)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(table)s) WHERE isleaf))
ORDER BY 1, 2
"""
_OF_TABLE = """
FROM pg_attribute JOIN pg_type t ON t.oid = atttypid JOIN pg_class c ON c.oid = attrelid
JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped
"""
_CHILDREN = """
SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent
WHERE inhparent = %s AND parent.relkind = 'r' ORDER BY 1
"""
_DEFERRABLE_KEY = "SELECT conname FROM pg_constraint WHERE conrelid = %s AND contype = 'p' AND condeferrable"
_PUBLISHED = "SELECT 1 FROM pg_publication_tables WHERE (pubname, schemaname, tablename) = (%s, %s, %s)"


def captured_types(settings: Settings) -> dict[str, EventType]:
    """The event types that are tables. The registry reports a broken file."""
    types, _ = load_proposals(settings.events_folder)
    return {name: each for name, each in types.items() if each.topic.source}


def publication(names: Names, event_type: EventType) -> str:
    """The name of the publication, and of the replication slot, of a captured table. PostgreSQL cuts longer names."""
    name = names.in_postgresql(f"truelog_{event_type.name}")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def former_publication(names: Names, event_type: EventType) -> str:
    """The name of an earlier release: PostgreSQL itself cut a long one, so that two tables could have one name."""
    return names.in_postgresql(f"truelog_{event_type.name}")[:_LONGEST_NAME]


def schema_and_table(event_type: EventType) -> tuple[str, str]:
    schema, _, table = str(event_type.topic.source).partition(".")
    return schema, table


def preparation(source: Connection, event_type: EventType, role: str) -> list[sql.Composed]:
    """The statements by which the owner of a table lets Truelog capture it. They can run again."""
    schema, table = schema_and_table(event_type)
    names = {"table": sql.Identifier(schema, table), "schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    statements = ("GRANT USAGE ON SCHEMA {schema} TO {role}", "GRANT SELECT ON {table} TO {role}")
    oid = read_value(source, "SELECT to_regclass(%s)::oid", (f"{schema}.{table}",))
    return [*_whole_rows(source, oid), *(sql.SQL(each).format(**names) for each in statements)]


def _whole_rows(source: Connection, table: int) -> list[sql.Composed]:
    """The statements after which the table, and each of its partitions, logs whole rows."""
    statement = sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL")
    found = source.execute(_NOT_WHOLE, {"table": table}).fetchall()
    return [statement.format(sql.Identifier(schema, name)) for schema, name in found]


def create_publication(names: Names, event_type: EventType) -> sql.Composed:
    """The statement that publishes a table. A partitioned table is published as one table."""
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
    return statement.format(
        sql.Identifier(publication(names, event_type)), sql.Identifier(*schema_and_table(event_type))
    )


def is_published(source: Connection, names: Names, event_type: EventType) -> bool:
    found = source.execute(_PUBLISHED, (publication(names, event_type), *schema_and_table(event_type))).fetchone()
    return found is not None


def column_types(source: Connection, event_type: EventType) -> dict[str, str]:
    """The types of the table's columns in the captured database; `enum` for each enumeration."""
    found = source.execute(
        f"SELECT attname, CASE typtype WHEN 'e' THEN 'enum' ELSE typname END {_OF_TABLE}",
        schema_and_table(event_type),
    )
    return dict(found.fetchall())


def problem(source: Connection, names: Names, event_type: EventType) -> str | None:
    """Why the table cannot be captured, with the cure; None if it can."""
    return next(_problems(source, names, event_type), None)


def _problems(source: Connection, names: Names, event_type: EventType) -> Iterator[str]:
    schema, table = schema_and_table(event_type)
    found = source.execute(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = %s AND relname = %s AND relkind IN ('r', 'p')",
        (schema, table),
    ).fetchone()
    name = f"{schema}.{table}"
    if found is None:
        yield f"{name} does not exist in the captured database."
        return
    [oid] = found
    yield from _key_problems(source, oid, event_type)
    for (child,) in source.execute(_CHILDREN, (oid,)).fetchall():
        yield (
            f"{child} inherits from {name}, so its rows are in {name}, but PostgreSQL logs them as rows of {child}. "
            f"Run ALTER TABLE {child} NO INHERIT {name}, or make {name} a partitioned table."
        )
    if statements := [each.as_string(source) for each in _whole_rows(source, oid)]:
        yield f"{name} does not log whole rows: run {'; '.join(statements)}."
    yield from column_problems(source, event_type)
    if not is_published(source, names, event_type):
        yield f"{name} is not published: run {create_publication(names, event_type).as_string(source)}."


def _key_problems(source: Connection, table: int, event_type: EventType) -> Iterator[str]:
    """Why the primary key does not identify the rows of the table's changes, with the cure."""
    name = event_type.topic.source
    keys = source.execute(
        "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey) "
        "WHERE indrelid = %s AND indisprimary",
        (table,),
    ).fetchall()
    if keys != [(event_type.topic.key,)]:
        found_key = ", ".join(key for (key,) in keys) or "none"
        yield f"{name} needs the primary key {event_type.topic.key}, which the event type declares; it has {found_key}."
    if deferrable := read_value(source, _DEFERRABLE_KEY, (table,)):
        yield (
            f"{name} has a primary key that is DEFERRABLE, so two rows may have one key for a while, and a change of "
            f"one would delete the other. Make the constraint {deferrable} again without DEFERRABLE."
        )


def column_problems(source: Connection, event_type: EventType) -> Iterator[str]:
    """Why the values of a column cannot arrive, with the cure."""
    columns, generated = column_types(source, event_type), _generated(source, event_type)
    for field in event_type.fields:
        if field.name in Change.model_fields:
            continue
        if field.name in generated:
            column = f"{event_type.topic.source}.{field.name}"
            yield f"{column} is a generated column, whose values PostgreSQL does not log: leave it out."
        else:
            yield from _column_problems(event_type, field, columns.get(field.name))


def _generated(source: Connection, event_type: EventType) -> set[str]:
    """The columns that the captured database computes."""
    found = source.execute(f"SELECT attname {_OF_TABLE} AND attgenerated <> ''", schema_and_table(event_type))
    return {name for (name,) in found}


def _column_problems(event_type: EventType, field: Field, column: str | None) -> Iterator[str]:
    table = event_type.topic.source
    if column is None:
        yield (
            f"{table} has no column {field.name}, which the event type declares. Give the table this column again, or "
            f"take it out of the event type and its view. Then run `truelog up connect` and `truelog capture snapshot "
            f"{event_type.name}`."
        )
    elif column not in COLUMNS[field.python_type]:
        fitting = [str(getattr(each, "__name__", each)) for each, names in COLUMNS.items() if column in names]
        cure = f"declare it as {fitting[0]}" if fitting else "leave it out, because no type has exactly its values"
        yield f"{table}.{field.name} has the type {column}: {cure}."
