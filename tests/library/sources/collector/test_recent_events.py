"""Copies of events of browsers: each event is appended once, whenever its copies arrive."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from truelog.sources.collector.classifier import ClassifiedRecord, Defect
from truelog.sources.collector.producer import PartitionOffset
from truelog.sources.collector.recent_events import RecentEvents
from truelog.support.errors import ServiceDown


@dataclass
class Log:
    """Appends when its gate is open, or fails."""

    records: list[bytes] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False

    async def append(self, records: Sequence[ClassifiedRecord]) -> list[PartitionOffset]:
        await self.gate.wait()
        if self.fails:
            raise ServiceDown("Kafka is unavailable")
        begin = len(self.records)
        self.records += [each.value for each in records]
        return [(0, begin + n) for n in range(len(records))]


def event(name: str, topic: str = "page_view", **said: object) -> ClassifiedRecord:
    return ClassifiedRecord(topic, None, name.encode(), event_id=name, said={"event_id": name, **said})


def test_a_copy_has_the_place_of_the_first() -> None:
    async def scene() -> None:
        recent, log = RecentEvents(), Log()
        log.gate.set()
        assert await recent.append("shop", [event("a"), event("b"), event("a")], log.append) == [(0, 0), (0, 1), (0, 0)]
        assert await recent.append("shop", [event("b"), event("c")], log.append) == [(0, 1), (0, 2)]
        assert await recent.append("shop", [event("a", "click")], log.append) == [(0, 3)]  # of another type
        assert await recent.append("other", [event("a")], log.append) == [(0, 4)]  # of another key
        assert log.records == [b"a", b"b", b"c", b"a", b"a"]

    asyncio.run(scene())


def test_a_copy_may_be_sent_later_and_another_event_with_the_id_is_no_copy() -> None:
    async def scene() -> None:
        recent, log = RecentEvents(), Log()
        log.gate.set()
        # The two clocks of a page differ by a millisecond.
        first = event("a", url="/x", sent_at="10:00", occurred_at="09:59:59.500")
        again = event("a", sent_at="10:05", occurred_at="09:59:59.499", url="/x")
        assert await recent.append("shop", [first, again], log.append) == [(0, 0), (0, 0)]
        assert await recent.append("shop", [event("a", url="/y"), again], log.append) == [(0, 1), (0, 0)]

    asyncio.run(scene())


def test_a_copy_waits_for_the_first_that_is_in_progress() -> None:
    async def scene() -> None:
        recent, log = RecentEvents(), Log()
        both = [asyncio.create_task(recent.append("shop", [event("a")], log.append)) for _ in range(2)]
        await asyncio.sleep(0)
        log.gate.set()
        assert await asyncio.gather(*both) == [[(0, 0)], [(0, 0)]]
        assert log.records == [b"a"]

    asyncio.run(scene())


def test_if_the_first_fails_both_fail_and_a_later_copy_is_appended() -> None:
    async def scene() -> None:
        recent, log = RecentEvents(), Log(fails=True)
        both = [asyncio.create_task(recent.append("shop", [event("a")], log.append)) for _ in range(2)]
        await asyncio.sleep(0)
        log.gate.set()
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [type(each) for each in found] == [ServiceDown, ServiceDown]
        log.fails = False
        assert await recent.append("shop", [event("a")], log.append) == [(0, 0)]

    asyncio.run(scene())


@pytest.mark.parametrize("most", [1, 3])
def test_the_memory_is_bounded_and_dead_letters_are_not_in_it(most: int) -> None:
    async def scene() -> None:
        recent, log = RecentEvents(most), Log()
        log.gate.set()
        letter = ClassifiedRecord("dead_letter", None, b"bad", Defect("url", "missing"))
        await recent.append("shop", [letter, letter], log.append)
        await recent.append("shop", [event(str(n)) for n in range(5)], log.append)
        assert await recent.append("shop", [event(str(5 - most))], log.append) == [(0, 7 - most)]
        assert await recent.append("shop", [event("0")], log.append) == [(0, 7)]

    asyncio.run(scene())
