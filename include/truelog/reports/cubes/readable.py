"""The SQL of a cube's figures as people write it: the values of the table, without the plot and the period before.

If every figure is a sum, the statement reads the relation that readers see. Sketches are united from the stored rows,
which only the owner of the database can read.
"""

from dataclasses import dataclass

from psycopg import ClientCursor, sql

from truelog.reports.cubes.cube import Cube
from truelog.reports.cubes.question import Question
from truelog.reports.cubes.statement import operands, row_conditions
from truelog.storage.database import Connection


@dataclass(frozen=True)
class ReadableSql:
    """A statement with its values, and whether readers of views may run it."""

    text: str
    for_readers: bool


def readable_sql(connection: Connection, cube: Cube, question: Question) -> ReadableSql:
    """The statement for the total, or for the largest values of the key column.

    Raises:
        BadInput: a column is not a key column, or a filter has another operator.
    """
    is_sum = all(each.is_additive for each in cube.figures)
    table = sql.Identifier("views", cube.view) if is_sum else cube.table
    figures = [sql.SQL("{} AS {}").format(sql.SQL(each.shown), sql.Identifier(each.name)) for each in cube.figures]
    united = [
        sql.SQL("{} AS {}").format(sql.SQL(cube.united[measure]), sql.Identifier(measure))
        for measure in dict.fromkeys(each.measure for each in cube.figures)
    ]
    by = [] if question.by is None else [sql.Identifier(question.by)]
    span = sql.SQL("{time} >= %(since)s AND {time} < %(until)s").format(time=sql.Identifier(cube.time))
    made = sql.SQL(
        "SELECT {shown}\nFROM (\n    SELECT {read}\n    FROM {table}\n    WHERE {rows}{grouped}\n) AS united{ordered}"
    )
    text = made.format(
        shown=sql.SQL(", ").join([*by, *figures]),
        read=sql.SQL(", ").join([*by, *united]),
        table=table,
        rows=sql.SQL("\n        AND ").join([span, *row_conditions(cube, question)]),
        grouped=sql.SQL("\n    GROUP BY 1" if by else ""),
        ordered=_largest_first(cube, question) if by else sql.SQL(""),
    )
    values = {"since": question.since, "until": question.until, **operands(question)}
    return ReadableSql(ClientCursor(connection).mogrify(text, values), is_sum)


def _largest_first(cube: Cube, question: Question) -> sql.Composed:
    order = sql.Identifier(question.order or cube.figures[0].name)
    return sql.SQL("\nORDER BY {} DESC NULLS LAST, 1\nLIMIT {}").format(order, sql.Literal(question.limit))
