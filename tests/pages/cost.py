"""Counts the queries of this process to Truelog's database, and the rows that they return."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count `queries` and `rows` while the block is running. Clear the counter to begin again."""
    found, execute = Counter[str](), psycopg.Cursor.execute

    def counting(cursor: Any, *given: Any, **named: Any) -> Any:
        made = execute(cursor, *given, **named)
        found.update(queries=1, rows=max(0, cursor.rowcount))
        return made

    with mock.patch.object(psycopg.Cursor, "execute", counting):
        yield found
