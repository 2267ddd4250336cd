"""A batch job that answers the questions of applications about the past of views, as `truelog query --as-of` does."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import psycopg
from py4j.protocol import Py4JNetworkError

from truelog.batch.batch_context import BatchContext, open_batch
from truelog.history import past_question
from truelog.history.as_of import PastView, open_past
from truelog.history.explain_question import REFUSALS
from truelog.history.past_question import FAILED, IMPOSSIBLE, WRONG, PastQuestion
from truelog.spark.time_limit import time_limit
from truelog.storage.database import Connection, connect
from truelog.storage.outages import OUTAGES
from truelog.support import timestamps
from truelog.support.errors import BadInput, NotSetUp
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView

_JAVA_ENDED = (ConnectionError, Py4JNetworkError)  # clients of services raise errors of their own

log = logging.getLogger("truelog.past")


def answer_waiting(settings: Settings) -> int:
    """Answer the questions that wait now, in a Spark session of low priority, and return how many there were."""
    with connect(settings, autocommit=True) as connection:
        asked = past_question.waiting(connection)
        if asked:
            with open_batch(settings, "truelog past", sorted({each.view for each in asked})) as context:
                answer_each(context, connection, asked)
    return len(asked)


def answer_each(context: BatchContext, connection: Connection, asked: Sequence[PastQuestion]) -> None:
    """Answer these questions. Those about one view at one time, which follow each other, share a rebuild.

    Raises:
        Exception: a service does not answer, and its questions wait; or Java has ended.
    """
    compiled, outages = {each.name: each for each in context.views.compiled}, list[Exception]()
    for (view, _), group in groupby(asked, key=lambda each: (each.view, each.at)):
        same = past_question.begin(connection, list(group))
        if not same:
            continue  # deleted by an erasure
        if view in compiled:
            outages += _answer(context, connection, compiled[view], same)
        else:
            reason = context.views.refused.get(view, f"there is no file of the view {view}")
            _refuse(connection, same, IMPOSSIBLE, reason)
    if outages:
        raise outages[0]


def _answer(
    context: BatchContext, connection: Connection, compiled: CompiledView, asked: Sequence[PastQuestion]
) -> list[Exception]:
    """Answer what one rebuild answers. Return the outage if there is one: the questions then wait still."""
    seconds = context.settings.api_past_seconds
    with time_limit(context.spark, seconds) as time_is_up:
        try:
            with open_past(context, compiled, asked[0].at) as past:
                for each in asked:
                    _answer_one(context.settings, connection, past, each)
        except REFUSALS as refused:
            _refuse(connection, asked, WRONG if isinstance(refused, BadInput) else IMPOSSIBLE, str(refused))
        except Exception as error:
            if time_is_up.is_set():
                late = f"the rebuild needs more than {seconds} s; `truelog query --as-of` has no limit"
                _refuse(connection, asked, FAILED, late)
            elif isinstance(error, _JAVA_ENDED):
                raise
            elif isinstance(error, OUTAGES):
                past_question.postpone(connection, asked)
                return [error]
            else:
                log.exception("%s: the past could not be rebuilt", compiled.name)
                _refuse(connection, asked, FAILED, f"the rebuild has failed ({type(error).__name__})")
    return []


def _answer_one(settings: Settings, connection: Connection, past: PastView, question: PastQuestion) -> None:
    limit = question.query.limit or 0
    try:
        found = list(past.rows(replace(question.query, limit=limit + 1), seconds=settings.api_past_read_seconds))
    except (BadInput, NotSetUp, psycopg.ProgrammingError) as wrong:  # such as a column whose type has no order
        past_question.refuse(connection, question, WRONG, str(wrong).partition("\n")[0])
        return
    past_question.answer(connection, question, _said(past) | {"more": len(found) > limit}, found[:limit])


def _said(past: PastView) -> dict[str, Any]:
    """What the rows were made of. `clock` is the log's clock, if the view depends on it."""
    said = past.as_dict()
    clock = timestamps.to_text(past.tick_time) if past.compiled.view.reads_clock else None
    return {"version": said["version"], "positions": said["positions"], "as_of": said["tick"], "clock": clock}


def _refuse(connection: Connection, asked: Sequence[PastQuestion], status: int, reason: str) -> None:
    for each in asked:
        past_question.refuse(connection, each, status, reason)
