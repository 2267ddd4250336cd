"""Views for the tests of the API: real tables, made by the code that deploys views. There is no Spark session.

`page_counts` has a key of two columns, which may be NULL, and a presented relation. `products` can be searched, and
`english_products` by the words that PostgreSQL's own parser finds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql.types import DataType, IntegerType, StringType, TimestampType

from tests.builders.views import merged_to
from truelog import Sum, View
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

PAGES, PRODUCTS, ENGLISH = "page_counts", "products", "english_products"
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


def at(*offsets: int) -> Positions:
    """Positions in the partitions of `page_view`."""
    return Positions({"page_view": dict(enumerate(offsets))}, IDS)


def reach(connection: Connection, *offsets: int, version: int = 1) -> None:
    """The view has merged the log up to these offsets."""
    merged_to(connection, PAGES, at(*offsets), version)
