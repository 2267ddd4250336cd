"""A row of `build/bench.json`: the result of one engine for one job, and the other load on the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

# The other load. "alone": only the services that the job needs are running. "all on": the whole platform is running,
# including Airflow, and the archive and the stream read the same events.
Ran = Literal["alone", "all on"]

OURS = "truelog"


@dataclass(frozen=True)
class Row:
    """A result. `ratio` is set only for other engines: our events per second ÷ theirs."""

    job: str
    engine: str
    events_per_second: float
    ran: Ran
    note: str
    ratio: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, str | float]:
        """The stable form that scripts read."""
        plain: dict[str, str | float] = {
            "job": self.job,
            "engine": self.engine,
            "events_per_second": round(self.events_per_second, 1),
            "ran": self.ran,
            "note": self.note,
        }
        ratio = {} if self.ratio is None else {"ratio": round(self.ratio, 2)}
        return plain | ratio | {name: round(value, 4) for name, value in self.more.items()}


def beside(ours: Row, peer: Row) -> Row:
    """The other engine's row, with the ratio of our speed to that engine's speed for the same job."""
    if ours.job != peer.job:
        raise ValueError(f"{ours.job!r} and {peer.job!r} are different jobs")
    return replace(peer, ratio=ours.events_per_second / peer.events_per_second)
