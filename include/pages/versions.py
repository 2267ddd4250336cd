"""Versions of a view: how their rows differ, and moving readers between them."""

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel, Field

from pages.access import DataReader, SignedIn, may_cut_over, require_own_page
from pages.answer import Answer, parts, row_texts
from pages.data import OF_VIEWS
from truelog.support.settings import Settings
from truelog.versions import cut_over as versions
from truelog.versions.difference import difference

router = APIRouter()
_SAMPLE = 20  # differing rows
_SECONDS = 20
_MOVES = [*OF_VIEWS, Depends(require_own_page)]


class Version(BaseModel):
    view: Annotated[str, Field(min_length=1, max_length=100)]
    version: Annotated[int, Field(ge=1)]


def mover(user: SignedIn) -> str:
    """The user's name, if the user may move the readers of a view."""
    if not may_cut_over(user):
        raise HTTPException(403, "You may not move readers. This requires permission to trigger the cut_over DAG")
    return user.get_name()


Mover = Annotated[str, Depends(mover)]


@router.get("/data/version-difference", dependencies=OF_VIEWS)
def version_difference(view: str, one: int, other: int, _: DataReader) -> Answer:
    """How the rows of two versions differ, by key. All rows are read, so the comparison has a time limit."""
    found = difference(Settings(), view, one, other, _SAMPLE, seconds=_SECONDS)
    sample = [{side: row_texts(row) for side, row in each.items()} for each in found.sample]
    return Answer(**parts(found) | {"sample": sample})


@router.post("/versions/cut-over", dependencies=_MOVES)
def cut_over(request: Version, by: Mover) -> Answer:
    """Move readers to a version that is built and proved. They move at once, or not at all."""
    return Answer(**parts(versions.cut_over(Settings(), request.view, request.version, doer=by)))


@router.post("/versions/back", dependencies=_MOVES)
def back(request: Version, by: Mover) -> Answer:
    """Move readers back to this version, which they saw before."""
    return Answer(**parts(versions.back(Settings(), request.view, request.version, doer=by)))
