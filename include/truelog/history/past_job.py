"""A batch job that answers the questions of applications about the past of views, as `truelog query --as-of` does."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import psycopg
from py4j.protocol import Py4JNetworkError

from truelog.batch.batch_context import BatchContext, open_batch
from truelog.history import past_question, past_versions
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

_MOST_CHARACTERS = 2**25  # of the rows of one answer, which one row may exceed
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
    """Answer these questions. Those about one version at one time, which follow each other, share a rebuild.

    Raises:
        Exception: a service does not answer, and its questions wait; or Java has ended.
    """
    loaded = past_versions.load(context, connection, {(each.view, each.version) for each in asked})
    outages = list[Exception]()
    for (view, version, _), group in groupby(asked, key=lambda each: (each.view, each.version, each.at)):
        same = past_question.begin(connection, list(group))
        if not same:
            continue  # deleted by an erasure
        if compiled := loaded.compiled.get((view, version)):
            outages += _answer(context, connection, compiled, same)
        else:
            _refuse(connection, same, IMPOSSIBLE, loaded.refused[view, version])
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
        rows = past.rows(replace(question.query, limit=limit + 1), seconds=settings.api_past_read_seconds)
        kept, more = _portion(rows, limit)
    except (BadInput, NotSetUp, psycopg.ProgrammingError) as wrong:  # such as a column whose type has no order
        past_question.refuse(connection, question, WRONG, str(wrong).partition("\n")[0])
        return
    past_question.answer(connection, question, _said(past) | {"more": more}, kept)


def _portion(rows: Iterator[str], limit: int) -> tuple[list[str], bool]:
    """The rows that one answer stores, and whether there are more of them."""
    kept, size, more = list[str](), 0, False
    for row in rows:  # to their end, because the connection reads them in a transaction
        if len(kept) == limit or size > _MOST_CHARACTERS:
            more = True
        else:
            kept.append(row)
            size += len(row)
    return kept, more


def _said(past: PastView) -> dict[str, Any]:
    """What the rows were made of. `clock` is the log's clock, if the view depends on it."""
    said = past.as_dict()
    clock = timestamps.to_text(past.tick_time) if past.compiled.view.reads_clock else None
    return {"version": said["version"], "positions": said["positions"], "as_of": said["tick"], "clock": clock}


def _refuse(connection: Connection, asked: Sequence[PastQuestion], status: int, reason: str) -> None:
    for each in asked:
        past_question.refuse(connection, each, status, reason)
