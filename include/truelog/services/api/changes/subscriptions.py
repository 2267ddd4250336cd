"""Subscriptions: one reader of the outbox for all subscribers of this process.

A subscriber gets the rows at a number of the outbox and then each step behind it, without a gap or a repetition:

1. The subscriber joins the tail of its version of the view. From then on, its queue gets each step that the tail reads.
2. One statement reads the rows with the number of the last step that they contain. Or the client names the place up to
   which it has read, and the tail has the steps since then.
3. The steps in the queue up to this number are dropped.

The reader asks every 100 ms, with one small query for all views and all subscribers, and only while there are any.
A place has the random id of its transaction. If the outbox no longer has it, the subscribers begin again (`resync`).
"""

import asyncio
import logging
from contextlib import suppress

import psycopg
from psycopg_pool import PoolTimeout

from truelog.relay.spans import Spans
from truelog.services.api.access import Asker
from truelog.services.api.changes.outbox import PORTION, Head, OutboxReader, Prepared
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.push_spans import PushSpans
from truelog.services.api.changes.subscriber import Subscriber, resync_message
from truelog.services.api.changes.tail import Tail
from truelog.services.api.problem import Kind, Problem
from truelog.services.api.rows.connections import Connections
from truelog.services.api.rows.reads import Replaced, require_not_held
from truelog.services.api.rows.waiting import Version
from truelog.support.errors import BadInput

_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_NOT_FOLLOWED = (
    "readers see another version of the view or none, or it no longer publishes, or it is held back after a restore"
)
_GONE = "the changes since this place are no longer known"

log = logging.getLogger(__name__)


class Subscriptions:
    """The subscribers of this process."""

    def __init__(self, connections: Connections, rows: int, most_bytes: int, spans: Spans | None = None) -> None:
        self._pool = connections.short
        self._pushed = PushSpans(spans or Spans(), self._pool)
        self._rows, self._bytes = rows, most_bytes  # that a subscriber may begin with
        self.outbox = OutboxReader(connections)
        self._tails: dict[Version, Tail] = {}
        self._reading = asyncio.Lock()  # one reading at a time moves or extends the tails
        self._task: asyncio.Task[None] | None = None

    async def subscribe(self, view: str, prepared: Prepared, after: str | None, asker: Asker) -> Subscriber:
        """A subscriber of a view for a sender, with its first messages. The caller unsubscribes it.

        Raises:
            Replaced: the reader gets another version than `prepared` is of.
            Problem: the view does not publish its changes, or cannot be followed at the moment.
            BadInput: the rows are too many to begin with.
        """
        subscriber = Subscriber(prepared)
        tail = await self._join(view, subscriber)
        try:
            if after is None or not await self._go_on(view, tail, subscriber, Place.parse(after)):
                await self._begin(view, subscriber, asker, is_resync=after is not None)
        except BaseException:
            self.unsubscribe(view, subscriber)
            raise
        return subscriber

    async def head(self, view: str, version: int, slot: int | None) -> Head:
        """How far the changes of a version are.

        slot: of a reader that has not asked for the version.

        Raises:
            Replaced: the reader gets another version now.
            Problem: the version does not publish its changes, or is held back after a restore.
        """
        heads = await self.outbox.heads([(view, version)])
        if (view, version) not in heads:
            await require_not_held(self._pool, view, version)
            if slot is not None and await self.outbox.version_of(view, slot) != version:
                raise Replaced(view)
            reason = f"version {version} of {view} does not publish its changes; its file must say `publish=True`"
            raise Problem(409, reason, Kind.NOT_PUBLISHED)
        return heads[view, version]

    def unsubscribe(self, view: str, subscriber: Subscriber) -> None:
        """Forget a subscriber. A tail without subscribers is forgotten too."""
        version = view, subscriber.prepared.version
        if (tail := self._tails.get(version)) is not None:
            tail.remove(subscriber)
            if not tail.subscribers:
                del self._tails[version]

    def place(self, view: str, subscriber: Subscriber) -> Place | None:
        """Up to where a subscriber without messages in its queue knows everything."""
        tail, own = self._tails.get((view, subscriber.prepared.version)), subscriber.place
        if tail is None or own is None or tail.place.number <= own.number:
            return own
        return tail.place

    async def close(self) -> None:
        """End all subscribers, and the reader."""
        for tail in self._tails.values():
            for each in tail.subscribers:
                each.end()
        self._tails.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(psycopg.Error, PoolTimeout):
            await self._pushed.look(at_once=True)
        await asyncio.to_thread(self._pushed.close)

    async def _join(self, view: str, subscriber: Subscriber) -> Tail:
        prepared = subscriber.prepared
        version = view, prepared.version
        async with self._reading:
            tail = self._tails.get(version)
            if tail is not None and not tail.is_for(prepared):
                await self._advance()  # readers may have moved since the last reading
                tail = self._tails.get(version)
            if tail is None:
                head = await self.head(*version, prepared.slot)
                tail = Tail(head.place, head.slots)
            if not tail.is_for(prepared):
                raise Replaced(view)
            tail.add(subscriber)
            self._tails[version] = tail
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())
        return tail

    async def _begin(self, view: str, subscriber: Subscriber, asker: Asker, *, is_resync: bool) -> None:
        """Begin with the rows."""
        prepared = subscriber.prepared
        found = await self.outbox.rows(view, prepared, asker, self._rows, self._bytes)
        if found is None:
            raise Replaced(view)
        if found.layer != "stream":
            reason = f"readers of {view} get rows of the batch layer now, and only its stream has changes; retry later"
            raise Problem(503, reason, retry_after=5)
        if len(found.rows) > self._rows or found.size > self._bytes:
            most = f"{self._rows} rows and {self._bytes} bytes"
            raise BadInput(f"where: subscribers begin with at most {most}; name columns of the key")
        first = [(found.place, resync_message(_GONE, None))] if is_resync else []
        rows = found.message(view, prepared.filter.relation.key)
        subscriber.begin(found.place, [*first, (found.place, rows)])

    async def _go_on(self, view: str, tail: Tail, subscriber: Subscriber, place: Place | None) -> bool:
        """Go on behind a place, if that is possible and no more than the tail keeps or a beginning may be."""
        if place is None or place.version != tail.place.version:
            return False
        async with self._reading:
            if place.number > tail.place.number:
                await self._advance()  # the client may have got more from another process
            if tail.place.number - place.number > PORTION:
                return False  # the tail would drop the steps at once
            if place.number < tail.begin.number:
                steps = await self.outbox.steps_after(view, place)
                if steps is None:
                    return False
                earlier = [each for each in steps if each.place.number <= tail.begin.number]
                if not earlier or earlier[-1].place != tail.begin:
                    return False
                tail.extend(earlier, place)
            messages = tail.messages_after(place, subscriber.prepared)
            tail.trim()
            if messages is None or sum(len(message) for _, message in messages) > self._bytes:
                return False
            subscriber.begin(tail.place, messages)
            return True

    async def _follow(self) -> None:
        """Read while there are subscribers. While PostgreSQL is away, subscribers wait."""
        is_away = False
        while self._tails:
            try:
                if is_away:
                    await self._pool.check()  # replaces the connections that PostgreSQL has ended
                async with self._reading:
                    await self._advance()
                await self._pushed.look()
                is_away = False
            except (psycopg.Error, PoolTimeout) as error:
                if not is_away:
                    log.warning("subscribers wait for PostgreSQL: %s", error)
                is_away = True
            except Exception:
                log.exception("the changes of views cannot be read")
                for version, tail in list(self._tails.items()):
                    self._end(version, tail, "the API has a defect, which its log describes")
            await asyncio.sleep(_RETRY_SECONDS if is_away else _POLL_SECONDS)

    async def _advance(self) -> None:
        """Send all steps that are in the outbox, to the subscribers that still get the version."""
        heads = await self.outbox.heads(self._tails)
        for version, tail in list(self._tails.items()):
            head = heads.get(version)
            if head is None:
                self._end(version, tail, _NOT_FOLLOWED)
                continue
            tail.move(head.slots, _NOT_FOLLOWED)
            if not await self._read(version[0], tail, head):
                self._end(version, tail, _GONE)

    async def _read(self, view: str, tail: Tail, head: Head) -> bool:
        """Send the steps up to `head`, and forget the steps that the outbox has forgotten, as after an erasure.

        False if the outbox does not continue where the tail is.
        """
        while tail.place != head.place:
            steps = await self.outbox.steps_after(view, tail.place)
            if not steps:
                return False
            for step in steps:
                self._pushed.pushed(view, step, tail.tell(step))
            if tail.place.number >= head.place.number:
                break
        tail.forget_before(head.oldest, _GONE)
        return True

    def _end(self, version: Version, tail: Tail, reason: str) -> None:
        tail.resync(reason)
        if self._tails.get(version) is tail:
            del self._tails[version]
