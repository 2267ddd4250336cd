"""Exports reconciliations and differing rows as CSV for spreadsheets and as JSON for programs.

In CSV, each value in a differing row is JSON text. NULL therefore differs from an empty string, and a value that a
spreadsheet would read as a formula begins with a quotation mark.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from pages import triggered_runs
from pages.data import OF_VIEWS
from truelog.reconcile import reconcile_history
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

router = APIRouter(prefix="/export", dependencies=OF_VIEWS)
Format = Literal["csv", "json"]
_ALL = 100_000


@router.get("/reconciliations.{form}")
def reconciliations(form: Format, view: str = "", run: str = "", attempt: str = "") -> StreamingResponse:
    runs = triggered_runs.comparison_runs(run, attempt)
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = [
            asdict(each) for each in reconcile_history.latest_reconciliations(connection, _ALL, view or None, runs)
        ]
    if form == "json":
        return _file("reconciliations.json", _array(found))
    names = list(found[0]) if found else ["id"]
    cells = ([_cell(each[name]) for name in names] for each in found)
    return _file("reconciliations.csv", _table([names], cells))


@router.get("/differing.{form}")
def differing(form: Format, id: int) -> StreamingResponse:  # noqa: A002  the name in the URL
    """Export all rows that are still stored. The connection stays open until the last row is sent."""
    rows = _differing(id)
    columns = next(rows, None)
    if columns is None:
        raise HTTPException(404, f"No reconciliation {id}")
    if form == "json":
        return _file(f"reconciliation-{id}.json", _array(asdict(each) for each in rows))
    head = [f"{column} {side}" for column in columns for side in ("streamed", "rebuilt")]
    cells = ([_value(side, column) for column in columns for side in (r.streamed, r.rebuilt)] for r in rows)
    return _file(f"reconciliation-{id}.csv", _table([head], cells))


def _differing(number: int) -> Iterator[Any]:
    """Yield the columns, then the rows. Yield nothing if there is no such reconciliation."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        detail = reconcile_history.reconciliation_detail(connection, number)
        if detail is not None:
            yield detail.columns
            yield from reconcile_history.differing_rows(connection, detail)


def _file(name: str, lines: Iterator[str]) -> StreamingResponse:
    kind = "text/csv" if name.endswith("csv") else "application/json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type=f"{kind}; charset=utf-8", headers=headers)


def _array(values: Iterable[dict[str, Any]]) -> Iterator[str]:
    prefix = "["
    for value in values:
        yield prefix + json.dumps(value, default=str)
        prefix = ",\n"
    yield "[]" if prefix == "[" else "]\n"


def _table(head: Sequence[Sequence[str]], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for part in (head, rows):
        for row in part:
            text = io.StringIO()
            csv.writer(text).writerow(row)
            yield text.getvalue()


def _value(row: dict[str, Any] | None, column: str) -> str:
    """A value as JSON text, or an empty string if this side lacks the row."""
    return "" if row is None else json.dumps(row.get(column), default=str)


def _cell(value: Any) -> str:
    return "" if value is None else json.dumps(value) if isinstance(value, str) else str(value)
