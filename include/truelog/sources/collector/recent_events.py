"""The latest events of browsers, so that a copy of an event is acknowledged and not stored again.

A page that is being closed cannot know whether its last request arrived. The next page therefore sends these events
again, with the same ids. A copy says the same as the first event, apart from `sent_at`, the time of the attempt, and
`occurred_at`, which the tracker corrects in each attempt. An event that says something else under a known id is stored,
because it would otherwise be lost.

The memory is that of one process: after a restart, or in another process, a copy enters the log. It then has the same
`event_id`, and counts once in a view with `dedupe`.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence

from truelog.sources.collector.classifier import ClassifiedRecord
from truelog.sources.collector.producer import PartitionOffset
from truelog.support.errors import ServiceDown

Append = Callable[[Sequence[ClassifiedRecord]], Awaitable[list[PartitionOffset]]]
_Place = asyncio.Future[PartitionOffset]
_OF_ATTEMPT = ("occurred_at", "sent_at")
_Name = tuple[str, str, str, bytes]


class RecentEvents:
    """The places of the last `most` events, by key, topic, id and content. Requests in progress count too."""

    def __init__(self, most: int = 50_000) -> None:
        self._most = most
        self._places: dict[_Name, _Place] = {}

    async def append(self, sender: str, records: Sequence[ClassifiedRecord], append: Append) -> list[PartitionOffset]:
        """Append the new records, and return the place of each record. That of a copy is the place of the first."""
        places: list[_Place] = []
        new: list[tuple[_Name | None, ClassifiedRecord, _Place]] = []
        for record in records:
            name = _name(sender, record)
            known = None if name is None else self._places.get(name)
            if known is None:
                known = asyncio.get_running_loop().create_future()
                new.append((name, record, known))
                if name is not None:
                    self._places[name] = known
            places.append(known)
        await self._append(new, append)
        return [await asyncio.shield(each) for each in places]

    async def _append(self, new: Sequence[tuple[_Name | None, ClassifiedRecord, _Place]], append: Append) -> None:
        try:
            found = await append([record for _, record, _ in new])
        except BaseException as failed:
            for name, _, place in new:
                if name is not None:
                    self._places.pop(name, None)
                place.set_exception(ServiceDown(f"the first copy of an event was not stored: {failed}"))
                place.exception()  # perhaps no request waits for it
            raise
        for (_, _, place), where in zip(new, found, strict=True):
            place.set_result(where)
        while len(self._places) > self._most:
            del self._places[next(iter(self._places))]


def _name(sender: str, record: ClassifiedRecord) -> _Name | None:
    """What a copy has in common with the first event; None if the record is a dead letter."""
    if record.event_id is None:
        return None
    said = json.dumps({name: value for name, value in record.said.items() if name not in _OF_ATTEMPT}, sort_keys=True)
    return sender, record.topic, record.event_id, hashlib.blake2b(said.encode(), digest_size=16).digest()
