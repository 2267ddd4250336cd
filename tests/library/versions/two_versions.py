"""Two versions of a view in PostgreSQL, made by the code that deploys views. Readers see version 1.

There is no Spark session. The tests write the rows, the positions, the comparisons and what runs.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from psycopg import sql
from psycopg.types.json import Jsonb
from pyspark.sql.types import DataType, IntegerType, StringType

from tests.builders.applications import forget_application
from tests.builders.comparisons import a_reconciliation
from tests.builders.rows import NO_TIME
from tests.builders.views import merged_to
from truelog import Sum, View
from truelog.control import application, view_status
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables import deploy
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

TYPES: dict[str, DataType] = {"url": StringType(), "views": IntegerType(), "waited": IntegerType()}
FIRST = View(
    reads=("page_view",),
    transform=lambda page_view: page_view,
    key=("url",),
    measures={"views": Sum()},
    present={"busy": "SELECT url FROM {view} WHERE views > 5"},
)
SECOND = replace(FIRST, version=2)


@dataclass(frozen=True)
class TwoVersions:
    settings: Settings
    connection: Connection
    first: CompiledView
    second: CompiledView

    @property
    def name(self) -> str:
        return self.first.name

    def store(self, version: int, rows: Iterable[Sequence[object]]) -> None:
        """Replace the rows of a version: url, views, and what else the version has."""
        table = sql.Identifier("state", f"{self.name}_v{version}")
        self.connection.execute(sql.SQL("TRUNCATE {}").format(table))
        with self.connection.cursor() as cursor:
            for row in rows:
                places = sql.SQL(", ").join([sql.Placeholder()] * len(row))
                cursor.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(table, places), row)

    def reach(self, version: int, offset: int) -> None:
        """The version has merged the log up to this offset."""
        merged_to(self.connection, self.name, Positions({"page_view": {0: offset}}, {"page_view": "an-id"}), version)

    def run_both(self) -> None:
        """An application runs both versions, and the view's file declares version 2."""
        view_status.record_beside(self.connection, self.application, self.name, 1)
        view_status.record_state(self.connection, self.application, self.name, 2)

    def prove(self, version: int, verdict: str = "EQUAL", offset: int = 5, ago: timedelta = NO_TIME) -> None:
        at = {"page_view": {"0": offset}} if offset else {}
        a_reconciliation(self.connection, self.name, verdict, ago=ago, version=version, positions=Jsonb(at))

    def make_ready(self) -> None:
        """Readers can move to version 2, and back."""
        for version in (1, 2):
            self.store(version, [("a", version)])
            self.reach(version, 5)
        self.run_both()
        self.prove(2)

    def seen(self) -> list[tuple[object, ...]]:
        """The rows that readers see."""
        return self.connection.execute(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier("views", self.name))
        ).fetchall()

    @property
    def application(self) -> str:
        return f"app {self.name}"

    def forget(self) -> None:
        forget_application(self.connection, self.application)
        for table in ("version_share", "position", "exclusion", "reconciliation", "standing", "view"):
            self.connection.execute(
                sql.SQL("DELETE FROM {} WHERE view = %s").format(sql.Identifier("truelog", table)), (self.name,)
            )


def deploy_two(settings: Settings, connection: Connection, second: View = SECOND, first: View = FIRST) -> TwoVersions:
    """Version 1 has read five records when version 2 is deployed beside it."""
    name = f"v{uuid.uuid4().hex[:8]}"
    former, other = (
        CompiledView((Table(name, view, _types(view), f"fingerprint {view.version}"),)) for view in (first, second)
    )
    made = TwoVersions(settings, connection, former, other)
    application.declare(connection, [made.application])
    deploy.deploy_table(connection, former)
    made.reach(1, 5)
    deploy.deploy_table(connection, other)
    return made


def _types(view: View) -> dict[str, DataType]:
    return {name: TYPES[name] for name in (*view.key, *view.measures)}
