"""A row of a table in the schema `truelog`. Builders name the columns, and tests use the builders."""

from datetime import timedelta

from psycopg import sql

from truelog.storage.database import Connection

NO_TIME = timedelta()


def insert(connection: Connection, table: str, **columns: object) -> None:
    connection.execute(_inserting(table, columns))


def insert_missing(connection: Connection, table: str, **columns: object) -> None:
    """Insert a row unless the table has it."""
    connection.execute(_inserting(table, columns) + sql.SQL(" ON CONFLICT DO NOTHING"))


def insert_numbered(connection: Connection, table: str, **columns: object) -> int:
    """Insert a row into a table that numbers its rows. Returns the number."""
    row = connection.execute(_inserting(table, columns) + sql.SQL(" RETURNING id")).fetchone()
    assert row is not None
    return int(str(row[0]))


def before_now(ago: timedelta) -> sql.Composed:
    """A time by the database's clock."""
    return sql.SQL("now() - {}").format(ago)


def _inserting(table: str, columns: dict[str, object]) -> sql.Composed:
    """A column whose value is None gets its default."""
    given = {name: value for name, value in columns.items() if value is not None}
    values = (each if isinstance(each, sql.Composable) else sql.Literal(each) for each in given.values())
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier("truelog", table),
        sql.SQL(", ").join(map(sql.Identifier, given)),
        sql.SQL(", ").join(values),
    )
