"""The API while one sender asks much: the others are answered, because each has a share of the connections."""

import asyncio

import psycopg
import pytest

from tests.deadline import deadline, until
from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import PAGES, PRODUCTS, limiting
from truelog.storage.api_key import Role, add_key, revoke_key
from truelog.storage.database import Connection, connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

ROWS = f"/views/{PAGES}/rows"
BLOCKED = """
    SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
    WHERE d.datname = current_database() AND relation = %s::regclass AND NOT granted
"""
OTHERS = {
    ("GET", "/health"): 200,
    ("GET", "/rate-limits/192.0.2.3"): 200,
    ("GET", f"/views/{PRODUCTS}/rows"): 200,
    ("HEAD", f"/views/{PRODUCTS}/changes"): 409,  # it does not publish them, as its outbox shows
}


def test_slow_statements_of_a_visitor_delay_nobody_else(postgresql: Settings, deployed: Connection) -> None:
    other = add_key(deployed, "other", Role.READER, "a test")

    def blocked() -> int:
        """The number of statements that wait for the view's table."""
        [(number,)] = deployed.execute(BLOCKED, (f"state.{PAGES}_v1",))
        return int(number)

    def require_blocked() -> None:
        if not blocked():
            raise ServiceDown("no statement waits")

    seconds = deadline(60)
    with limiting(deployed), asking(postgresql, api_connections=2, api_statement_seconds=seconds) as api:
        visitor = api.request("POST", "/tokens", json={"view": PAGES, "key": {"host": "a"}}).json()["token"]

        async def story(locking: Connection) -> tuple[dict[tuple[str, str], int], int, set[int]]:
            asked = [asyncio.create_task(api.ask("GET", ROWS, visitor)) for _ in range(4)]
            await asyncio.to_thread(until, require_blocked, 30, "a statement that waits")
            found = {each: (await api.ask(*each, other)).status_code for each in OTHERS}
            held = blocked()
            locking.rollback()
            return found, held, {each.status_code for each in await asyncio.gather(*asked)}

        with connect(postgresql) as locking:
            locking.execute(f"LOCK TABLE state.{PAGES}_v1 IN ACCESS EXCLUSIVE MODE".encode())
            found, held, visited = api.run(story(locking))
    revoke_key(deployed, "other", "a test")
    assert found == OTHERS
    assert held == 1
    assert {200} <= visited <= {200, 503}


def test_all_who_wait_for_the_freshness_share_one_reading(api: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its error. Otherwise each of them would wait for PostgreSQL again, one after the other."""
    reads, readings = api.questions._reads, list[int]()
    source = api.run(reads.source(PAGES, "reader"))

    async def away() -> None:
        readings.append(1)
        await asyncio.sleep(0)
        raise psycopg.OperationalError("away")

    async def ask() -> list[object]:
        monkeypatch.setattr(reads, "_fresh_until", 0.0)
        monkeypatch.setattr(reads, "_refresh", away)
        return list(await asyncio.gather(*(reads.freshness(source) for _ in range(3)), return_exceptions=True))

    assert [type(each) for each in api.run(ask())] == [psycopg.OperationalError] * 3
    assert len(readings) == 1
