"""The tables of an engine in PostgreSQL, as a reader of its results sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import sql
from psycopg.errors import UndefinedTable

from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

# These conditions use the first columns of each table's key, so PostgreSQL can use the key's index.
_SHOWN = {
    "page_views": "SELECT host FROM {schema}.page_views WHERE minute = ANY(%(times)s) AND host = ANY(%(names)s)",
    "request_rates": "SELECT ip FROM {schema}.request_rates WHERE pane = ANY(%(times)s) AND ip = ANY(%(names)s)",
    "cart": "SELECT cart_id FROM {schema}.cart WHERE cart_id = ANY(%(names)s)",
    "click_through": "SELECT search_id FROM {schema}.click_through WHERE search_id = ANY(%(names)s) "
    "AND asked_at IS NOT NULL AND clicked IS NOT NULL",
    "home_timeline": "SELECT reader_id FROM {schema}.home_timeline WHERE reader_id = ANY(%(names)s)",
}
# Keys have no NULL, so the other engines store an empty text.
_TABLES = """
    CREATE SCHEMA {schema};
    CREATE TABLE {schema}.page_views (
        minute timestamp, host text, page text, browser text, views bigint NOT NULL, bytes bigint,
        PRIMARY KEY (minute, host, page, browser)
    );
    CREATE TABLE {schema}.request_rates (pane timestamp, ip text, requests bigint NOT NULL, PRIMARY KEY (pane, ip));
    CREATE TABLE {schema}.cart (
        cart_id text, product text, quantity bigint NOT NULL, changed_at timestamp, checked_out_at timestamp,
        PRIMARY KEY (cart_id, product)
    );
    CREATE TABLE {schema}.click_through (search_id text PRIMARY KEY, asked_at timestamp, results text, clicked text);
    CREATE TABLE {schema}.home_timeline (
        reader_id text, tweeted_at timestamp, tweet_id text, PRIMARY KEY (reader_id, tweeted_at, tweet_id)
    );
"""


@dataclass(frozen=True)
class Tables:
    """The tables in this schema, read in a session of their own."""

    connection: Connection
    schema: str

    def find(self, view: str, marks: Mapping[str, datetime]) -> set[str]:
        query = sql.SQL(_SHOWN[view]).format(schema=sql.Identifier(self.schema))
        times = [start for each in set(marks.values()) for start in _starts(each)]
        try:
            found = self.connection.execute(query, {"times": times, "names": list(marks)}).fetchall()
        except UndefinedTable:  # the stream application creates its tables when it starts
            return set()
        return {str(name) for (name,) in found}


def create_tables(settings: Settings, schema: str) -> None:
    """Create the tables that another engine writes."""
    with connect(settings) as connection:
        connection.execute(sql.SQL(_TABLES).format(schema=sql.Identifier(schema)))


def _starts(happened: datetime) -> tuple[datetime, datetime]:
    """The start of the minute that contains an event, and the start of its ten-second pane."""
    minute = happened.replace(second=0, microsecond=0)
    return minute, minute + timedelta(seconds=happened.second // 10 * 10)
