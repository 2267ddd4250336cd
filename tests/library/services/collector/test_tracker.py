"""The tracker's file: its size, and that browsers may keep it."""

import asyncio
import gzip

import pytest
from starlette.requests import Request

from truelog.services.collector import tracker
from truelog.services.collector.declaration import TRACKER

# A browser keeps the script of an address for a year. A changed script needs the next number.
INTEGRITIES = {
    "/truelog.1.js": "sha384-zfq8HHh5x38OFgBZQYYJbLUe7QQ5BOkE+NOC1my260OwuATr03hHG+rRg1EAKRv1",
    "/truelog.2.js": "sha384-7UH4XcIp9Wf6l69w9X8gttTmZ7a0IKWql0THg7cruo+9GlXPusG1QKjZJVsGoe6E",
    "/truelog.3.js": "sha384-Hud9kaVlQ/BXAGbwVw45sPZAUVabpt8N1ebu9+OpZzWujcNoGrLVP+wSzFAr5HoN",
    "/truelog.4.js": "sha384-n1o0pkzeLDc4xFM8tY6zh5XtGk+I0Z5FbBbbDhvEAgfuBvwdV6i+A334MX3spSkY",
}


@pytest.mark.parametrize("encodings", ["gzip, br", "identity"])
def test_it_is_served_for_a_year(encodings: str) -> None:
    request = Request({"type": "http", "headers": [(b"accept-encoding", encodings.encode())]})
    answer = asyncio.run(tracker.serve(request))
    is_compressed = answer.headers.get("content-encoding") == "gzip"
    assert is_compressed == ("gzip" in encodings)
    body = bytes(answer.body)
    assert (gzip.decompress(body) if is_compressed else body) == tracker.SCRIPT
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"


def test_it_is_at_most_three_kilobytes() -> None:
    assert len(tracker.COMPRESSED) <= 3 * 1024


def test_a_changed_script_has_another_address() -> None:
    assert INTEGRITIES[TRACKER.path] == tracker.INTEGRITY
