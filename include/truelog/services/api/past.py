"""The past of a view over HTTP: `as_of`, with the meaning of `truelog query --as-of`.

The rows are a rebuild from the archive, which needs Spark and seconds to minutes. So the API stores the question and
answers 202, and a job answers the question (the DAG `past`). The client asks the same again until it gets the rows. It
holds no connection meanwhile, and the API does no work.

All pages are parts of one stored answer, so a walk shows one state. A cursor has the number of the rows before it. If
the answer is gone, because it was kept long enough or an erasure has deleted it, the walk ends.
"""

from datetime import UTC, datetime
from typing import Any

from psycopg_pool import ConnectionPool
from starlette.concurrency import run_in_threadpool

from truelog.exports.query import RowQuery
from truelog.history import past_question
from truelog.history.past_question import ANSWERED, WRONG, PastAnswer, PastPage, PastQuestion
from truelog.services.api.problem import Kind, Problem
from truelog.services.api.rows.catalogue import KnownView
from truelog.services.api.rows.connections import RECONNECT_SECONDS
from truelog.services.api.rows.cursor import Cursor
from truelog.services.api.rows.parameters import RowParameters
from truelog.services.api.rows.statement import RowQuestion
from truelog.support import timestamps
from truelog.support.errors import BadInput, RequestRefused
from truelog.support.settings import Settings

RETRY_SECONDS = 3
_BUSY_SECONDS = 10
_MOST_CONNECTIONS = 2
_SECONDS = 2.0
_LONGEST_NUMBER = 9  # digits of a number of rows
_ONLY_NOW = ("moving", "at_least")


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

    async def ask(self, question: PastQuestion, page: PastPage, asker: str) -> PastAnswer:
        """What is known of the question, which a job answers if nothing is.

        Raises:
            Problem: 429, too many questions wait. Others: the question cannot be answered.
        """
        found = await run_in_threadpool(self._ask, question, page, asker)
        if found is None:
            most = self._settings.api_past_questions
            reason = f"questions about the past wait already, of all keys {most} at most, and of one key half of them"
            raise Problem(429, reason, retry_after=_BUSY_SECONDS)
        if found.status not in (None, ANSWERED):
            assert found.status is not None and found.said is not None  # noqa: S101, PT018
            kind = None if found.status == WRONG else Kind.NO_PAST
            raise Problem(found.status, f"as_of: {found.said['reason']}", kind)
        return found

    def _ask(self, question: PastQuestion, page: PastPage, asker: str) -> PastAnswer | None:
        with self._pool.connection() as connection:
            return past_question.ask(connection, self._settings, question, page, asker)

    async def follow(self, question: PastQuestion, cursor: Cursor, limit: int) -> tuple[PastAnswer, PastPage]:
        """A further page of the answer to which the page before belongs.

        Raises:
            BadInput: the cursor has no number of rows.
            Problem: 409, this answer is gone, or is that of another version than the reader gets. Nothing is asked
                again, because other rows could follow.
        """
        cursor.require_basis(_basis(question), places=1)
        page = PastPage(limit, _number(cursor.after[0]))
        found = await run_in_threadpool(self._read, question, page)
        if found is None or found.status != ANSWERED or found.identity != cursor.state:
            raise Problem(409, "the answer that the page before was a part of is gone; begin again", Kind.MOVED)
        return found, page

    def _read(self, question: PastQuestion, page: PastPage) -> PastAnswer | None:
        with self._pool.connection() as connection:
            return past_question.read(connection, self._settings, question, page)


def question_of(view: KnownView, whole: RowQuestion, asked: RowParameters, most: int) -> PastQuestion:
    """The question about the past. Its answer has up to `most` rows, for all pages.

    Raises:
        RequestRefused: 422, it cannot be answered for an earlier time.
    """
    if wrong := [name for name in _ONLY_NOW if getattr(asked, name)]:
        raise RequestRefused(422, f"{wrong[0]}: not with as_of, whose rows are those of one state")
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
        view.plain_name(whole.relation),
        whole.conditions,
        order=first.column if first else None,
        descending=bool(first and first.descending),
        columns=whole.columns,
        limit=most,
    )
    return PastQuestion(view.view, view.version, at, query)


def _basis(question: PastQuestion) -> str:
    return question.digest[:16]


def _number(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise BadInput("cursor: it is not a cursor; use `next` of the page before as it is")
    return int(text)


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


def answer_of(
    question: PastQuestion, found: PastAnswer, page: PastPage, of: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The members that an answer begins with, and those behind the rows: whether there are more, and their cursor.

    of: the hash of what was asked.
    """
    assert found.said is not None  # noqa: S101
    assert found.stored is not None  # noqa: S101
    said, end = found.said, page.skip + page.limit
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
    if end >= found.stored:
        return head, {"more": bool(said["more"]), "next": None}
    following = Cursor(of, _basis(question), found.identity, (str(end),))
    return head, {"more": True, "next": following.as_text()}
