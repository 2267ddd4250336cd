"""A request that fails unexpectedly gives its reader a way out, and the log the reason."""

import asyncio
import logging

import httpx
import pytest

from pages.failures import Failures
from pages.headers import OURS, Headers, Scope, Send


async def _broken(scope: Scope, _: object, send: Send) -> None:
    if scope["path"] == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": []})
    raise KeyError("secret of a row")


def ask(path: str) -> httpx.Response:
    async def sent() -> httpx.Response:
        transport = httpx.ASGITransport(Headers(Failures(_broken), OURS))
        async with httpx.AsyncClient(transport=transport, base_url="http://pages") as client:
            return await client.get(path)

    return asyncio.run(sent())


def test_the_answer_names_the_place_of_the_reason_and_not_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "truelog.pages"):
        found = ask("/data/lag")
    detail = found.json()["detail"]
    assert (found.status_code, "secret" in detail, "content-security-policy" in found.headers) == (500, False, True)
    [logged] = caplog.records
    assert logged.exc_info
    number = logged.getMessage().split()[1]
    assert f"tell an administrator the number {number}: the log of Airflow's API server" in detail


def test_an_answer_that_has_begun_is_cut_off() -> None:
    with pytest.raises(KeyError):
        ask("/late")
