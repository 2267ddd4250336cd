"""Addresses of release 0.1 redirect, and all others reach the application."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from pages.former_addresses import FormerAddresses

PLUGIN = "/plugin/truelog/truelog"


def answered(path: str, query: str = "", root: str = "") -> tuple[int, str]:
    """The status and the location. The application below answers 200."""
    sent = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> None:
        raise AssertionError("a redirect reads no body")

    scope = {"type": "http", "path": path, "query_string": query.encode(), "root_path": root}
    asyncio.run(FormerAddresses(application, PLUGIN)(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]).get(b"location", b"").decode()


@pytest.mark.parametrize(
    ("path", "query", "location"),
    [
        ("/plugin/truelog-lag", "", f"{PLUGIN}/lag"),
        ("/plugin/truelog-lag/", "", f"{PLUGIN}/lag"),
        ("/plugin/truelog-lag/truelog/lag", "reader=a%20b&hours=6", f"{PLUGIN}/lag?reader=a%20b&hours=6"),
        ("/plugin/truelog-views/truelog/view", "name=page_views", f"{PLUGIN}/view?name=page_views"),
        ("/plugin/truelog-reconciliations/truelog/data-docs", "run=r", f"{PLUGIN}/data-docs?run=r"),
    ],
)
def test_a_former_address_redirects(path: str, query: str, location: str) -> None:
    assert answered(path, query) == (308, location)
    assert answered(path, query, root="/airflow") == (308, f"/airflow{location}")


@pytest.mark.parametrize(
    "path", ["/", "/plugin/truelog", f"{PLUGIN}/lag", "/plugin/other-lag", "/plugin/truelog-lag/x/y"]
)
def test_other_addresses_do_not(path: str) -> None:
    assert answered(path) == (200, "")
