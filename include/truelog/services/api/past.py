"""The past of a view over HTTP: `as_of`, with the meaning of `truelog query --as-of`.

The rows are a rebuild from the archive, which needs Spark and seconds to minutes. So the API stores the question and
answers 202, and a job answers the question (the DAG `past`). The client asks the same again until it gets the rows. It
holds no connection meanwhile, and the API does no work.
"""

from datetime import UTC, datetime
from typing import Any

from psycopg_pool import ConnectionPool
from starlette.concurrency import run_in_threadpool

from truelog.exports.query import RowQuery
from truelog.history import past_question
from truelog.history.past_question import ANSWERED, WRONG, PastAnswer, PastQuestion
from truelog.services.api.problem import Kind, Problem
from truelog.services.api.rows.catalogue import KnownView
from truelog.services.api.rows.parameters import RowParameters
from truelog.services.api.rows.reads import RECONNECT_SECONDS
from truelog.services.api.rows.statement import RowQuestion
from truelog.support import timestamps
from truelog.support.errors import BadInput, RequestRefused
from truelog.support.settings import Settings

RETRY_SECONDS = 3
_BUSY_SECONDS = 10
_MOST_CONNECTIONS = 2
_SECONDS = 2.0
_ONLY_NOW = ("cursor", "moving", "version", "at_least")


class Past:
    """Asks with a few connections of its own, because the role of the API may not write."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = ConnectionPool(
            kwargs=settings.database() | {"autocommit": True, "connect_timeout": 5},
            min_size=0, max_size=_MOST_CONNECTIONS, timeout=_SECONDS, reconnect_timeout=RECONNECT_SECONDS, open=False,
        )  # fmt: skip

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    async def ask(self, question: PastQuestion, asker: str) -> PastAnswer:
        """What is known of the question, which a job answers if nothing is.

        Raises:
            Problem: 429, too many questions wait. Others: the question cannot be answered.
        """
        found = await run_in_threadpool(self._ask, question, asker)
        if found is None:
            most = self._settings.api_past_questions
            reason = f"questions about the past wait already, of all keys {most} at most, and of one key half of them"
            raise Problem(429, reason, retry_after=_BUSY_SECONDS)
        if found.status not in (None, ANSWERED):
            assert found.status is not None and found.said is not None  # noqa: S101, PT018
            kind = None if found.status == WRONG else Kind.NO_PAST
            raise Problem(found.status, f"as_of: {found.said['reason']}", kind)
        return found

    def _ask(self, question: PastQuestion, asker: str) -> PastAnswer | None:
        with self._pool.connection() as connection:
            return past_question.ask(connection, self._settings, question, asker)


def question_of(view: KnownView, whole: RowQuestion, asked: RowParameters) -> PastQuestion:
    """The question about the past.

    Raises:
        RequestRefused: 422, it cannot be answered for an earlier time.
    """
    if wrong := [name for name in _ONLY_NOW if getattr(asked, name)]:
        raise RequestRefused(422, f"{wrong[0]}: not with as_of, whose rows are one state of the present version")
    try:
        at = timestamps.parse_timestamp(asked.as_of)
    except ValueError as error:
        raise BadInput(f"as_of: {error}") from error
    if at > datetime.now(UTC):
        raise BadInput("as_of: the time is in the future; leave as_of out for the present rows")
    chosen = [each for each in asked.order.split(",") if each]
    if len(chosen) > 1:
        raise BadInput("order: with as_of, name one column; rows with equal values are sorted by the other columns")
    first = whole.order[0] if whole.order else None
    query = RowQuery(
        whole.relation.name,
        whole.conditions,
        order=first.column if first else None,
        descending=bool(first and first.descending),
        columns=whole.columns,
        limit=whole.limit,
    )
    return PastQuestion(view.view, view.version, at, query)


def waits(question: PastQuestion, found: PastAnswer) -> dict[str, Any]:
    """What a client learns of a question that is not answered yet."""
    begun = found.tries > 0
    what = "a job rebuilds the rows" if begun else "a job will rebuild the rows (Airflow's DAG `past`)"
    return {
        "view": question.view,
        "past": timestamps.to_text(question.at),
        "state": "rebuilding" if begun else "waiting",
        "seconds": round(found.seconds, 3),
        "detail": f"{what}; ask the same again after `Retry-After` seconds",
    }


def answer_of(question: PastQuestion, found: PastAnswer) -> tuple[dict[str, Any], bool]:
    """The members that every answer begins with, and whether there are more rows."""
    assert found.said is not None  # noqa: S101
    said = found.said
    age = (datetime.now(UTC) - timestamps.parse_timestamp(said["as_of"])).total_seconds()
    head = {
        "view": question.view,
        "version": said["version"],
        "layer": "batch",
        "positions": said["positions"],
        "clock": said["clock"],
        "as_of": said["as_of"],
        "age": round(max(0.0, age), 3),
        "reason": "",
    }
    return head, bool(said["more"])
