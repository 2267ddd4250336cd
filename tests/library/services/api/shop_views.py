"""Views for the tests of the API: real tables, made by the code that deploys views. There is no Spark session.

`page_counts` has a key of two columns, which may be NULL, and a presented relation. `products` can be searched, and
`english_products` by the words that PostgreSQL's own parser finds.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql.types import DataType, IntegerType, StringType, TimestampType

from tests.builders.views import a_view, forget, merged_to
from truelog import Sum, View
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

PAGES, PRODUCTS, ENGLISH = "page_counts", "products", "english_products"
LIMITS = ("rate_limits", "request_rates")
IDS = {"page_view": "an-id"}


def deploy_views(connection: Connection, version: int = 1) -> None:
    pages = View(
        reads=("page_view",),
        transform=lambda page_view: page_view,
        key=("host", "minute"),
        measures={"views": Sum()},
        present={"busy": "SELECT host, minute, views FROM {view} WHERE views > 100"},
        columns={"host": "host name of the page's URL"},
        version=version,
    )
    types: dict[str, DataType] = {"host": StringType(), "minute": TimestampType(), "views": IntegerType()}
    deploy.deploy_table(connection, CompiledView((Table(PAGES, pages, types, "pages"),)))
    products = View(
        reads=("search",),
        transform=lambda search: search,
        key=("name",),
        measures={"sold": Sum()},
        present={"documents": "SELECT name, sold, truelog.word_vector(name, 'A') AS document FROM {view}"},
    )
    found: dict[str, DataType] = {"name": StringType(), "sold": IntegerType()}
    deploy.deploy_table(connection, CompiledView((Table(PRODUCTS, products, found, "products"),)))
    english = {"documents": "SELECT name, sold, to_tsvector('english', name) AS document FROM {view}"}
    deploy.deploy_table(
        connection, CompiledView((Table(ENGLISH, replace(products, present=english), found, "english"),))
    )


def count(connection: Connection, rows: Iterable[Sequence[object]], version: int = 1) -> None:
    """Store rows of `page_counts`: host, minute, views."""
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO state.{PAGES}_v{version} (host, minute, views) VALUES (%s, %s, %s)".encode(), list(rows)
        )


def sell(connection: Connection, **sold: int) -> None:
    with connection.cursor() as cursor:
        rows = [(name.replace("_", " "), number) for name, number in sold.items()]
        for view in (PRODUCTS, ENGLISH):
            cursor.executemany(f"INSERT INTO state.{view}_v1 (name, sold) VALUES (%s, %s)".encode(), rows)


@contextmanager
def limiting(connection: Connection) -> Iterator[None]:
    """The views of rate limits during the block. One address is blocked, and another has a policy and requests.

    They are plain tables here; `tests/library/limits/test_rate_answer.py` has the real ones.
    """
    connection.execute("CREATE TABLE views.request_rates (ip text, pane timestamptz, requests bigint)")
    limits = "max_requests int, window_seconds int, blocked_at timestamptz, blocked_until timestamptz, reason text"
    connection.execute(f"CREATE TABLE views.rate_limits (address text, {limits})".encode())
    connection.execute("INSERT INTO views.rate_limits VALUES ('192.0.2.1', 5, 60, now(), NULL, 'scraping')")
    connection.execute("INSERT INTO views.rate_limits VALUES ('192.0.2.3', 5, 60, NULL, NULL, NULL)")
    connection.execute("INSERT INTO views.request_rates VALUES ('192.0.2.3', date_trunc('minute', now()), 3)")
    for view in LIMITS:
        a_view(connection, view)
    yield
    connection.execute("DROP TABLE views.request_rates, views.rate_limits")
    forget(connection, *LIMITS)


def at(*offsets: int) -> Positions:
    """Positions in the partitions of `page_view`."""
    return Positions({"page_view": dict(enumerate(offsets))}, IDS)


def reach(connection: Connection, *offsets: int, version: int = 1) -> None:
    """The view has merged the log up to these offsets."""
    merged_to(connection, PAGES, at(*offsets), version)
