"""Analytics: the figures of a cube in a time range, beside those of the period before.

A figure of several rows comes from the measure's own functions: sketches are united, and never summed. Columns are
looked up by name, and every value is a parameter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from truelog.exports import query as row_query
from truelog.reports.cubes.comparison import incomparable
from truelog.reports.cubes.cube import Cube, Figure
from truelog.reports.cubes.question import Question
from truelog.reports.cubes.statement import LINES, statement
from truelog.storage.database import Connection
from truelog.support.errors import BadInput

SECONDS = 5  # for the statement
MOST_VALUES = 500
# PostgreSQL expects almost as many cells as rows. With helpers it would sort all rows, which takes twice as long. The
# second setting keeps 100,000 cells in memory.
_FASTER = ("SET LOCAL max_parallel_workers_per_gather = 0", "SET LOCAL work_mem = '64MB'")
_CURE = "Choose a shorter time range or add a filter"

Value = str | None
Figures = Sequence[Any]  # in the order of the cube's figures


@dataclass(frozen=True)
class Line:
    """A value of the key column, with the chosen figure in each step. The period before has the value None."""

    value: Value
    values: Sequence[Any]


@dataclass(frozen=True)
class Course:
    """The chosen figure over time. `at` has the begin of each step, in seconds since 1970."""

    step: int
    at: Sequence[float]
    now: Sequence[Any]
    before: Sequence[Any]
    lines: Sequence[Line]


@dataclass(frozen=True)
class Row:
    """The figures of a value of the key column, and the chosen figure of the period before."""

    value: Value
    figures: Figures
    before: Any
    change: float | None


@dataclass(frozen=True)
class Analysis:
    """`incomparable` says why there is no period before, or is empty."""

    total: Row
    state_rows: int
    rows: Sequence[Row]
    more: bool
    course: Course
    incomparable: str = ""


class _Answer(NamedTuple):
    """A row of the statement's answer. `place` is that of a value, and `point` that of a step."""

    part: str
    is_now: bool
    place: int | None
    point: int | None
    value: Value
    rows: int | None
    grain: int | None
    figures: Figures


def analyse(connection: Connection, cube: Cube, question: Question) -> Analysis:
    """The total, the largest values and the course, within the caller's read-only snapshot.

    Raises:
        BadInput: a column does not exist, a value does not have the column type, or the statement takes too long.
    """
    chosen = _chosen(cube, question)
    made, parameters = statement(cube, question, chosen)
    with row_query.refused_input(connection, SECONDS, _CURE):
        for each in _FASTER:
            connection.execute(each)
        found = _Found(
            [_Answer._make((*row[:7], row[7:])) for row in connection.execute(made, parameters)], cube, chosen
        )
    earlier, now = sorted(found.of("total"), key=lambda each: each.is_now)
    rows = _rows(found)
    course = _course(found, question, max(question.step, now.grain or 1), rows[:LINES])
    total = found.row(now, earlier)
    analysis = Analysis(total, now.rows or 0, rows[: question.limit], len(rows) > question.limit, course)
    why = incomparable(cube, question.since, question.until, now.grain or 1)
    return _alone(analysis, why) if why else analysis


def _alone(analysis: Analysis, why: str) -> Analysis:
    """The analysis without the period before."""
    total, *rows = [replace(each, before=None, change=None) for each in (analysis.total, *analysis.rows)]
    return replace(analysis, total=total, rows=rows, course=replace(analysis.course, before=[]), incomparable=why)


def _chosen(cube: Cube, question: Question) -> Figure:
    found = [each for each in cube.figures if question.order in (None, each.name)]
    if not found:
        raise BadInput(f"there is no figure {question.order!r}; there are {', '.join(e.name for e in cube.figures)}")
    return found[0]


@dataclass(frozen=True)
class _Found:
    """The rows of the statement's answer."""

    answers: Sequence[_Answer]
    cube: Cube
    chosen: Figure

    def of(self, part: str) -> list[_Answer]:
        return [each for each in self.answers if each.part == part]

    def figure(self, answer: _Answer) -> Any:
        """The chosen figure."""
        return answer.figures[self.cube.figures.index(self.chosen)]

    def row(self, now: _Answer, earlier: _Answer | None) -> Row:
        new, old = self.figure(now), None if earlier is None else self.figure(earlier)
        change = None if new is None or not old else float((new - old) / old)
        return Row(now.value, now.figures, old, change)


def _rows(found: _Found) -> list[Row]:
    """The values, those with the largest figures first."""
    values = sorted(found.of("value"), key=lambda each: each.place or 0)
    earlier = {each.place: each for each in values if not each.is_now}
    return [found.row(each, earlier.get(each.place)) for each in values if each.is_now]


def _course(found: _Found, question: Question, step: int, rows: Sequence[Row]) -> Course:
    count = int(-(-question.span.total_seconds() // step))
    nothing = 0 if found.chosen.is_additive else None

    def filled(answers: Iterable[_Answer]) -> list[Any]:
        figures = {each.point: found.figure(each) for each in answers}
        return [figures.get(point, nothing) for point in range(count)]

    now, before = (filled(e for e in found.of("point") if e.is_now is period) for period in (True, False))
    lines = found.of("line")
    named = [Line(row.value, filled(e for e in lines if e.place == place)) for place, row in enumerate(rows, 1)]
    begin = question.since.timestamp()
    return Course(step, [begin + point * step for point in range(count)], now, before, named)
