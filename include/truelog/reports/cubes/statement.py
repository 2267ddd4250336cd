"""The statement that answers a question about a cube. It reads the rows of both periods once.

The rows become cells: one for each period, step and value of the key column, with the united states of its rows. All
else comes from the cells, because united states can be united again. Columns are looked up by name, and every value is
a parameter.
"""

from collections.abc import Iterable, Iterator
from typing import Any, LiteralString

from psycopg import sql

from truelog.exports import query as row_query
from truelog.exports.query import Condition
from truelog.reports.cubes.cube import Cube, Figure
from truelog.reports.cubes.question import Question

LINES = 5
_APART = 10_000  # steps, more than a period has
_GRAINS = (604_800, 86_400, 43_200, 21_600, 10_800, 3_600, 1_800, 900, 600, 300, 60, 10)

# Only the chosen figure of the period before is shown, so its other states are not read. The number of a step and its
# period are one number while the rows are grouped, which is faster: the period before has negative ones.
_CELLS: LiteralString = """
WITH cell AS MATERIALIZED (
    SELECT _bin >= 0 AS _now, _bin + CASE WHEN _bin < 0 THEN %(apart)s ELSE 0 END AS _step, * FROM (
        SELECT floor((date_part('epoch', _time) - _begin) / %(step)s)::integer AS _bin, _value,
            count(*) AS _rows, min(_time) AS _first, max(_time) AS _last, {united}
        FROM (
            SELECT {time} AS _time, {value} AS _value, {states},
                CASE WHEN {time} >= %(since)s THEN %(begin)s ELSE %(earlier)s END AS _begin
            FROM {table} WHERE {conditions}
        ) AS stored
        GROUP BY 1, 2
    ) AS binned
), step AS MATERIALIZED (
    SELECT _now, _step, sum(_rows) AS _rows, min(_first) AS _first, max(_last) AS _last, {united_of_chosen}
    FROM cell GROUP BY 1, 2
), value AS MATERIALIZED (
    SELECT _value, {united} FROM cell WHERE _now GROUP BY 1
)"""
# The grain is the interval that all times are multiples of. The first and the last time of each step are enough: if
# they are multiples of a longer interval than a step, the step has no other times. A point of the plot is as long as
# the longer of the two, so it has the rows of one step.
_COURSE: LiteralString = """, grain AS (
    SELECT min(CASE {grains} ELSE 1 END) AS seconds FROM step, LATERAL (VALUES (_first), (_last)) AS edge(at)
)
SELECT 'total', true, NULL::bigint, NULL::integer, NULL::text, rows, seconds, {figures}
FROM (SELECT {united} FROM value) AS united, grain,
    (SELECT coalesce(sum(_rows), 0)::bigint AS rows FROM step WHERE _now) AS counted
UNION ALL
SELECT 'total', false, NULL, NULL, NULL, NULL, NULL, {only}
FROM (SELECT {united_of_chosen} FROM step WHERE NOT _now) AS united
UNION ALL
SELECT 'point', _now, NULL, {point}, NULL, NULL, NULL, {only} FROM step, grain"""
# NULL is a value. A join on IS NOT DISTINCT FROM would compare each value with each other one.
_VALUES: LiteralString = """, top AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY _chosen DESC NULLS LAST, _value) AS _place, * FROM (
        SELECT *, {chosen} AS _chosen FROM value ORDER BY _chosen DESC NULLS LAST, _value LIMIT %(most)s
    ) AS largest
), placed AS MATERIALIZED (
    SELECT _place, cell.* FROM cell JOIN (SELECT _place, _value AS _top FROM top) AS top
    ON coalesce(_top, '') = coalesce(_value, '') AND (_top IS NULL) = (_value IS NULL)
    WHERE NOT _now OR _place <= %(lines)s
)"""
_OF_VALUES: LiteralString = """
UNION ALL
SELECT 'value', true, _place, NULL, _value, NULL, NULL, {figures} FROM top
UNION ALL
SELECT 'value', false, _place, NULL, NULL, NULL, NULL, {only}
FROM (SELECT _place, {united_of_chosen} FROM placed WHERE NOT _now GROUP BY 1) AS united
UNION ALL
SELECT 'line', true, _place, {point}, NULL, NULL, NULL, {only} FROM placed, grain WHERE _now"""
_POINT: LiteralString = "floor(_step * %(step)s / greatest(%(step)s, seconds))::integer"


def statement(cube: Cube, question: Question, chosen: Figure) -> tuple[sql.Composed, dict[str, Any]]:
    """The statement and its parameters.

    Raises:
        BadInput: a column is not a key column, or a filter has another operator.
    """
    span = sql.SQL("{time} >= %(before)s AND {time} < %(until)s").format(time=sql.Identifier(cube.time))
    measures = dict.fromkeys(each.measure for each in cube.figures)
    parts = sql.SQL(_CELLS + _COURSE if question.by is None else _CELLS + _VALUES + _COURSE + _OF_VALUES)
    made = parts.format(
        time=sql.Identifier(cube.time),
        table=cube.table,
        value=_value(cube, question.by),
        states=_comma(_state(cube, each, chosen) for each in measures),
        conditions=sql.SQL(" AND ").join([*row_conditions(cube, question), span]),
        united=_comma(_united(cube, each) for each in measures),
        point=sql.SQL(_POINT),
        united_of_chosen=_united(cube, chosen.measure),
        chosen=sql.SQL(chosen.shown),
        figures=_comma(sql.SQL(each.shown) for each in cube.figures),
        only=_comma(sql.SQL(each.shown if each is chosen else "NULL") for each in cube.figures),
        grains=sql.SQL(" ").join(
            sql.SQL("WHEN date_part('epoch', at)::bigint %% {} = 0 THEN {}").format(each, each) for each in _GRAINS
        ),
    )
    return made, _parameters(question)


def row_conditions(cube: Cube, question: Question) -> list[sql.Composable]:
    """The conditions for the rows of a question, at any time.

    Raises:
        BadInput: a column is not a key column, or a filter has another operator.
    """
    filters = [_condition(cube, number, each) for number, each in enumerate(question.where)]
    return [*filters, *_one_layer(cube, question)]


def _parameters(question: Question) -> dict[str, Any]:
    before = question.since - question.span
    times = {"before": before, "since": question.since, "until": question.until}
    earlier = before.timestamp() + _APART * question.step
    begins = {"begin": question.since.timestamp(), "earlier": earlier, "step": question.step, "apart": _APART}
    return times | begins | operands(question) | {"most": question.limit + 1, "lines": LINES}


def operands(question: Question) -> dict[str, Any]:
    """The parameters of `row_conditions`."""
    return {f"operand_{number}": each.value for number, each in enumerate(question.where)}


def _condition(cube: Cube, number: int, condition: Condition) -> sql.Composable:
    cube.require_filter(condition)
    return row_query.condition_sql(cube.types, condition, sql.Placeholder(f"operand_{number}"))


def _one_layer(cube: Cube, question: Question) -> Iterator[sql.Composable]:
    """Either the rows that contain others, or those others: both would count each event twice."""
    filtered = {each.column for each in question.where}
    for column in cube.all_if_null:
        if column not in filtered:
            contains = "IS NOT NULL" if column == question.by else "IS NULL"
            yield sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(contains))


def _value(cube: Cube, by: str | None) -> sql.Composable:
    if by is None:
        return sql.SQL("NULL::text")
    cube.require_key(by)
    return sql.SQL("{}::text").format(sql.Identifier(by))


def _state(cube: Cube, measure: str, chosen: Figure) -> sql.Composable:
    state = sql.Identifier(measure)
    if measure == chosen.measure:
        return state
    return sql.SQL("CASE WHEN {} >= %(since)s THEN {} END AS {}").format(sql.Identifier(cube.time), state, state)


def _united(cube: Cube, measure: str) -> sql.Composable:
    return sql.SQL("{} AS {}").format(sql.SQL(cube.united[measure]), sql.Identifier(measure))


def _comma(each: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(each)
