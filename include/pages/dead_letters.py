"""Dead letters: the events that the collector rejected, without their bytes, and sending them again.

The record page shows one dead letter with its bytes.
"""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, Field

from pages import dead_letter_report
from pages.access import SignedIn, may_replay, require_own_page
from pages.answer import Answer, parts
from pages.data import OF_STREAMS
from pages.dead_letter_report import LetterQuery, Order
from truelog.control import event_registry
from truelog.dead_letters import replay as dead_letter_replay
from truelog.dead_letters.store import DeadLetter, LetterStore
from truelog.support.settings import Settings

router = APIRouter(dependencies=OF_STREAMS)


class Filter(BaseModel):
    """Which dead letters."""

    hours: float = Field(default=24, gt=0, le=20 * 366 * 24)
    type: str = ""
    text: str = ""


class Form(Filter):
    """The list's filters, its order and its page."""

    order: Order = "received_at"
    descending: bool = True
    limit: int = Field(default=100, ge=1, le=500)
    skip: int = Field(default=0, ge=0, le=dead_letter_report.MOST_READ)


class LetterPlace(BaseModel):
    """The place of one dead letter in its topic."""

    partition: int = Field(ge=0, lt=2**31)
    offset: int = Field(ge=0, lt=2**63)


class Replay(BaseModel):
    """What to send again: one dead letter, or those of a filter. `dry_run` only counts."""

    one: LetterPlace | None = None
    chosen: Filter = Filter()
    dry_run: bool


@router.get("/data/dead-letters")
def dead_letters(form: Annotated[Form, Query()], user: SignedIn) -> Answer:
    """How many dead letters of each reason there are, one page of them, and the command that sends them again."""
    query = LetterQuery(
        form.hours, form.type or None, form.text or None, form.order, form.descending, form.limit, form.skip
    )
    found = dead_letter_report.dead_letter_report(Settings(), query)
    return Answer(**parts(found), skip=form.skip, replay=query.replay, may_replay=may_replay(user))


@router.post("/dead-letters/replay", dependencies=[Depends(require_own_page)])
def replay(request: Replay, user: SignedIn) -> Answer:
    """Send the dead letters that are valid now and were not sent before, or count them.

    The user may close the page: a replay that has begun goes on, and a second one sends nothing twice.
    """
    if not may_replay(user):
        raise HTTPException(403, "You may not send events. This requires permission to trigger the reconcile DAG")
    settings = Settings()
    letters, types = _letters(settings, request), event_registry.confirmed_types(settings)
    if request.dry_run:
        return Answer(**parts(dead_letter_replay.preview(settings, types, letters)))
    return Answer(**parts(dead_letter_replay.replay(settings, types, letters, user.get_name())))


def _letters(settings: Settings, request: Replay) -> Sequence[DeadLetter]:
    if request.one is None:
        chosen = LetterQuery(request.chosen.hours, request.chosen.type, request.chosen.text).filter
        return dead_letter_report.read_letters(settings, chosen)
    found = LetterStore(settings).find(request.one.partition, request.one.offset)
    if found is None:
        raise HTTPException(404, f"No dead letter at {request.one.partition}:{request.one.offset}")
    return [found]
