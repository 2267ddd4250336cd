"""A row of `build/bench.json`: the result of one engine for one job, its cost, and the other load on the machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

# The other load. "alone": only the services that the job needs are running. "all on": the whole platform is running,
# including Airflow, and the archive and the stream read the same events.
Ran = Literal["alone", "all on"]

OURS = "truelog"
QUIET = 0.2  # cores


@dataclass(frozen=True)
class Row:
    """A result. `ratio` is set only for other engines: our events per second ÷ theirs.

    `cpu_us_per_event` has the CPU microseconds per event by process, and their sum as `all`. `other_cores` is the
    number of cores that programs other than the measured ones used: above `QUIET`, only the CPU times are comparable.
    `reference_ms` is the CPU time of a fixed piece of work during the job: compare rows with about the same one.
    """

    job: str
    engine: str
    events_per_second: float
    ran: Ran
    note: str
    ratio: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    guarantees: str = ""
    cpu_us_per_event: Mapping[str, float] = field(default_factory=dict)
    other_cores: float | None = None
    reference_ms: float | None = None

    @property
    def is_quiet(self) -> bool:
        return self.other_cores is not None and self.other_cores <= QUIET

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        plain: dict[str, Any] = {
            "job": self.job,
            "engine": self.engine,
            "events_per_second": round(self.events_per_second, 1),
            "ran": self.ran,
            "note": self.note,
        }
        if self.ratio is not None:
            plain["ratio"] = round(self.ratio, 2)
        if self.guarantees:
            plain["guarantees"] = self.guarantees
        if self.cpu_us_per_event:
            plain["cpu_us_per_event"] = {name: round(value, 2) for name, value in self.cpu_us_per_event.items()}
        if self.other_cores is not None:
            plain["other_cores"] = round(self.other_cores, 2)
        if self.reference_ms is not None:
            plain["reference_ms"] = round(self.reference_ms, 1)
        return plain | {name: round(value, 4) for name, value in self.more.items()}


def beside(ours: Row, peer: Row) -> Row:
    """The other engine's row, with the ratio of our speed to that engine's speed for the same job."""
    if ours.job != peer.job:
        raise ValueError(f"{ours.job!r} and {peer.job!r} are different jobs")
    return replace(peer, ratio=ours.events_per_second / peer.events_per_second)


def compared(rows: Sequence[Row], peer: Row) -> Row:
    """The other engine's row, with a ratio if the same run has measured our job."""
    ours = [row for row in rows if row.job == peer.job and row.engine == OURS]
    return beside(ours[0], peer) if ours else peer
