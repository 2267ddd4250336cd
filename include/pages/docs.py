"""Data Docs from the bucket: pages that Great Expectations rendered, without scripts."""

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse

from pages.data import OF_VIEWS
from truelog.quality import gx_docs, quality_history
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

router = APIRouter(prefix="/data-docs", dependencies=OF_VIEWS)
# The pages contain event values as text. If a browser parsed a value as HTML, this policy would block any code in it.
POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


@router.get("")
def newest(run: str, of: str) -> RedirectResponse:
    """The newest Data Docs of a view or event type that a run validated."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        number = quality_history.latest_validation(connection, run, of)
    if number is None:
        raise HTTPException(404, f"The run {run} has not validated {of}")
    return RedirectResponse(f"data-docs/{number}", 303)


@router.get("/{number}")
def page(number: int) -> HTMLResponse:
    settings = Settings()
    found = gx_docs.read_page(settings, number)
    if found is None:
        days = settings.data_docs_keep_seconds / 86_400
        raise HTTPException(404, f"No Data Docs {number}. Data Docs are deleted after {days:g} days")
    return HTMLResponse(found, headers={"content-security-policy": POLICY})
