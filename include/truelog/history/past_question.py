"""Questions of applications about the past of a view, and their answers, which a job stores.

A past is a rebuild, which needs Spark, so the API asks here, and a job answers. The same question again finds the
answer: it has the same digest. What the log contained at a time does not change, so an answer is kept for a while. It
is stored once with the rows of many pages, and each page is a part of it.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from truelog.exports.query import Condition, Operator, RowQuery
from truelog.storage import exact_json
from truelog.storage.database import Connection, storable
from truelog.support import timestamps
from truelog.support.settings import Settings

ANSWERED, WRONG, IMPOSSIBLE, FAILED = 200, 422, 409, 503
_TRIES = 2  # of the job, which may be killed by what a question needs
_REFUSED_SECONDS = 60  # for which a refusal is kept: the archive may reach the time meanwhile
WAITING = "SELECT FROM truelog.past_question WHERE answered_at IS NULL LIMIT 1"

_KNOWN = """
    SELECT status, said, rows[%(skip)s::integer + 1 : %(skip)s::integer + %(limit)s::integer], cardinality(rows),
        tries, extract(epoch FROM clock_timestamp() - asked_at)::float8,
        coalesce(extract(epoch FROM answered_at)::text, '')
    FROM truelog.past_question WHERE digest = %(digest)s AND (answered_at IS NULL OR answered_at >
        now() - make_interval(secs => CASE WHEN status = 200 THEN %(keep)s ELSE %(refused)s END))
"""
_ASK = """
    INSERT INTO truelog.past_question AS q (digest, view, version, at, asked, asker)
    SELECT %(digest)s, %(view)s, %(version)s, %(at)s, %(asked)s, %(asker)s
    FROM (
        SELECT count(*) AS waiting, count(*) FILTER (WHERE asker = %(asker)s) AS own
        FROM truelog.past_question WHERE answered_at IS NULL
    ) AS w WHERE waiting < %(most)s::integer AND own < %(share)s::integer
    ON CONFLICT (digest) DO UPDATE SET asker = excluded.asker, asked_at = clock_timestamp(), tries = 0,
        answered_at = NULL, status = NULL, said = NULL, rows = NULL WHERE q.answered_at IS NOT NULL
"""
_WAITING = """
    SELECT view, version, at, asked, asked_at, tries FROM truelog.past_question WHERE answered_at IS NULL
    ORDER BY view, version, at, asked_at
"""
# A question that is asked again, after an erasure has deleted it, has another time.
_TRY = """
    UPDATE truelog.past_question SET tries = tries + %(more)s
    WHERE digest = %(digest)s AND asked_at = %(asked_at)s AND answered_at IS NULL
"""
_ANSWER = """
    UPDATE truelog.past_question
    SET answered_at = clock_timestamp(), status = %(status)s, said = %(said)s, rows = %(rows)s
    WHERE digest = %(digest)s AND asked_at = %(asked_at)s AND answered_at IS NULL
"""


@dataclass(frozen=True)
class PastQuestion:
    """Rows of one version of a view at an earlier time. The limit of `query` is how many rows are stored.

    asked_at: when the stored question was asked. Its answer is for no other question with the same digest.
    """

    view: str
    version: int
    at: datetime
    query: RowQuery
    asked_at: datetime | None = field(default=None, compare=False)

    @property
    def asked(self) -> dict[str, Any]:
        """The query as JSON data."""
        query = self.query
        return {
            "relation": query.relation,
            "conditions": [[each.column, each.operator, each.value] for each in query.conditions],
            "order": query.order,
            "descending": query.descending,
            "columns": list(query.columns),
            "limit": query.limit,
        }

    @property
    def digest(self) -> str:
        text = json.dumps([self.view, self.version, timestamps.to_text(self.at), self.asked])
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def of(view: str, version: int, at: datetime, asked: dict[str, Any], asked_at: datetime) -> "PastQuestion":
        """The question that was stored."""
        conditions = [Condition(column, Operator(name), value) for column, name, value in asked["conditions"]]
        return PastQuestion(view, version, at, RowQuery(**{**asked, "conditions": conditions}), asked_at)


@dataclass(frozen=True)
class PastAnswer:
    """What is known of a question. Without a status, it waits: `tries` says whether a job has begun.

    said: what the rows were made of; or the `reason` of a refusal.
    rows: those of the page. `stored` is how many rows all pages have.
    identity: no other answer to the question has it, such as the answer after an erasure. Empty without an answer.
    """

    status: int | None
    said: dict[str, Any] | None
    rows: Sequence[str] | None
    stored: int | None
    tries: int
    seconds: float  # since it was asked
    identity: str


@dataclass(frozen=True)
class PastPage:
    """Which rows of the answer are read: `limit` rows behind the first `skip` rows."""

    limit: int
    skip: int = 0


def ask(
    connection: Connection, settings: Settings, question: PastQuestion, page: PastPage, asker: str
) -> PastAnswer | None:
    """What is known of the question, which waits from now on if nothing is known. None if too many questions wait."""
    given = {
        **vars(question),
        "asked": Jsonb(question.asked),
        "digest": question.digest,
        "asker": asker,
        "most": settings.api_past_questions,
        "share": max(1, settings.api_past_questions // 2),
    }
    known = read(connection, settings, question, page)
    if known is None:
        connection.execute(_ASK, given)
        known = read(connection, settings, question, page)
    return known


def read(connection: Connection, settings: Settings, question: PastQuestion, page: PastPage) -> PastAnswer | None:
    """What is known of the question. None if nothing is, or no longer."""
    keep = {"keep": settings.api_past_keep_seconds, "refused": _REFUSED_SECONDS}
    given = {"digest": question.digest, **keep, **vars(page)}
    found: Any = connection.execute(_KNOWN, given).fetchone()
    return None if found is None else PastAnswer(*found)


def waiting(connection: Connection) -> list[PastQuestion]:
    """The questions that wait, in the order of their views and times. Those that have ended two jobs are refused."""
    found: list[Any] = connection.execute(_WAITING).fetchall()
    for *stored, tries in found:
        if tries >= _TRIES:
            reason = f"{_TRIES} jobs have ended without an answer; the log of the DAG `past` says why"
            refuse(connection, PastQuestion.of(*stored), FAILED, reason)
    return [PastQuestion.of(*stored) for *stored, tries in found if tries < _TRIES]


def begin(connection: Connection, asked: Sequence[PastQuestion]) -> list[PastQuestion]:
    """Count a try of each question that waits still. Do this just before the rebuild, which may end the job."""
    return [each for each in asked if _count_try(connection, each, 1)]


def postpone(connection: Connection, asked: Sequence[PastQuestion]) -> None:
    """Let the questions wait for the next job, as if this one had not begun. An outage is not their fault."""
    for each in asked:
        _count_try(connection, each, -1)


def answer(connection: Connection, question: PastQuestion, said: dict[str, Any], rows: Sequence[str]) -> None:
    """Store the answer, unless an erasure has deleted the question. If it was asked again since, it waits still."""
    _store(connection, question, ANSWERED, said, rows)


def refuse(connection: Connection, question: PastQuestion, status: int, reason: str) -> None:
    """Store why there is no answer."""
    _store(connection, question, status, {"reason": storable(reason)}, [])


def _count_try(connection: Connection, question: PastQuestion, more: int) -> bool:
    return connection.execute(_TRY, _same(question) | {"more": more}).rowcount > 0


def _store(
    connection: Connection, question: PastQuestion, status: int, said: dict[str, Any], rows: Sequence[str]
) -> None:
    given = {"status": status, "said": Jsonb(said, exact_json.write), "rows": list(rows)}
    connection.execute(_ANSWER, _same(question) | given)


def _same(question: PastQuestion) -> dict[str, Any]:
    return {"digest": question.digest, "asked_at": question.asked_at}
