"""The queue of a subscriber is bounded, and the rows with which it begins do not count."""

import asyncio

import pytest

from truelog.services.api.changes import subscriber
from truelog.services.api.changes.filter import Filter
from truelog.services.api.changes.outbox import Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.subscriber import Subscriber
from truelog.services.api.rows.catalogue import Relation

ROWS, CHANGE = b"r" * 100, b"c" * 6  # bytes


def place(number: int) -> Place:
    return Place(1, number, f"of {number}")


@pytest.mark.parametrize("taken", [False, True])
def test_the_rows_of_the_beginning_make_room_only_for_themselves(monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """One change fits beside them, and two do not, whether they are taken or not."""
    monkeypatch.setattr(subscriber, "MOST_BYTES", 10)

    async def messages() -> list[bytes | None]:
        found = Subscriber(Prepared(Filter(Relation("sales", ("product",), {}, {}), ()), 1, (), ()))
        found.begin(place(1), [(place(1), ROWS)])
        first = [await found.take(0.0)] if taken else []
        found.put(place(2), CHANGE)
        found.put(place(3), CHANGE)
        return [*first, await found.take(0.0), await found.take(0.0)]

    *first, message, end = asyncio.run(messages())
    assert first == [ROWS] * taken
    assert message is not None
    assert (message.startswith(b"event: resync"), end) == (True, None)
