"""How many rows of tables a query reads, by PostgreSQL's own account."""

import math
from collections.abc import Iterator
from typing import Any

from psycopg import sql

from tests.beds.lab import Lab


def rows_read(lab: Lab, query: sql.Composable) -> int:
    """The rows that the scans of a query return, and the rows that they discard.

    Leaves out the platform's own tables, whose few rows depend on the tests before.
    """
    explain = sql.SQL("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) {}").format(query)
    [(found,)] = lab.connection.execute(explain).fetchall()
    assert isinstance(found, list)
    return sum(
        math.ceil(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))
        for node in _nodes(found[0]["Plan"])
        if "Relation Name" in node and node["Schema"] != "truelog"
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
