"""The tracker, a script for pages (docs/tracker.md). Its address has a number, so browsers may keep it for a year.

A change of the script needs another number in `declaration.TRACKER`. A test knows the digest of each number.
"""

import base64
import gzip
import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

SCRIPT = (Path(__file__).parent / "truelog.js").read_bytes()
COMPRESSED = gzip.compress(SCRIPT, mtime=0)
# For the attribute `integrity`, with which a page refuses any other script.
INTEGRITY = f"sha384-{base64.b64encode(hashlib.sha384(SCRIPT).digest()).decode()}"
_HEADERS = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Access-Control-Allow-Origin": "*",  # a page that checks the script's integrity must be able to read it
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept-Encoding",
}


async def serve(request: Request) -> Response:
    """The script, compressed if the browser understands that."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(COMPRESSED, headers=_HEADERS | {"Content-Encoding": "gzip"}, media_type="text/javascript")
    return Response(SCRIPT, headers=_HEADERS, media_type="text/javascript")
