"""The rights of the database roles of processes that face other networks, in place of the owner's rights.

A process with a defect can then do only what its role may. The advisory locks that it needs are functions of the owner
(`truelog.storage.locks`), and so is what the collector reads of views (`views.sql`). `truelog up` grants the rights.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import LiteralString

from psycopg import sql

from truelog.storage.locks import HOLD_KEYS_IN_USE, HOLD_REGISTRATIONS
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import API_SERVICE_ROLE, COLLECTOR_ROLE

# Rights on tables. To lock a row, PostgreSQL wants the right to change a column: here one of its key.
RIGHTS: Mapping[str, Mapping[str, Sequence[LiteralString]]] = {
    COLLECTOR_ROLE: {
        "truelog.api_key": ("SELECT",),
        "truelog.event_type": ("SELECT",),
        "truelog.event_version": ("SELECT",),
        "truelog.event_cut": ("SELECT",),
        # Commands: decisions and their events are written, and the states of keys are read.
        "truelog.command_number": ("SELECT", "UPDATE (last)"),
        "truelog.command_fold": ("SELECT", "UPDATE (event)"),
        "truelog.command_position": ("SELECT",),
        "truelog.command_key": ("SELECT", "INSERT (event, key)", "UPDATE (event)"),
        "truelog.command": ("SELECT", "INSERT", "UPDATE (said)"),
        "truelog.command_event": ("SELECT", "INSERT"),
    },
    API_SERVICE_ROLE: {
        "truelog.api_key": ("SELECT",),
        "truelog.view_reader": ("SELECT", "INSERT", "UPDATE (answers, last_at)"),
        "truelog.past_question": ("SELECT", "INSERT", "UPDATE"),
        # The archive's catalog, which it only reads.
        "truelog.event_cut": ("SELECT",),
        "iceberg.iceberg_tables": ("SELECT",),
        "iceberg.iceberg_namespace_properties": ("SELECT",),
    },
}
FUNCTIONS: Mapping[str, Sequence[LiteralString]] = {
    COLLECTOR_ROLE: (
        HOLD_REGISTRATIONS,
        HOLD_KEYS_IN_USE,
        "truelog.limits_of(text[])",
        "truelog.requests_of(text[], timestamptz[], timestamptz)",
    ),
    API_SERVICE_ROLE: (),
}
_SESSIONS = {COLLECTOR_ROLE: 100, API_SERVICE_ROLE: 50}  # at once
_WITHDRAWN: tuple[LiteralString, ...] = (
    "REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}",
    "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM {role}",
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
)


def statements(names: Names, database: str) -> Iterator[sql.Composed]:
    """The statements that give each role its rights on the migrated tables, and no others.

    They are for one transaction, so that no process lacks its rights in between.
    """
    for role, rights in RIGHTS.items():
        named = {"role": sql.Identifier(names.in_postgresql(role)), "database": sql.Identifier(database)}
        yield sql.SQL("GRANT CONNECT ON DATABASE {database} TO {role}").format(**named)
        yield sql.SQL("ALTER ROLE {role} CONNECTION LIMIT {most}").format(**named, most=sql.Literal(_SESSIONS[role]))
        for schema in sorted({table.partition(".")[0] for table in rights}):
            yield from (sql.SQL(each).format(**named, schema=sql.Identifier(schema)) for each in _WITHDRAWN)
        for table, granted in rights.items():
            given = {"rights": sql.SQL(", ").join(map(sql.SQL, granted)), "table": sql.Identifier(*table.split("."))}
            yield sql.SQL("GRANT {rights} ON {table} TO {role}").format(**named, **given)
        for function in FUNCTIONS[role]:
            yield sql.SQL("GRANT EXECUTE ON FUNCTION {function} TO {role}").format(**named, function=sql.SQL(function))
