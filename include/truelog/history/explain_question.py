"""Questions for explanations that users ask on a page, and the stored answers of the jobs that explain.

An explanation needs Spark, which the web server does not run. So a job answers, and the page shows its answer.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from truelog.exports.query import Condition, Operator
from truelog.storage import exact_json
from truelog.storage.database import Connection
from truelog.support.errors import (
    ArchiveBehind,
    BadDeclaration,
    BadInput,
    CatalogBehind,
    CodeChanged,
    MeaningChanged,
    NotMade,
    TopicRecreated,
)

# Why a row cannot be explained now: an answer for the user, and no fault of the job.
REFUSALS = (
    ArchiveBehind,
    BadDeclaration,
    BadInput,
    CatalogBehind,
    CodeChanged,
    MeaningChanged,
    NotMade,
    TopicRecreated,
)


@dataclass(frozen=True)
class Question:
    """Which row to explain. `where` names it as `truelog query --where` does; `before` is the end of the page."""

    view: str
    where: tuple[str, ...]
    before: str = ""

    @property
    def key(self) -> dict[str, str | None]:
        """The value of each key column; None is NULL.

        Raises:
            BadInput: a condition is not `COLUMN=VALUE` or `COLUMN is NULL`, or a column has two values.
        """
        found: dict[str, str | None] = {}
        for condition in map(Condition.parse, self.where):
            if condition.operator not in (Operator.EQUAL, Operator.MISSING) or condition.column in found:
                raise BadInput("identify a row by giving COLUMN=VALUE or `COLUMN is NULL` for every key column")
            found[condition.column] = condition.value if condition.operator is Operator.EQUAL else None
        return found

    @property
    def command(self) -> str:
        """The command that answers the question, ready to be copied into a shell."""
        words = ["truelog", "explain", self.view]
        for column, value in self.key.items():
            words += ["--null", column] if value is None else [f"{column}={value}"]
        return shlex.join(words + (["--before", self.before] if self.before else []))


@dataclass(frozen=True)
class Answered:
    """That a question was answered: when, for whom, and the id of the answer."""

    id: int
    doer: str
    finished_at: datetime


def store_answer(connection: Connection, question: Question, answer: Mapping[str, Any], doer: str) -> None:
    connection.execute(
        "INSERT INTO truelog.explanation (view, conditions, before, answer, doer) VALUES (%s, %s, %s, %s, %s)",
        (question.view, list(question.where), question.before, Jsonb(answer, exact_json.write), doer),
    )


def newest_answer(connection: Connection, question: Question) -> Answered | None:
    with connection.cursor(row_factory=class_row(Answered)) as cursor:
        return cursor.execute(
            "SELECT id, doer, finished_at FROM truelog.explanation "
            "WHERE (view, conditions, before) = (%s, %s, %s) ORDER BY id DESC LIMIT 1",
            (question.view, list(question.where), question.before),
        ).fetchone()


def find_answer(connection: Connection, answer: int) -> tuple[Question, dict[str, Any]] | None:
    """The question and its answer; None if there is no answer with this id."""
    row: tuple[Any, ...] | None = connection.execute(
        "SELECT view, conditions, before, answer FROM truelog.explanation WHERE id = %s", (answer,)
    ).fetchone()
    return None if row is None else (Question(row[0], tuple(row[1]), row[2]), row[3])
