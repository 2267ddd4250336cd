"""Who may follow what: scoped tokens, also as a parameter, and streams whose credential ends."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.deadline import until
from tests.library.relay.published import Published, publishing
from tests.library.services.api.streaming import Served, serving
from truelog.services.api.changes import stream
from truelog.storage.api_key import Role, add_key, revoke_key
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@pytest.fixture(scope="module")
def view(postgresql: Settings, connection: Connection) -> Iterator[Published]:
    with publishing(postgresql, connection) as made:
        made.change({"p1": "1", "p2": "2"})
        yield made


def token(api: Served, view: str, key: str | None = None, **changes: Any) -> str:
    held = key or api.settings.reader_key.get_secret_value()
    asked = {"view": view, "key": {"product": "p1"}} | changes
    made = httpx.post(f"{api.url}/tokens", json=asked, headers={"Authorization": f"Bearer {held}"})
    assert made.status_code == 200, made.text
    return str(made.json()["token"])


def test_a_token_follows_its_rows_and_no_others(api: Served, view: Published) -> None:
    """It may be a parameter, because a browser's `EventSource` sends no header."""
    name = view.compiled.name
    held = token(api, name)
    for credential, asked in ((held, {}), ("", {"token": held})):
        with api.following(name, credential=credential, **asked) as told:
            assert told.next() is not None
            assert list(told.rows) == ['{"product":"p1"}']
            assert told.answer.headers["Cache-Control"] == "no-store"
        for other in ({"where": "product=p0"}, {"where": "product=p2"}, {"where": "product is NULL"}, {"key": "p2"}):
            refused = api.refused(name, credential=credential, **other, **asked)
            assert refused.status_code == 422
            assert "a token names its columns" in refused.json()["detail"]


def test_strangers_and_keys_in_the_address_are_refused(api: Served, view: Published) -> None:
    name, key = view.compiled.name, api.settings.reader_key.get_secret_value()
    held = token(api, name)
    for asked in ({}, {"token": key}, {"token": f"{held}x"}, {"token": "a.b.c"}):
        assert api.refused(name, credential="", **asked).status_code == 401
    assert api.refused("cart", credential="", token=held).status_code == 403
    rows = httpx.get(f"{api.url}/views/{name}/rows", params={"token": held})
    assert rows.status_code == 401  # only a subscriber's token may be a parameter
    producer = api.settings.producer_key.get_secret_value()
    assert api.refused(name, credential=producer).status_code == 403


def test_a_stream_ends_with_its_credential(
    postgresql: Settings, connection: Connection, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    key = add_key(connection, "leaver", Role.READER, "a test")
    with serving(postgresql) as api:
        held = token(api, view.compiled.name, key)
        with api.following(view.compiled.name, credential=held) as told:
            assert told.next() is not None
            revoke_key(connection, "leaver", "a test")
            assert told.next() is None


def test_too_many_subscribers_are_refused(postgresql: Settings, view: Published) -> None:
    with serving(postgresql, api_subscribers=1) as api:
        with api.following(view.compiled.name) as told:
            told.next()
            assert api.refused(view.compiled.name).status_code == 429

        def require_room() -> None:
            with api.following(view.compiled.name) as again:
                if again.answer.status_code != 200:
                    raise ServiceDown("the first subscriber is not gone yet")

        until(require_room, 20, "room for another subscriber")


def test_one_key_cannot_take_all_streams(postgresql: Settings, connection: Connection, view: Published) -> None:
    """Its tokens count too, and another site can still follow."""
    other, name = add_key(connection, "another-site", Role.READER, "a test"), view.compiled.name
    with serving(postgresql, api_subscribers=4) as api, ExitStack() as streams:
        held = [streams.enter_context(api.following(name, credential=each)) for each in (token(api, name), None, None)]
        assert None not in [each.next() for each in held]
        for credential in (None, token(api, name)):
            refused = api.refused(name, credential=credential)
            assert (refused.status_code, "this key has too many" in refused.json()["detail"]) == (429, True)
        with api.following(name, credential=other) as told:
            assert told.next() is not None
    revoke_key(connection, "another-site", "a test")


def test_a_visitor_cannot_take_all_streams_of_its_back_end(postgresql: Settings, view: Published) -> None:
    with serving(postgresql, api_subscribers=3, api_token_subscribers=1) as api:
        name = view.compiled.name
        first, second = token(api, name), token(api, name)
        with api.following(name, credential=first) as told:
            told.next()
            refused = [api.refused(name, credential="", token=first) for _ in range(3)]
            assert [each.status_code for each in refused] == [429] * 3
            assert "this scoped token" in refused[0].json()["detail"]
            with api.following(name, credential=second) as other:
                assert other.next() is not None


def test_too_many_rows_are_refused(postgresql: Settings, view: Published) -> None:
    with serving(postgresql, api_subscriber_rows=1) as api:
        refused = api.refused(view.compiled.name)
        assert (refused.status_code, "name columns of the key" in refused.json()["detail"]) == (422, True)
        with api.following(view.compiled.name, where="product=p1") as told:
            assert told.next() is not None


def test_too_many_bytes_are_refused(postgresql: Settings, view: Published) -> None:
    one = max(len(row) for row in view.rows().values())
    with serving(postgresql, api_subscriber_bytes=one) as api:
        refused = api.refused(view.compiled.name)
        assert (refused.status_code, f"and {one} bytes" in refused.json()["detail"]) == (422, True)
        with api.following(view.compiled.name, where="product=p1") as told:
            assert told.next() is not None


def test_the_service_ends_while_subscribers_wait(postgresql: Settings, view: Published) -> None:
    """It does not wait for them, and they learn it by the end of the stream."""
    with serving(postgresql) as api, api.following(view.compiled.name) as told:
        told.next()
        api.server.should_exit = True
        assert told.next() is None
        api.thread.join()


def test_a_head_has_no_stream(api: Served, view: Published) -> None:
    held = {"Authorization": f"Bearer {api.settings.reader_key.get_secret_value()}"}
    head = httpx.head(f"{api.url}/views/{view.compiled.name}/changes", headers=held)
    assert (head.status_code, head.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
