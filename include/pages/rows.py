"""The rows of a view: one page of them as data, and all that match as a file."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from pages.access import DataReader
from pages.answer import Answer, parts
from pages.data import OF_VIEWS, require
from pages.export import attachment
from truelog.exports import browse
from truelog.exports import parquet as parquet_export
from truelog.exports import rows as row_export
from truelog.exports.query import Condition, RowQuery
from truelog.exports.rows import csv_lines, json_array
from truelog.reports import view as view_report
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import connect
from truelog.support.settings import Settings

router = APIRouter(dependencies=OF_VIEWS)
Format = Literal["csv", "json", "parquet"]
_PIECE = 64 * 2**10  # bytes
_MOST_TEXT = 1_000  # characters of the conditions in the audit trail


class Form(BaseModel):
    """The rows that a page asks for. `where` has the conditions, as `truelog query --where` reads them."""

    name: str
    relation: str = ""
    where: list[str] = Field(default=[], max_length=20)
    order: str = ""
    descending: bool = True
    columns: str = ""

    def query(self, settings: Settings) -> RowQuery:
        relation = self.relation or self.name
        known = view_report.view_relations(settings, self.name)
        require(relation in known, f"{self.name!r} has no relation {relation!r}")
        return RowQuery(
            relation=relation,
            conditions=[Condition.parse(each) for each in self.where],
            order=self.order or None,
            descending=self.descending,
            columns=self.columns.split(",") if self.columns else (),
        )


class PageForm(Form):
    limit: int = Field(default=50, ge=1, le=browse.LIMIT)
    skip: int = Field(default=0, ge=0, le=browse.MOST_SKIPPED)


class FileForm(Form):
    limit: int = Field(default=row_export.LIMIT, ge=1, le=row_export.LIMIT)


@router.get("/data/rows")
def rows(form: Annotated[PageForm, Query()]) -> Answer:
    """Rows of a view or of a relation that the view presents."""
    settings = Settings()
    query = replace(form.query(settings), limit=form.limit, skip=form.skip)
    with db_snapshot.read_snapshot(settings) as connection:
        known = [each["name"] for each in db_snapshot.view_columns(connection, query.relation)]
        found = browse.fetch_rows(connection, query)
    return Answer(relation=query.relation, skip=form.skip, known=known, **parts(found))


@router.get("/export/rows.{form}")
def export(form: Format, wanted: Annotated[FileForm, Query()], user: DataReader) -> StreamingResponse:
    """A file with the rows. The audit trail records the user and the query before the first row is sent."""
    settings = Settings()
    query = replace(wanted.query(settings), limit=wanted.limit)
    content: Iterator[Any] = _parquet(settings, query) if form == "parquet" else _text(settings, query, form)
    first = next(content)  # refuses invalid input
    with connect(settings) as connection:
        about = f"{form}: {', '.join(wanted.where)[:_MOST_TEXT] or 'all rows'}, at most {wanted.limit}"
        audit_trail.record_operation(connection, OperationKind.EXPORT, query.relation, user, about)
    return attachment(f"{query.relation}.{form}", chain([first], content))


def _text(settings: Settings, query: RowQuery, form: Format) -> Iterator[str]:
    with db_snapshot.read_snapshot(settings) as connection:
        found = row_export.stream_rows(connection, query, row_export.SECONDS)
        yield from csv_lines(found.names, found.rows) if form == "csv" else json_array(row_export.json_lines(found))


def _parquet(settings: Settings, query: RowQuery) -> Iterator[bytes]:
    """The file, which is complete before its first byte is sent."""
    with tempfile.TemporaryFile() as file:
        with db_snapshot.read_snapshot(settings) as connection:
            parquet_export.write_parquet(row_export.stream_rows(connection, query, row_export.SECONDS), file)
        file.seek(0)
        while piece := file.read(_PIECE):
            yield piece
