"""Hourly cubes: figures of long ranges come from a view that adds up a cube's rows by the hour (`View.hourly_of`)."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from truelog.reports.cubes.cube import Cube, cube_names, find_cube
from truelog.reports.cubes.question import Question
from truelog.reports.declared_view import declared_view
from truelog.storage.database import Connection
from truelog.support.errors import BadInput
from truelog.support.settings import Settings

LONG = timedelta(days=7)  # longer ranges are read from hourly cubes
_HOUR = 3_600  # seconds
# An hourly cube that is still being built has fewer events, and the rows of a cube with a problem may be wrong.
_IS_CURRENT = """
SELECT EXISTS (
    SELECT FROM truelog.answer h, truelog.answer c
    WHERE h.view = %s AND c.view = %s AND h.reason = '' AND h.as_of > c.as_of - interval '1 minute'
)
"""


def cube_to_read(settings: Settings, connection: Connection, cube: Cube, question: Question) -> Cube:
    """The hourly cube if it has the same figures for this question, or else the cube itself."""
    if question.span <= LONG or not cube.is_declared or not all(map(_is_whole_hour, (question.since, question.until))):
        return cube
    named = {column for column in (question.by, *(each.column for each in question.where)) if column is not None}
    for hourly in _hourly_cubes(settings, connection, cube.view):
        if not hourly.is_declared:  # only the declared versions of both cubes are known to agree
            continue
        known = {each.name: each for each in hourly.figures}
        figures = [known[each.name] for each in cube.figures if each.name in known]
        fits = len(figures) == len(cube.figures) and named <= set(hourly.keys) and set(hourly.reads) == set(cube.reads)
        if fits and connection.execute(_IS_CURRENT, (hourly.view, cube.view)).fetchone() == (True,):
            return replace(hourly, figures=figures)
    return cube


def _hourly_cubes(settings: Settings, connection: Connection, name: str) -> Iterator[Cube]:
    for each in cube_names(settings, connection):
        view, _ = declared_view(settings, each)
        if view is not None and view.hourly_of == name:
            try:
                yield find_cube(settings, connection, each)
            except BadInput:  # it has no table yet, or its file is not stored
                continue


def _is_whole_hour(at: datetime) -> bool:
    return at.timestamp() % _HOUR == 0
