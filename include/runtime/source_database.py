"""The embedded database that is captured: a second database of the same server, with a table of customers to try."""

from collections.abc import Iterable

from psycopg import sql

from runtime.postgresql import admin, create_database, create_role
from truelog.capture import source_table
from truelog.schema.event import EventType
from truelog.support.settings import Settings

_CUSTOMERS = """
CREATE TABLE IF NOT EXISTS customers (
    id bigint PRIMARY KEY, name text, email text, city text, credit numeric, is_active boolean, since timestamptz
)
"""


def prepare(settings: Settings, types: Iterable[EventType]) -> None:
    """Create the database, the role that captures, and the table, and publish the captured tables. Idempotent."""
    role, names = settings.source_role, settings.names
    with admin(settings) as connection:
        create_role(connection, role, settings.source_password.get_secret_value())
        connection.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(role)))
        create_database(connection, settings.source_database, settings.database_user)
        granted = map(sql.Identifier, (settings.source_database, role))
        connection.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(*granted))
    with admin(settings, settings.source_database) as connection:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(settings.database_user)))
        connection.execute(_CUSTOMERS)
        for each in types:
            schema, table = source_table.schema_and_table(each)
            exists = connection.execute("SELECT to_regclass(%s)", (f"{schema}.{table}",)).fetchone()
            if exists == (None,):
                continue
            for statement in source_table.preparation(connection, each, role):
                connection.execute(statement)
            if not source_table.is_published(connection, names, each):
                connection.execute(source_table.create_publication(names, each))
