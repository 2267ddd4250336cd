"""The views as a source of dbt: the meaning of each column, up to when rows are complete, and tests of all rows.

Written as JSON it is a file for dbt, which reads YAML, because a JSON text is YAML.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from psycopg import sql

from truelog.reports.declared_view import about_view
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.side_tables import relation_names
from truelog.views.view import View

_STREAMED = {"warn_after": {"count": 10, "period": "minute"}, "error_after": {"count": 1, "period": "hour"}}
_DAILY = {"warn_after": {"count": 30, "period": "hour"}, "error_after": {"count": 54, "period": "hour"}}
_COMPLETE_UNTIL = sql.SQL("SELECT as_of FROM truelog.answer WHERE view = {}")
_TEMPLATES = ("{{", "{%", "{#")


def dbt_source(settings: Settings, connection: Connection, views: Mapping[str, View]) -> dict[str, Any]:
    """The source with these views and the relations that they present. A view without a table is left out."""
    tables = [each for name, view in views.items() for each in _tables(settings, connection, name, view)]
    described = {"name": "truelog", "database": settings.database_name, "schema": "views"}
    about = "Views of the event log. Each row follows from the events up to the positions of its view."
    return {"version": 2, "sources": [described | {"description": about, "tables": tables}]}


def _tables(settings: Settings, connection: Connection, name: str, view: View) -> Iterator[dict[str, Any]]:
    for relation in (name, *(f"{name}_{each}" for each in relation_names(view))):
        if columns := db_snapshot.view_columns(connection, relation):
            about = about_view(settings, name) if relation == name else f"{relation} of the view {name}"
            yield {
                "name": relation,
                "description": _text(about),
                "config": {
                    "freshness": _DAILY if view.batch_only else _STREAMED,
                    "loaded_at_query": _COMPLETE_UNTIL.format(name).as_string(connection),
                    "meta": {"view": name, "version": view.version, "reads": list(view.reads)},
                },
                "columns": [_column(each) for each in columns],
                "data_tests": list(_tests(name, view, {each["name"] for each in columns})) if relation == name else [],
            }


def _column(column: Mapping[str, str | None]) -> dict[str, Any]:
    described = {"name": column["name"], "quote": True, "data_type": column["type"]}
    return described | {"description": _text(column["comment"] or "")}


def _tests(name: str, view: View, shown: set[str | None]) -> Iterator[dict[str, Any]]:
    """Tests that dbt has without a package: the key is unique, and each check holds. dbt puts the SQL into a query."""
    if shown.issuperset(view.key):
        key = ", ".join(f'"{column}"' for column in view.key)
        yield _test("unique", f"{name}_has_each_key_once", f"ROW({key})::text")
    for number, check in enumerate(view.checks, 1):
        yield _test("not_null", f"{name}_meets_check_{number}", f"CASE WHEN NOT ({check}) THEN NULL ELSE 1 END")


def _test(kind: str, name: str, expression: str) -> dict[str, Any]:
    return {kind: {"name": name, "arguments": {"column_name": _text(expression)}}}


def _text(given: str) -> str:
    """A text that dbt does not read as a template."""
    return "{% raw %}" + given + "{% endraw %}" if any(each in given for each in _TEMPLATES) else given
