"""Exports reconciliations and differing rows as CSV for spreadsheets and as JSON for programs.

In CSV, each value in a differing row is JSON text. NULL therefore differs from an empty string, and a value that a
spreadsheet would read as a formula begins with a quotation mark.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import StreamingResponse

from pages.access import DataReader
from pages.data import OF_VIEWS
from pages.reconciliations import Filter
from truelog.erasure import hold
from truelog.exports.rows import csv_lines, json_array
from truelog.reconcile import reconcile_history
from truelog.storage import audit_trail, db_snapshot, exact_json
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(prefix="/export", dependencies=OF_VIEWS)
Format = Literal["csv", "json"]
_ALL = 100_000
_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}


@router.get("/reconciliations.{form}")
def reconciliations(form: Format, chosen: Annotated[Filter, Query()]) -> StreamingResponse:
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = [asdict(each) for each in reconcile_history.list_reconciliations(connection, chosen.query(_ALL))]
    if form == "json":
        return attachment("reconciliations.json", _array(found))
    names = list(found[0]) if found else ["id"]
    cells = ([_cell(each[name]) for name in names] for each in found)
    return attachment("reconciliations.csv", csv_lines(names, cells))


@router.get("/differing.{form}")
def differing(form: Format, id: int, user: DataReader) -> StreamingResponse:  # noqa: A002  the name in the URL
    """Export all rows that are still stored. The connection stays open until the last row is sent."""
    rows = _differing(id)
    columns = next(rows, None)
    if columns is None:
        raise HTTPException(404, f"No reconciliation {id}")
    with connect(Settings()) as connection:
        about = f"{form}: the differing rows"
        audit_trail.record_operation(connection, OperationKind.EXPORT, f"reconciliation {id}", user, about)
    if form == "json":
        return attachment(f"reconciliation-{id}.json", _array(asdict(each) for each in rows))
    head = [f"{column} {side}" for column in columns for side in ("streamed", "rebuilt")]
    cells = ([_value(side, column) for column in columns for side in (r.streamed, r.rebuilt)] for r in rows)
    return attachment(f"reconciliation-{id}.csv", csv_lines(head, cells))


def _differing(number: int) -> Iterator[Any]:
    """Yield the columns, then the rows. Yield nothing if there is no such reconciliation."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        detail = reconcile_history.reconciliation_detail(connection, number)
        if detail is not None:
            hold.require_not_held(connection, detail.reconciliation.view)
            yield detail.columns
            yield from reconcile_history.differing_rows(connection, detail)


def attachment(name: str, content: Iterator[str] | Iterator[bytes]) -> StreamingResponse:
    """A response that a browser saves as a file."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(content, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


def _array(values: Iterable[dict[str, Any]]) -> Iterator[str]:
    return json_array(map(exact_json.write, values))


def _value(row: dict[str, Any] | None, column: str) -> str:
    """A value as JSON text, or an empty string if this side lacks the row."""
    return "" if row is None else exact_json.write(row.get(column))


def _cell(value: Any) -> str:
    return "" if value is None else exact_json.write(value) if isinstance(value, str) else str(value)
