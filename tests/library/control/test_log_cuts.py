"""Which readers are past an open cut, compared with a log that remembers its records."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from truelog.control.log_cuts import OpenCut


@dataclass
class Log:
    """One partition. Each epoch begins with a restart, which may cut the log; readers keep what they have read."""

    records: list[int] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # of epochs: epoch, first offset
    readers: list[tuple[int, list[int]]] = field(default_factory=list)  # epoch, records
    sent: int = 0

    def send(self, count: int) -> None:
        self.records += range(self.sent, self.sent + count)
        self.sent += count

    def restart(self, lost: int) -> None:
        end, epoch = max(0, len(self.records) - lost), self.starts[-1][0] + 1
        self.records = self.records[:end]
        self.starts = [(e, start) for e, start in self.starts if start < end] + [(epoch, end)]

    def read(self, count: int) -> None:
        self.readers.append((self.starts[-1][0], self.records[:count]))

    def end_of(self, epoch: int) -> int:
        """The broker's answer: where the newest epoch up to this one ends."""
        return next((start for e, start in self.starts if e > epoch), len(self.records))

    def cuts(self) -> set[tuple[int, int]]:
        """The end and the epoch of each cut that a reader finds."""
        found = ((self.end_of(epoch), epoch, len(read)) for epoch, read in self.readers)
        return {(end, epoch) for end, epoch, position in found if end < position}


steps = st.lists(st.tuples(st.sampled_from(["send", "restart", "read"]), st.integers(0, 12)), max_size=25)


@given(steps)
def test_exactly_the_readers_that_have_read_lost_records_are_past_a_cut(history: list[tuple[str, int]]) -> None:
    log = Log()
    for step, count in history:
        getattr(log, step)(count)
    cuts = sorted(log.cuts())
    cut = OpenCut("t", "id", 0, tuple(end for end, _ in cuts), tuple(epoch for _, epoch in cuts), None)
    for epoch, read in log.readers:
        assert cut.is_past(len(read), epoch) == (read != log.records[: len(read)])
