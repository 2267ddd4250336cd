"""Subscribers: each has a bounded queue of messages. Whoever reads too slowly is ended, and misses nothing silently."""

import asyncio
import json
from collections import deque
from collections.abc import Iterable

from truelog.services.api.changes.outbox import Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.step import event

MOST_BYTES = 4 * 2**20  # of the messages that a subscriber has not taken yet

Message = tuple[Place, bytes]  # the place after the message


class Subscriber:
    """What one client follows, and what it has not got yet."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.place: Place | None = None  # up to which everything is sent, or in the queue
        self._queue = deque[Message]()
        self._bytes, self._most = 0, MOST_BYTES  # in the queue, and how many may be
        self._first = 0  # messages of the beginning that are still in the queue
        self._ended: bytes | None = None
        self._woken = asyncio.Event()

    def begin(self, place: Place, messages: Iterable[Message]) -> None:
        """Send these messages first. What is in the queue already and not behind `place` is contained in them."""
        first, behind = list(messages), [each for each in self._queue if each[0].number > place.number]
        self._queue = deque([*first, *behind])
        self._bytes = sum(len(message) for _, message in self._queue)
        self._most, self._first = MOST_BYTES + sum(len(message) for _, message in first), len(first)
        self.place = behind[-1][0] if behind else place
        self._woken.set()

    def put(self, place: Place, message: bytes) -> None:
        """Send a step. Too many waiting steps end the subscriber."""
        if self._ended is not None or (self.place is not None and place.number <= self.place.number):
            return  # the rows at the beginning may be ahead of the tail, and contain the step
        self._queue.append((place, message))
        self._bytes += len(message)
        if self.place is not None:
            self.place = place
        if self._bytes > self._most:
            self.resync("the changes came faster than you have read them")
        self._woken.set()

    def resync(self, reason: str) -> None:
        """End, and let the client begin again with the rows, because the next change is not known."""
        self._queue.clear()
        self._bytes = 0
        self._end(resync_message(reason, self.place))

    def forget_before(self, number: int, reason: str) -> None:
        """Begin again if a message before this number waits, because nothing may send it any longer."""
        if self._queue and self._queue[0][0].number < number:
            self.resync(reason)

    def end(self) -> None:
        """End after what is in the queue. The client goes on from its place."""
        self._end(b"")

    def _end(self, message: bytes) -> None:
        self._ended = message if self._ended is None else self._ended
        self._woken.set()

    async def take(self, seconds: float) -> bytes | None:
        """The next messages. Empty if none came in time, and None after the last one."""
        if not self._queue and self._ended is None:
            self._woken.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            except TimeoutError:
                if not self._queue and self._ended is None:  # or a message came just now
                    return b""
        if self._queue:
            _, message = self._queue.popleft()
            self._bytes -= len(message)
            if self._first:
                self._most, self._first = self._most - len(message), self._first - 1
            return message
        last, self._ended = self._ended, b""
        return last or None


def resync_message(reason: str, place: Place | None) -> bytes:
    """The event that says: forget your rows, because changes since then are not known."""
    return event("resync", None, json.dumps({"reason": reason, "number": place.number if place else None}).encode())
