"""Analytics: the figures of one cube in a time range, as data and as a file."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BaseModel, Field

from pages.access import DataReader, SignedIn, may_compare
from pages.answer import Answer, parts
from pages.data import OF_VIEWS
from pages.export import attachment
from truelog.exports.query import Condition
from truelog.exports.rows import csv_lines
from truelog.reports.cubes import analytics, cube
from truelog.reports.cubes.analytics import Row
from truelog.reports.cubes.completeness import completeness
from truelog.reports.cubes.events import archived_events
from truelog.reports.cubes.hourly import LONG, cube_to_read
from truelog.reports.cubes.question import LONGEST, Question
from truelog.reports.cubes.readable import readable_sql
from truelog.serving import status as serving_status
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

router = APIRouter(dependencies=OF_VIEWS)
_MOST_TEXT = 1_000  # characters of the filters in the audit trail


class Form(BaseModel):
    """What a page asks for. The last `hours` count unless `since` and `until` are given."""

    view: str
    hours: float = Field(default=24, gt=0, le=LONGEST / timedelta(hours=1))
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    by: str = ""
    order: str = ""
    where: list[str] = Field(default=[], max_length=20)

    def question(self, limit: int) -> Question:
        """A range that ends now ends with the last whole minute, and a long one with the last whole hour.

        So each minute or hour in it has ended.
        """
        if (self.since is None) is not (self.until is None):
            raise BadInput("give both ends of a time range, or neither")
        now, span = datetime.now(UTC).replace(second=0, microsecond=0), timedelta(hours=self.hours)
        until = self.until or (now.replace(minute=0) if span > LONG else now)
        since = self.since or until - span
        where = [Condition.parse(each) for each in self.where]
        return Question(since, until, where, self.by or None, self.order or None, limit)


@router.get("/data/cubes")
def cubes() -> Answer:
    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        return Answer(cubes=cube.cube_names(settings, connection))


@router.get("/data/analytics")
def figures(form: Annotated[Form, Query()], user: SignedIn) -> Answer:
    """The figures, with the view that they come from and the positions of its rows."""
    settings, question = Settings(), form.question(50)
    with db_snapshot.read_snapshot(settings) as connection:
        asked = cube.find_cube(settings, connection, form.view)
        source = cube_to_read(settings, connection, asked, question)
        found = analytics.analyse(connection, source, question)
        served = serving_status.serving_statuses(connection).get(source.view)
        positions = _positions(connection, source.view)
        known = completeness(connection, source, question, None if served is None else served.as_of)
        written = readable_sql(connection, source, question)
    columns = [{"name": e.name, "error": e.error, "comment": e.comment} for e in asked.figures]
    described = {"view": form.view, "source": source.view, "time": source.time, "keys": asked.keys, "columns": columns}
    period = {"since": question.since, "until": question.until, "before": question.since - question.span}
    shown = {"sql": written.text, "sql_for_readers": written.for_readers}
    read = {**shown, "answer": served, "positions": positions, "may_export": may_compare(user), **parts(known)}
    return Answer(**described, **period, by=form.by, order=form.order or asked.figures[0].name, **read, **parts(found))


@router.get("/data/analytics/events")
def events(form: Annotated[Form, Query()], user: DataReader) -> Answer:
    """The archived events behind the figures. The audit trail records who looked at them, before the answer is sent."""
    settings, question = Settings(), form.question(0)
    with db_snapshot.read_snapshot(settings) as connection:
        asked = cube.find_cube(settings, connection, form.view)
    found = archived_events(settings, asked, question)
    about = f"{question.since:%Y-%m-%dT%H:%M} to {question.until:%Y-%m-%dT%H:%M}, {_filters(form)}"
    with connect(settings) as connection:
        for topic in found:
            audit_trail.record_operation(connection, OperationKind.READ, topic.topic, user, about)
    return Answer(topics=[parts(each) for each in found])


@router.get("/export/analytics.csv")
def export(form: Annotated[Form, Query()], user: DataReader) -> StreamingResponse:
    """The total and the largest values as CSV. The audit trail records the user and the filters before."""
    settings, question = Settings(), form.question(analytics.MOST_VALUES)
    with db_snapshot.read_snapshot(settings) as connection:
        asked = cube.find_cube(settings, connection, form.view)
        found = analytics.analyse(connection, cube_to_read(settings, connection, asked, question), question)
    with connect(settings) as connection:
        about = f"csv: figures by {form.by or 'nothing'}, {_filters(form)}"
        audit_trail.record_operation(connection, OperationKind.EXPORT, form.view, user, about)
    order = form.order or asked.figures[0].name
    head = [form.by or "total", *(each.name for each in asked.figures), f"{order} before", "change"]
    rows = [found.total] if question.by is None else found.rows
    return attachment(f"{form.view}-figures.csv", csv_lines(head, map(_cells, rows)))


def _filters(form: Form) -> str:
    return ", ".join(form.where)[:_MOST_TEXT] or "all rows"


def _cells(row: Row) -> list[str]:
    cells: list[Any] = [row.value, *row.figures, row.before, row.change]
    return [_cell(each) for each in cells]


def _cell(value: Any) -> str:
    """A text is in quotation marks, so that no cell begins as a formula does."""
    return "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _positions(connection: Connection, view: str) -> dict[str, dict[int, int]]:
    """The positions of the rows that readers see, by topic and partition."""
    found: dict[str, dict[int, int]] = {}
    for topic, partition, offset in connection.execute(
        "SELECT topic, partition, next_offset FROM truelog.served_position "
        "JOIN truelog.deployed USING (view, version) WHERE view = %s ORDER BY topic, partition",
        (view,),
    ):
        found.setdefault(topic, {})[partition] = offset
    return found
