"""The recorded CPU seconds of `make test`, and the judgement of a run by them.

Machines differ in speed, and a busy machine needs more CPU seconds for the same work. Each run therefore also measures
a piece of reference work, between its test files, and the seconds of both runs are compared in units of that work.
Other work may slow down by another factor, so a run is judged only if the reference work took about as long as before.
"""

import json
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path("tests", "costs.json")  # in the project
ALLOWED_GROWTH = 0.05
COMPARABLE = 0.15  # most difference between the reference works of two runs
_NAMED = 10  # files in the message of a failure
_TEXT = b"".join(b"%d,%d;" % (number, number * number % 977) for number in range(4_000))


@dataclass(frozen=True)
class CostRecord:
    """What a whole run cost: the CPU seconds of each file, and of the piece of reference work in the same run."""

    markers: str  # the expression of `-m`, which selected the tests
    workers: int
    reference: float
    files: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.files.values())

    def at_speed_of(self, other: "CostRecord") -> "CostRecord":
        """These costs as the other run's machine would have measured them."""
        factor = other.reference / self.reference
        files = {name: seconds * factor for name, seconds in self.files.items()}
        return CostRecord(self.markers, self.workers, other.reference, files)


def reference_work() -> float:
    """The CPU seconds of a fixed piece of work in Python and in compiled code, about 20 ms."""
    began = time.thread_time()
    counts: dict[str, int] = {}
    for number in range(60_000):
        key = str(number % 997)
        counts[key] = counts.get(key, 0) + number
    for _ in range(3):
        zlib.compress(_TEXT, 6)
    return time.thread_time() - began


def incomparable(now: CostRecord, recorded: CostRecord) -> str:
    """Why the costs of this run cannot be compared with the record; empty if they can."""
    if (now.markers, now.workers) != (recorded.markers, recorded.workers):
        return (
            f"the record is of {recorded.workers} workers with -m '{recorded.markers}', "
            f"not of {now.workers} with -m '{now.markers}'"
        )
    slower = now.reference / recorded.reference - 1
    return f"the same work needed {slower:+.0%} CPU seconds" if abs(slower) > COMPARABLE else ""


def judge(now: CostRecord, recorded: CostRecord) -> str:
    """What is wrong with the costs of this run, and the cure; empty if nothing is wrong.

    Only the sum counts, because the costs of one file depend on what its worker has already started.
    """
    compared = now.at_speed_of(recorded)
    growth = compared.total / recorded.total - 1
    if growth <= ALLOWED_GROWTH:
        return ""
    return "\n".join(
        [
            f"The tests cost {compared.total:,.0f} CPU seconds, but the record has {recorded.total:,.0f}.",
            f"They may grow by {ALLOWED_GROWTH:.0%} and have grown by {growth:.1%}, these files most:",
            *_grown(compared, recorded),
            f"Make them cheaper, or accept the costs: run `make test COSTS=record` and commit {FILE}.",
        ]
    )


def _grown(now: CostRecord, recorded: CostRecord) -> list[str]:
    more = {name: seconds - recorded.files.get(name, 0) for name, seconds in now.files.items()}
    most = [name for name in sorted(more, key=lambda name: -more[name])[:_NAMED] if more[name] > 0]
    before = {name: f"was {seconds:,.1f} s" for name, seconds in recorded.files.items()}
    return [f"  {name}: {now.files[name]:,.1f} s, {before.get(name, 'new')}" for name in most]


def read_record(project: Path) -> CostRecord | None:
    file = project / FILE
    return CostRecord(**json.loads(file.read_text())) if file.is_file() else None


def write_record(project: Path, record: CostRecord) -> None:
    values = asdict(record) | {"reference": round(record.reference, 5)}
    values["files"] = {name: round(seconds, 1) for name, seconds in sorted(record.files.items())}
    (project / FILE).write_text(json.dumps(values, indent=1) + "\n")
