"""Questions of applications about the past of a view, and their answers, which a job stores.

A past is a rebuild, which needs Spark, so the API asks here, and a job answers. The same question again finds the
answer: it has the same digest. What the log contained at a time does not change, so an answer is kept for a while.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
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
    SELECT status, said, rows, tries, extract(epoch FROM clock_timestamp() - asked_at)::float8
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
_BEGIN = """
    UPDATE truelog.past_question SET tries = tries + 1 WHERE answered_at IS NULL
    RETURNING digest, view, version, at, asked, tries
"""
_ANSWER = """
    UPDATE truelog.past_question SET answered_at = now(), status = %s, said = %s, rows = %s
    WHERE digest = %s AND answered_at IS NULL
"""


@dataclass(frozen=True)
class PastQuestion:
    """Rows of a view as of a time. `query` has a limit. `version` is what readers see now."""

    view: str
    version: int
    at: datetime
    query: RowQuery

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
    def of(view: str, version: int, at: datetime, asked: dict[str, Any]) -> "PastQuestion":
        """The question that was stored."""
        conditions = [Condition(column, Operator(name), value) for column, name, value in asked["conditions"]]
        return PastQuestion(view, version, at, RowQuery(**{**asked, "conditions": conditions}))


@dataclass(frozen=True)
class PastAnswer:
    """What is known of a question. Without a status, it waits: `tries` says whether a job has begun.

    said: what the rows were made of; or the `reason` of a refusal.
    """

    status: int | None
    said: dict[str, Any] | None
    rows: Sequence[str] | None
    tries: int
    seconds: float  # since it was asked


def ask(connection: Connection, settings: Settings, question: PastQuestion, asker: str) -> PastAnswer | None:
    """What is known of the question, which waits from now on if nothing is known. None if too many questions wait."""
    given = {
        **vars(question),
        "asked": Jsonb(question.asked),
        "digest": question.digest,
        "asker": asker,
        "keep": settings.api_past_keep_seconds,
        "refused": _REFUSED_SECONDS,
        "most": settings.api_past_questions,
        "share": max(1, settings.api_past_questions // 2),
    }
    known = _known(connection, given)
    if known is None:
        connection.execute(_ASK, given)
        known = _known(connection, given)
    return known


def _known(connection: Connection, given: dict[str, Any]) -> PastAnswer | None:
    found: Any = connection.execute(_KNOWN, given).fetchone()
    return None if found is None else PastAnswer(*found)


def begin(connection: Connection) -> list[PastQuestion]:
    """The questions that wait, in the order of their views and times. Those that have ended a job twice are refused."""
    begun = connection.execute(_BEGIN).fetchall()
    for digest, *_, tries in begun:
        if int(str(tries)) > _TRIES:
            reason = f"{_TRIES} jobs have ended without an answer; the log of the DAG `past` says why"
            _store(connection, str(digest), FAILED, {"reason": reason}, [])
    found: list[Any] = [row for row in begun if int(str(row[-1])) <= _TRIES]
    asked = [PastQuestion.of(view, version, at, asked) for _, view, version, at, asked, _ in found]
    return sorted(asked, key=lambda each: (each.view, each.at))


def answer(connection: Connection, question: PastQuestion, said: dict[str, Any], rows: Sequence[str]) -> None:
    """Store the answer. If the question was deleted meanwhile, by an erasure, nothing is stored."""
    _store(connection, question.digest, ANSWERED, said, rows)


def refuse(connection: Connection, question: PastQuestion, status: int, reason: str) -> None:
    """Store why there is no answer."""
    _store(connection, question.digest, status, {"reason": storable(reason)}, [])


def _store(connection: Connection, digest: str, status: int, said: dict[str, Any], rows: Sequence[str]) -> None:
    connection.execute(_ANSWER, (status, Jsonb(said, exact_json.write), list(rows), digest))
