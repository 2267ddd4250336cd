"""Data Docs from the bucket: pages that Great Expectations rendered, without scripts.

A stored page has no links, because the sanitiser removes them. The tabs and the way back are added when it is sent.
"""

from html import escape
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse, RedirectResponse

from pages.data import OF_VIEWS
from pages.files import TABS
from truelog.quality import gx_docs, quality_history
from truelog.quality.quality_history import Validated
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
    with db_snapshot.read_snapshot(settings) as connection:
        validated = quality_history.validated(connection, number)
    sent = found.replace(b"<body>", f"<body>{_navigation(validated)}".encode(), 1)
    return HTMLResponse(sent, headers={"content-security-policy": POLICY})


def _navigation(validated: Validated | None) -> str:
    """The tabs of all pages, and links to what was validated, if its result is still stored."""
    tabs = "".join(_link(tab, tab.replace("-", " ").capitalize()) for tab in TABS)
    back = ""
    if validated and validated.view:
        number = validated.reconciliation
        back = _link("reconciliation", f"Back to comparison {number} of {validated.view}", id=number)
        back += _link("view", validated.view, name=validated.view)
    elif validated:
        back = _link("quality", f"Back to the quality of {validated.event}", of=validated.event)
    links = f'<p class="related">{back}</p>' if back else ""
    return f'<header><nav aria-label="Pages">{tabs}</nav></header>{links}'


def _link(page: str, text: str, **parameters: object) -> str:
    query = f"?{urlencode(parameters)}" if parameters else ""
    return f'<a href="{escape(f"../{page}{query}")}">{escape(text)}</a>'
