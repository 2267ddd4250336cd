"""Data Docs, as they lie in the bucket: pages of Great Expectations' renderer that run nothing."""

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse

from pages.data import OF_VIEWS
from truelog.quality import gx_docs, quality_history
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

router = APIRouter(prefix="/data-docs", dependencies=OF_VIEWS)
# Values of events are text in them. Should one ever be read as HTML, nothing of it could run or ask for anything.
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


@router.get("")
def newest(run: str, of: str) -> RedirectResponse:
    """Of what a run judged: a view, or an event type."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        number = quality_history.latest_validation(connection, run, of)
    if number is None:
        raise HTTPException(404, f"{run} has not judged {of}")
    return RedirectResponse(f"data-docs/{number}", 303)


@router.get("/{number}")
def page(number: int) -> HTMLResponse:
    settings = Settings()
    found = gx_docs.read_page(settings, number)
    if found is None:
        days = settings.data_docs_keep_seconds / 86_400
        raise HTTPException(404, f"there are no Data Docs {number}: they are kept for {days:g} days")
    return HTMLResponse(found, headers={"content-security-policy": POLICY})
