"""The watch while PostgreSQL is down."""

import socket
import uuid

import pytest

from truelog.commands import watch
from truelog.commands.watch import Watch
from truelog.support.settings import Settings


def test_while_postgresql_is_down_the_watch_pauses_and_forgets_who_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise its thread would use a whole core until PostgreSQL is back."""
    pauses = list[float]()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    watching = Watch(Settings().model_copy(update={"database_host": "127.0.0.1", "database_port": port}))
    monkeypatch.setattr(watching._never, "wait", pauses.append)
    waiting = watching.submit(uuid.uuid4())
    watching.work()
    watching.work()
    assert pauses == [watch._RETRY_SECONDS] * 2
    waiting.cancel()
    watching.work()
    watching.work()
    assert pauses == [watch._RETRY_SECONDS] * 3  # the last call did not connect
