"""Read your own writes: waits until readers of a view see the records of a position token.

| token | answer |
| --- | --- |
| of events in topics that the view reads | as soon as the view has read them; after the wait, 409 with how far behind |
| of a copy | the same: the view reads a copy too, although it does not count it |
| of a topic that the view does not read | at once, because the view cannot depend on these events |
| of a dead letter | 409 at once, because no view counts it, unless the view reads dead letters |
| of a topic that was deleted and created again | 410 at once, because its positions mean other records |

All requests that wait share one query, which runs only while a request waits.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg_pool import AsyncConnectionPool

from truelog.log.positions import Positions
from truelog.services.api.problem import Kind, Problem
from truelog.support.errors import TopicRecreated

Lacking = Mapping[str, Mapping[int, int]]  # records by topic and partition
Version = tuple[str, int]  # a view and its version

_POLL_SECONDS = 0.05
_DEAD_LETTER = "dead_letter"
_REACHED = """
    SELECT view, version, reads, offsets::text, ids::text FROM truelog.served_version
    JOIN unnest(%s::text[], %s::integer[]) AS awaited(view, version) USING (view, version)
"""


@dataclass(frozen=True)
class Reached:
    """The topics that a version of a view reads, and the positions that its readers see."""

    reads: frozenset[str]
    positions: Positions


def positions_of(offsets: str, ids: str) -> Positions:
    """Positions from the columns of `truelog.served_version`."""
    return Positions.from_json(offsets, json.loads(ids))


def behind(view: str, reached: Reached, wanted: Positions) -> Lacking:
    """How many records of the token the view lacks, by topic and partition. Topics that it does not read are left out.

    Raises:
        Problem: the view will never count these records.
    """
    if _DEAD_LETTER in wanted.offsets and _DEAD_LETTER not in reached.reads:
        reason = "the event is a dead letter, so no view counts it; the collector's answer has the reason"
        raise Problem(409, reason, Kind.DEAD_LETTER, topic=_DEAD_LETTER)
    wanted = wanted.only(reached.reads)
    try:
        reached.positions.require_same_topics(wanted)
    except TopicRecreated as error:
        raise Problem(
            410, f"{view} and the token have different topics of one name: {error}", Kind.RECREATED
        ) from error
    lacking: dict[str, dict[int, int]] = {}
    for each in reached.positions.ranges_to(wanted):
        lacking.setdefault(each.topic, {})[each.partition] = each.end - each.start
    return lacking


class PositionWatch:
    """Reads the positions of all versions for which requests wait, again and again while there are any."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._waiting = Counter[Version]()
        self._next: asyncio.Future[Mapping[Version, Reached]] | None = None  # the next reading
        self._task: asyncio.Task[None] | None = None

    async def wait(self, version: Version, wanted: Positions, seconds: float, lacking: Lacking) -> Lacking:
        """Wait until readers of the version see these positions. Returns what it still lacks after this time.

        lacking: what it lacks now.

        Raises:
            Problem: readers will never see them.
        """
        self._waiting[version] += 1
        try:
            async with asyncio.timeout(seconds):
                while lacking and version in (reached := await self._reading()):
                    lacking = behind(version[0], reached[version], wanted)
                return {}
        except TimeoutError:
            return lacking
        finally:
            self._waiting[version] -= 1

    async def _reading(self) -> Mapping[Version, Reached]:
        """The next reading. All who wait share it."""
        if self._task is None or self._task.done():
            self._next = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._watch())
        assert self._next is not None  # noqa: S101
        return await asyncio.shield(self._next)

    async def _watch(self) -> None:
        """Read while requests wait. If PostgreSQL does not answer, all who wait get the error."""
        while awaited := [version for version, number in self._waiting.items() if number]:
            done, self._next = self._next, asyncio.get_running_loop().create_future()
            assert done is not None  # noqa: S101
            try:
                done.set_result(await self._read(awaited))
            except Exception as error:
                done.set_exception(error)
            await asyncio.sleep(_POLL_SECONDS)

    async def _read(self, awaited: list[Version]) -> Mapping[Version, Reached]:
        views, versions = [view for view, _ in awaited], [version for _, version in awaited]
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(_REACHED, (views, versions))).fetchall()
        return {
            (view, version): Reached(frozenset(reads or ()), positions_of(offsets, ids))
            for view, version, reads, offsets, ids in rows
        }


def late(view: str, lacking: Lacking, seconds: float) -> Problem:
    records = sum(number for by in lacking.values() for number in by.values())
    more: dict[str, Any] = {"records": records, "behind": {topic: dict(by) for topic, by in lacking.items()}}
    reason = f"{view} lacks {records} records of the token after {seconds:g} s; ask again, or read without `at_least`"
    return Problem(409, reason, Kind.BEHIND, retry_after=1, **more)
