"""Static files: one HTML document for all pages, and the scripts that fill it."""

from pathlib import Path

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse

_FOLDER = Path(__file__).parent / "static"
_FILES = {path.name: path for path in _FOLDER.iterdir()}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
TABS = (
    *("flow", "streams", "views", "analytics", "rules", "reconciliations", "certificates", "quality", "dead-letters"),
    *("backfills", "lag", "alerts", "timeline", "operations"),
)
PAGES = (*TABS, "view", "reconciliation", "record", "explain", "freshness", "pattern", "search")

router = APIRouter()


@router.get("/static/{name}")
def static(name: str) -> FileResponse:
    """Look up the name among the existing files, so that a request cannot supply a path."""
    if name not in _FILES:
        raise HTTPException(404, "No such file")
    return _file(name)


def page() -> FileResponse:
    return _file("page.html")


for each in PAGES:
    router.add_api_route(f"/{each}", page, methods=["GET"])


def _file(name: str) -> FileResponse:
    path = _FILES[name]
    return FileResponse(path, media_type=_TYPES[path.suffix], headers={"cache-control": "no-cache"})
