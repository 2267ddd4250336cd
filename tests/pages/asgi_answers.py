"""Asks the pages for their answers inside this process, and prints what each answer cost: `asgi_answers ROUNDS PATH …`.

Airflow reads its configuration when it is imported, so tests run this file in a process of its own. The user may do
everything. The queries are those of Truelog's database, and `rows` is the number of rows that they returned.
"""

import asyncio
import json
import sys
import time
from types import SimpleNamespace

import httpx
from airflow.api_fastapi.core_api import security
from fastapi import FastAPI

from pages import access, app
from tests.deadline import deadline
from tests.pages.cost import counted


def permissive() -> FastAPI:
    """The application, for a user who may do everything."""
    may = SimpleNamespace(is_authorized_dag=lambda **_: True, is_authorized_connection=lambda **_: True)
    vars(access)["get_auth_manager"] = lambda: may
    made = app.make()
    made.dependency_overrides[security.get_user] = lambda: SimpleNamespace(get_name=lambda: "admin")
    return made


async def ask(rounds: int, paths: list[str]) -> None:
    transport = httpx.ASGITransport(permissive())
    async with httpx.AsyncClient(transport=transport, base_url="http://pages", timeout=deadline(120)) as client:
        for path in paths:
            seconds = []
            for _ in range(rounds):
                with counted() as found:
                    began = time.monotonic()
                    answer = await client.get(f"/{path}")
                    seconds.append(time.monotonic() - began)
            cost = {"status": answer.status_code, **found, "bytes": len(answer.content), "seconds": seconds}
            sys.stdout.write(json.dumps({"path": path, **cost}) + "\n")


if __name__ == "__main__":
    asyncio.run(ask(int(sys.argv[1]), sys.argv[2:]))
