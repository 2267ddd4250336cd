"""Every relation that readers see, and every column of it, says in PostgreSQL what it means."""

from dataclasses import replace

import psycopg
import pytest

from tests.beds.lab import Lab
from truelog import Meaning
from truelog.storage.database import Connection
from truelog.support.errors import BadDeclaration
from truelog.tables import deploy
from truelog.views import catalogue

_UNDESCRIBED = """
SELECT c.relname || coalesce('.' || a.attname, '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT NULL AS attname, 0 AS attnum
    UNION ALL SELECT attname, attnum FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0
) a ON true
WHERE nspname IN ('views', 'presented') AND c.relname = ANY(%s)
    AND CASE attnum WHEN 0 THEN obj_description(c.oid, 'pg_class') ELSE col_description(c.oid, attnum) END IS NULL
ORDER BY 1
"""


def relations(connection: Connection, schema: str) -> set[str]:
    query = "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
    return {name for (name,) in connection.execute(query, (schema,))}


def test_every_relation_of_every_view_and_its_columns_are_described(lab: Lab) -> None:
    undescribed: list[str] = []
    views = catalogue.load_all_views()
    compiled = {name: lab.compiled(name, view) for name, view in views.items()}  # PostgreSQL ends idle transactions
    with lab.connection.transaction(force_rollback=True):
        for name, view in views.items():
            before = {each: relations(lab.connection, each) for each in ("views", "presented")}
            deploy.deploy_table(lab.connection, compiled[name])
            added = {each: relations(lab.connection, each) - before[each] for each in before}
            undescribed += [each for (each,) in lab.connection.execute(_UNDESCRIBED, (list(added["views"]),))]
            assert added["presented"] == {name, *(f"{name}_{each}" for each in view.present)}
    assert undescribed == []


def test_a_meaning_names_a_column_that_exists(lab: Lab) -> None:
    view = replace(
        catalogue.load_view("page_views"), version=9, meanings={"busiest": Meaning("pages", {"rank": "of the page"})}
    )
    with lab.connection.transaction(force_rollback=True), pytest.raises(psycopg.errors.UndefinedColumn, match="rank"):
        deploy.deploy_table(lab.connection, lab.compiled("page_views", view))


def test_a_meaning_names_a_relation_that_exists(lab: Lab) -> None:
    view = replace(catalogue.load_view("page_views"), version=9, meanings={"bussiest": Meaning("pages")})
    with pytest.raises(BadDeclaration, match=r"names bussiest, which the view does not have; .*: busiest"):
        lab.compiled("page_views", view)
