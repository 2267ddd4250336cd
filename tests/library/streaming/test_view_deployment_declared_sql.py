"""SQL in declarations: what it may contain, and that a wrong text refuses its own view and no other."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import pytest
from psycopg import sql
from pyspark.sql.types import LongType, StringType

from truelog import Sum, View
from truelog.control import view_status
from truelog.control.lease import Holder
from truelog.storage.database import connect
from truelog.streaming.view_deployment import ViewDeployment
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table

VIEW = View(reads=("page_view",), transform=lambda page_view: page_view, key=("page",), measures={"views": Sum()})


@pytest.fixture
def deployment(postgresql: Settings) -> Iterator[ViewDeployment]:
    with connect(postgresql, autocommit=True) as connection:
        yield ViewDeployment(postgresql, cast(Any, None), connection, Holder("stream", 1), "")


def refused(deployment: ViewDeployment, **declared: Any) -> str:
    """Why the view cannot run, or an empty string."""
    return deployment._deploy_table(compiled(**declared))


def compiled(**declared: Any) -> CompiledView:
    types = {"page": StringType(), "views": LongType()}
    return CompiledView((Table(f"presented_{uuid4().hex[:8]}", replace(VIEW, **declared), types, "made by a test"),))


@pytest.mark.parametrize(
    ("select", "shown"),
    [
        ("SELECT page FROM {view} WHERE page ~ '^/[a-z]{2}/'", ["/en/a"]),
        ("SELECT page FROM {view} WHERE page ~ '^/[a-z]{{2}}/'", ["/en/a"]),  # as a format string of Python
        ("SELECT page FROM {view} WHERE page ~ '^/[a-z]{2,3}/' AND '{}'::jsonb = '{ }'", ["/deu/b", "/en/a"]),
        ("SELECT page FROM {view} WHERE '{{1,2},{3,4}}'::int[] <> '{}' AND {clock} IS NULL", ["/deu/b", "/en/a", "/x"]),
        ("SELECT '%%s {page} {{page}}' AS page FROM {view} LIMIT 1", ["%%s {page} {{page}}"]),
    ],
)
def test_other_braces_stay_as_they_are(deployment: ViewDeployment, select: str, shown: list[str]) -> None:
    view = compiled(present={"chosen": select})
    assert deployment._deploy_table(view) == ""
    state, relation = sql.Identifier("state", view.own.name), sql.Identifier("views", f"{view.name}_chosen")
    insert = sql.SQL("INSERT INTO {} (page, views) VALUES ('/en/a', 1), ('/deu/b', 1), ('/x', 1)").format(state)
    deployment.connection.execute(insert)
    rows = deployment.connection.execute(sql.SQL("SELECT page FROM {} ORDER BY page").format(relation)).fetchall()
    assert [page for (page,) in rows] == shown


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"present": {"a": "SELECT * FROM {veiw}"}}, "syntax error"),
        ({"present": {"a": "SELECT * FROM {view} WHERE {0}"}}, "syntax error"),
        ({"present": {"a": "SELECT * FROM {view.table}"}}, "syntax error"),
        ({"present": {"a": "SELECT * FROM nothing"}}, 'relation "nothing" does not exist'),
        ({"present": {"a": "SELECT '\ud800'"}}, "surrogates not allowed"),
        ({"present": {"a": "SELECT '\0'"}}, "syntax error|unterminated|null|NUL"),
        ({"present": {"a": None}}, "Error"),
        ({"present": {"a": f"SELECT {'(' * 20_000}1{')' * 20_000}"}}, "stack depth limit|memory exhausted"),
        ({"columns": {"nothing": "no such column"}}, 'column "nothing" .* does not exist'),
        ({"columns": {"page": "a\0b"}}, "NUL"),
        ({"columns": None}, "TypeError"),
        ({"indexes": ("to_tsvector({page} || {0})",)}, "syntax error"),
        ({"indexes": ("{page} || '{}'",)}, "no default operator class|GIN"),
    ],
)
def test_a_wrong_text_refuses_its_view(deployment: ViewDeployment, declared: dict[str, Any], reason: str) -> None:
    found = refused(deployment, **declared)
    assert re.search(reason, found), found
    view_status.record_state(deployment.connection, "stream", "refused", 1, found)
    assert refused(deployment) == ""


def test_a_relation_of_another_view_keeps_its_name(deployment: ViewDeployment) -> None:
    """Otherwise the second file would take the readers of the first to its own rows, without a word."""
    first = compiled(present={"by_page": "SELECT 'the first' AS page FROM {view}"})
    assert deployment._deploy_table(first) == ""

    def another(name: str, **declared: Any) -> str:
        view = CompiledView((replace(first.own, owner=name, view=replace(VIEW, **declared)),))
        return deployment._deploy_table(view)

    for name in (f"{first.name}_by_page", f"{first.name}_v1", f"{first.name}_v1_by_page"):
        assert f"views.{name}, which the view {first.name} declares" in another(name)
    presenting = another(f"{first.name}_by", present={"page": "SELECT 1"})
    assert f"views.{first.name}_by_page, which the view {first.name} declares" in presenting
    assert deployment._deploy_table(first) == "", "a refused file stops no view but itself"
    query = sql.SQL("SELECT pg_get_viewdef({}::regclass)").format(sql.Literal(f"views.{first.name}_by_page"))
    [[text]] = deployment.connection.execute(query).fetchall()
    assert "the first" in str(text)
