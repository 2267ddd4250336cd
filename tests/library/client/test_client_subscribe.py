"""Both clients follow a view through a restart of the API, and raise typed errors."""

import asyncio
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest

import runtime
from runtime import keeper
from tests.deadline import deadline
from tests.library.listener import Listener, listening
from tests.library.relay.published import Published, publishing
from tests.library.services.api.streaming import Served, serving
from truelog.client.async_client import AsyncClient
from truelog.client.client import Client
from truelog.client.errors import NotFound, NotPermitted, Refused, Unavailable
from truelog.client.update import Update
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings

STREAMS = 101  # one more than the connections that httpx permits by default


@pytest.fixture(scope="module")
def connection(postgresql: Settings) -> Iterator[Connection]:
    runtime.up(postgresql, ("api",), tethered=True)
    with connect(postgresql, autocommit=True) as made:
        yield made


@pytest.fixture
def view(postgresql: Settings, connection: Connection) -> Iterator[Published]:
    with publishing(postgresql, connection) as made:
        yield made


def arguments(settings: Settings) -> dict[str, Any]:
    at = settings.address("api")
    return {"api": f"http://{at.host}:{at.port}", "reader_key": settings.reader_key.get_secret_value()}


def require_equal(rows: Mapping[str, Mapping[str, Any]], view: Published) -> None:
    assert {each["product"]: Decimal(each["amount"]) for each in rows.values()} == {
        product: Decimal(amount) for product, amount in view.amounts().items()
    }


def test_a_subscriber_outlasts_a_restart_of_the_service(postgresql: Settings, view: Published) -> None:
    """It gets what changes in between once."""
    view.change({"p1": "0.1234567890123456789"})
    rows: dict[str, Mapping[str, Any]] = {}
    with Client(**arguments(postgresql), seconds=120) as client:
        updates = client.subscribe(view.compiled.name)
        first = next(updates)
        first.apply(rows)
        assert (first.is_whole, first.number, first.version, first.at) == (True, 1, 1, None)
        require_equal(rows, view)
        keeper.stop(postgresql, "api")
        view.change({"p2 \u2028 \x85 \r \n": "2"}, "p1")
        view.change({"p3": "3"})
        runtime.up(postgresql, ("api",))
        for number in (3, 4):
            update = next(updates)
            update.apply(rows)
            assert (update.is_whole, update.number, update.version) == (False, number, 1)
        require_equal(rows, view)
        updates.close()


def test_the_asynchronous_client_does_the_same(postgresql: Settings, view: Published) -> None:
    view.change({"p1": "1", "p2": "1"})

    async def story() -> None:
        rows: dict[str, Mapping[str, Any]] = {}
        async with AsyncClient(**arguments(postgresql)) as client:
            async for update in client.subscribe(view.compiled.name, where=["product=p1"]):
                update.apply(rows)
                if update.number == 2:
                    await asyncio.to_thread(view.change, {"p2": "2"})
                    await asyncio.to_thread(view.change, {"p1": "3"})
                if update.number == 4:
                    break
            assert [each["amount"] for each in rows.values()] == [Decimal(3)]
            with pytest.raises(NotFound):
                await anext(client.subscribe("nothing"))

    asyncio.run(story())


def test_errors_are_typed(postgresql: Settings, view: Published) -> None:
    with Client(**arguments(postgresql)) as client:
        with pytest.raises(NotFound):
            next(client.subscribe("nothing"))
        with pytest.raises(Refused, match="the key has product"):
            next(client.subscribe(view.compiled.name, where=["amount=1"]))
    with Client(**arguments(postgresql) | {"reader_key": "x"}) as stranger, pytest.raises(NotPermitted):
        next(stranger.subscribe(view.compiled.name))


@pytest.fixture
def receiver() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


def test_a_client_gives_up_after_its_time_limit(receiver: Listener) -> None:
    receiver.away()
    with Client(api=receiver.url, seconds=0.5) as client, pytest.raises(Unavailable, match="ConnectError"):
        next(client.subscribe("cart"))
    receiver.back()


def require_whole_after_resync(
    served: Served, view: Published, updates: Iterator[Update], rows: dict[str, Mapping[str, Any]]
) -> None:
    served.subscriptions._tails[view.compiled.name, 1].resync("a test")
    again = next(updates)
    again.apply(rows)
    assert again.is_whole
    require_equal(rows, view)


def test_a_resync_in_the_stream_replaces_the_rows(postgresql: Settings, view: Published) -> None:
    view.change({"p1": "1"})
    rows: dict[str, Mapping[str, Any]] = {}
    with serving(postgresql) as served:
        given = arguments(postgresql) | {"api": served.url}
        with Client(**given) as client:
            updates = client.subscribe(view.compiled.name)
            next(updates).apply(rows)
            view.change_unpublished({"p2": "2"}, "p1")
            require_whole_after_resync(served, view, updates, rows)


def test_a_resync_ends_the_place_that_the_caller_gave(postgresql: Settings, view: Published) -> None:
    """The service still knows this place, and would go on from it."""
    view.change({"p1": "1"})
    rows: dict[str, Mapping[str, Any]] = {}
    with serving(postgresql) as served:
        with served.following(view.compiled.name) as told:
            told.next()
        view.change({"p2": "2"})
        with Client(**arguments(postgresql) | {"api": served.url}) as client:
            updates = client.subscribe(view.compiled.name, last_event_id=told.place)
            first = next(updates)
            assert (first.is_whole, first.number) == (False, 2)
            view.change_unpublished({"p3": "3"}, "p1")
            require_whole_after_resync(served, view, updates, rows)


def test_subscriptions_leave_a_connection_for_other_calls(postgresql: Settings, view: Published) -> None:
    view.change({"p1": "1"})
    with Client(**arguments(postgresql), seconds=deadline(10)) as client:
        streams = [client.subscribe(view.compiled.name) for _ in range(STREAMS)]
        assert all(next(each).is_whole for each in streams)
        assert [row["product"] for row in client.rows(view.compiled.name).rows] == ["p1"]
        for each in streams:
            each.close()


def test_subscriptions_of_the_asynchronous_client_do_so_too(postgresql: Settings, view: Published) -> None:
    view.change({"p1": "1"})

    async def story() -> None:
        async with AsyncClient(**arguments(postgresql), seconds=deadline(10)) as client:
            streams = [client.subscribe(view.compiled.name) for _ in range(STREAMS)]
            assert all([(await anext(each)).is_whole for each in streams])
            assert [row["product"] for row in (await client.rows(view.compiled.name)).rows] == ["p1"]

    asyncio.run(story())
