"""How many rows a rule or a search has found over time."""

from dataclasses import dataclass
from typing import Any

from psycopg import sql

from truelog.lag.time_steps import TimeRange, step_numbers
from truelog.storage.database import Connection

_STEPS = 96  # of a chart
_SHORTEST = 1.0  # seconds of a step

_COUNTS = """
    SELECT floor(extract(epoch FROM {time}) / %(step)s)::bigint, {outcome}, count(*) FROM {table}
    WHERE {named} = %(rule)s AND {time} >= to_timestamp(%(first)s * %(step)s)
        AND {time} < to_timestamp((%(last)s + 1) * %(step)s)
    GROUP BY 1, 2
"""


@dataclass(frozen=True)
class Course:
    """The number of rows in each step, by outcome. `at` has the beginning of each step in seconds since 1970."""

    step: float
    at: list[float]
    found: dict[str, list[int]]


@dataclass(frozen=True)
class Found:
    """The rows that were found. `named` is the column with the name of the rule, and `time` has the row's time.

    outcome: the column with the outcome; None if each row is a hit.
    """

    table: sql.Composable
    named: str
    time: str
    outcome: str | None = None


def read_course(connection: Connection, found: Found, rule: str, span: TimeRange) -> Course:
    """The course of one rule in a time range."""
    step = max(span.seconds / _STEPS, _SHORTEST)
    numbers = step_numbers(connection, span, step)
    query = sql.SQL(_COUNTS).format(
        table=found.table,
        named=sql.Identifier(found.named),
        time=sql.Identifier(found.time),
        outcome=sql.Identifier(found.outcome) if found.outcome else sql.Literal("found"),
    )
    bounds: dict[str, Any] = {"step": step, "rule": rule, "first": numbers[0], "last": numbers[-1]}
    counts: dict[str, list[int]] = {}
    for number, outcome, count in connection.execute(query, bounds).fetchall():
        counts.setdefault(str(outcome), [0] * len(numbers))[number - numbers[0]] = count
    return Course(step, [number * step for number in numbers], dict(sorted(counts.items())))
