"""The lag history of the last minutes in memory. Each poll is judged on it once, so that no page judges it again."""

import time
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace

from truelog.control.application import ARCHIVE, STREAM
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.lag.limits import limits
from truelog.lag.unread import Partition
from truelog.lag.verdict import Sample, assess
from truelog.storage.database import Connection
from truelog.support.settings import Settings


@dataclass
class LagWindow:
    """The samples of each reader's last polled version, oldest first."""

    settings: Settings
    _versions: dict[str, int] = field(default_factory=dict)
    _samples: dict[str, dict[Partition, deque[Sample]]] = field(default_factory=dict)

    @classmethod
    def loaded(cls, connection: Connection, settings: Settings) -> "LagWindow":
        """A window that continues the stored history of all readers."""
        window, longest = cls(settings), max(limits(settings, reader).window for reader in (ARCHIVE, STREAM))
        for readings in lag_history.since(connection, time.time() - longest).values():
            for reading in readings:
                window._add(reading)
        return window

    def judged(self, reading: ReaderPoll) -> ReaderPoll:
        """The reading, with a verdict for each partition."""
        samples, allowed = self._add(reading), limits(self.settings, reading.reader)
        for each in samples.values():
            while each and each[0].at < reading.at - allowed.window:
                each.popleft()
        found = {partition: assess(samples[partition], reading.at, allowed) for partition in reading.samples}
        return replace(reading, assessments=found)

    def _add(self, reading: ReaderPoll) -> dict[Partition, deque[Sample]]:
        """Append the samples of the reading. Forget other versions, and later samples, because a clock was set back."""
        if self._versions.get(reading.reader) != reading.version:
            self._versions[reading.reader] = reading.version
            self._samples[reading.reader] = defaultdict(deque)
        samples = self._samples[reading.reader]
        for partition, sample in reading.samples.items():
            history = samples[partition]
            while history and history[-1].at > sample.at:
                history.pop()
            history.append(sample)
        return samples
