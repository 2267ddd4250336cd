"""Dead letters: the events that the collector rejected, without their bytes, which the record page shows."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from pages import dead_letter_report
from pages.answer import Answer, parts
from pages.data import OF_STREAMS
from pages.dead_letter_report import LetterQuery, Order
from truelog.support.settings import Settings

router = APIRouter(prefix="/data", dependencies=OF_STREAMS)


class Form(BaseModel):
    """The list's filters, its order and its page."""

    hours: float = Field(default=24, gt=0, le=20 * 366 * 24)
    type: str = ""
    text: str = ""
    order: Order = "received_at"
    descending: bool = True
    limit: int = Field(default=100, ge=1, le=500)
    skip: int = Field(default=0, ge=0, le=dead_letter_report.MOST_READ)


@router.get("/dead-letters")
def dead_letters(form: Annotated[Form, Query()]) -> Answer:
    """How many dead letters of each reason there are, one page of them, and the command that sends them again."""
    query = LetterQuery(
        form.hours, form.type or None, form.text or None, form.order, form.descending, form.limit, form.skip
    )
    found = dead_letter_report.dead_letter_report(Settings(), query)
    return Answer(**parts(found), skip=form.skip, replay=query.replay)
