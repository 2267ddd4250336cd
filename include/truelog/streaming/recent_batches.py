"""The last small batches of an application, as files, for views that are late.

A late view takes all batches that it lacks as one portion. It copies their files together, so no record is read from
the log or decoded again, and the portion costs little more than a batch. A late view therefore catches up even if it
needs longer for a batch than the log needs to grow by one.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain

from truelog.kernel.apply_batch import EventRange
from truelog.log.positions import Positions, Range
from truelog.log.records import are_few
from truelog.tables.staging import event_files

_MOST_BATCHES = 60  # also of a quiet log, where a batch has a tick and nothing else

Tasks = Sequence["Future[None]"]


@dataclass(frozen=True)
class _Kept:
    batch: EventRange
    ranges: Sequence[Range]
    resources: ExitStack  # deletes the batch's files
    tasks: Tasks  # of the views that read these files


class RecentBatches:
    """At most as many records and bytes as one small batch may have, in batches that follow without a gap."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._lock = threading.Lock()  # held while a view copies files, so that they are not deleted meanwhile

    def add(self, batch: EventRange, resources: ExitStack, tasks: Tasks) -> None:
        """Keep a batch of files, or one without events. Other views may still be added to `tasks`."""
        ranges = batch.begin.ranges_to(batch.end)
        with self._lock:
            if self._kept and not _equal(self._kept[-1].batch.end, batch.begin):
                self._forget(0)
            self._kept.append(_Kept(batch, ranges, resources, tasks))
            while len(self._kept) > 1 and self._are_too_many():  # the new batch is about to be used
                self._forget(len(self._kept) - 1)

    def forget(self) -> None:
        """Forget all batches, because the next ones have other columns, or their events are judged otherwise."""
        with self._lock:
            self._forget(0)

    @contextmanager
    def after(self, positions: Positions, topics: Iterable[str]) -> Iterator[Sequence[EventRange]]:
        """The batches from these positions in these topics on, whose files stay during the block.

        There are none if no batch begins exactly there.
        """
        topics = list(topics)
        with self._lock:
            batches = [each.batch for each in self._kept]
            begins = (n for n, each in enumerate(batches) if _equal(each.begin.only(topics), positions))
            yield batches[next(begins, len(batches)) :]

    def _are_too_many(self) -> bool:
        size = sum(each.batch.files.size for each in self._kept if each.batch.files)
        is_large = size > event_files.MOST_BYTES
        return is_large or len(self._kept) > _MOST_BATCHES or not are_few(chain(*(each.ranges for each in self._kept)))

    def _forget(self, remaining: int) -> None:
        while len(self._kept) > remaining:
            first = self._kept.popleft()
            close_after(first.tasks, first.resources)


def close_after(tasks: Tasks, resources: ExitStack) -> None:
    """Close the resources as soon as these tasks have ended."""
    if late := [task for task in tasks if not task.done()]:
        threading.Thread(target=_wait_and_close, args=(late, resources), daemon=True).start()
    else:
        resources.close()


def _wait_and_close(tasks: Tasks, resources: ExitStack) -> None:
    wait(tasks)
    resources.close()


def _equal(one: Positions, other: Positions) -> bool:
    return one.covers(other) and other.covers(one)
