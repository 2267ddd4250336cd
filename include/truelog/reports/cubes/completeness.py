"""Completeness: from when on the figures of a range may still grow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import LiteralString

from psycopg import sql

from truelog.exports import query as row_query
from truelog.reports.cubes.cube import Cube
from truelog.reports.cubes.question import Question
from truelog.reports.cubes.statement import operands, row_conditions
from truelog.storage.database import Connection

_SECONDS = 5
_STATUSES: LiteralString = """
SELECT status, count(*), min({time}) FROM {view} WHERE {conditions} GROUP BY status ORDER BY status
"""


@dataclass(frozen=True)
class Completeness:
    """The figures are not final from `open_from` on; None if they are. `windows` counts the rows by their status."""

    open_from: datetime | None
    windows: Mapping[str, int] = field(default_factory=dict)


def completeness(connection: Connection, cube: Cube, question: Question, as_of: datetime | None) -> Completeness:
    """What is known about the rows of a question. They contain every record that reached the log before `as_of`.

    What happens from `as_of` on has not all reached the log. If `as_of` is not known, nothing is final. If the view has
    windows, the status of each row counts instead. A late event may change complete rows, too.

    Raises:
        BadInput: the statement takes too long.
    """
    if not cube.has_windows:
        final = question.since if as_of is None else max(as_of, question.since)
        return Completeness(final if final < question.until else None)
    span = sql.SQL("{time} >= %(since)s AND {time} < %(until)s").format(time=sql.Identifier(cube.time))
    asked = sql.SQL(_STATUSES).format(
        time=sql.Identifier(cube.time),
        view=sql.Identifier("views", cube.view),
        conditions=sql.SQL(" AND ").join([*row_conditions(cube, question), span]),
    )
    given = operands(question) | {"since": question.since, "until": question.until}
    with row_query.refused_input(connection, _SECONDS, "Choose a shorter time range or add a filter"):
        found = {status: (count, first) for status, count, first in connection.execute(asked, given)}
    _, open_from = found.get("open", (0, None))
    return Completeness(open_from, {status: count for status, (count, _) in found.items()})
