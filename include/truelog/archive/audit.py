"""Audit: does the archive hold every record of the log, once, and do its files lie in the bucket?

Evidence is gathered first; the verdict is a pure function of it, by numbered rules. For each partition

1. every live file lies in the bucket, with the size that the table remembers;
2. no two files share a record;
3. no file reaches out of the range that was archived;
4. the files hold as many records as were committed;
5. offsets without a record are holes: a compacted topic explains them; elsewhere the broker is asked, and a record
   that it holds and the archive lacks is lost, as is one that it no longer holds;
6. the archive stands where the log is: not behind its beginning, not past its end, on the topic of the same id;
7. where bytes were compared with the log's, they are the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class File:
    """A live file as the table remembers it, and its size in the bucket; None where it is not there."""

    path: str
    partition: int
    first: int
    last: int
    records: int
    size: int
    found_size: int | None


@dataclass(frozen=True)
class Hole:
    """Offsets [start, end) without a record; `why` is how the log explains them, None if it does not."""

    start: int
    end: int
    why: str | None


@dataclass(frozen=True)
class Evidence:
    """All that is known of one partition."""

    topic: str
    partition: int
    same_topic: bool
    began: int
    position: int
    committed: int  # records, by the commits
    files: tuple[File, ...]
    shared: int  # records that lie in more than one file
    holes: tuple[Hole, ...]
    log_begins: int
    log_ends: int
    differing: tuple[int, ...] = ()  # offsets at which a deep audit found other bytes than the log's

    @property
    def name(self) -> str:
        return f"{self.topic} {self.partition}"


@dataclass(frozen=True)
class Report:
    """What the audit found. `faults` is empty where the archive is sound."""

    partitions: tuple[Evidence, ...]
    orphans: int  # files in the bucket that no table points at: of crashed batches, harmless
    faults: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return "BROKEN" if self.faults else "SOUND"

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        return {
            "verdict": self.verdict,
            "faults": list(self.faults),
            "orphans": self.orphans,
            "partitions": [_summary(each) for each in self.partitions],
        }


def findings(partitions: Iterable[Evidence], orphans: int) -> Report:
    """The verdict on this evidence."""
    evidence = tuple(partitions)
    return Report(evidence, orphans, tuple(fault for each in evidence for fault in faults(each)))


def faults(known: Evidence) -> list[str]:
    """What is wrong with one partition, rule by rule."""
    return [f"{known.name}: {found}" for rule in _RULES for found in rule(known)]


def _files_are_there(known: Evidence) -> list[str]:
    return missing_files(known.files)


def missing_files(files: Iterable[File]) -> list[str]:
    """Files that the table remembers, and that do not lie in the bucket as it does."""
    amiss = [f for f in files if f.found_size != f.size]
    return [
        f"{f.path} is gone from the bucket"
        if f.found_size is None
        else f"{f.path} has {f.found_size} bytes, not {f.size}"
        for f in amiss
    ]


def _no_record_twice(known: Evidence) -> list[str]:
    return [f"{known.shared} records are archived twice"] if known.shared else []


def _files_lie_in_range(known: Evidence) -> list[str]:
    out = [f for f in known.files if f.first < known.began or f.last >= known.position]
    archived = f"[{known.began}, {known.position})"
    return [f"{f.path} holds [{f.first}, {f.last}], archived is {archived}" for f in out]


def _nothing_is_missing(known: Evidence) -> list[str]:
    return missing_records(known.files, known.committed)


def missing_records(files: Iterable[File], committed: int) -> list[str]:
    """Whether the files hold other records than were committed."""
    held = sum(f.records for f in files)
    return [f"{held} records held, {committed} committed"] if held != committed else []


def _holes_are_explained(known: Evidence) -> list[str]:
    return [f"[{h.start}, {h.end}) is not archived, and the log does not say why" for h in known.holes if not h.why]


def _stands_where_the_log_is(known: Evidence) -> list[str]:
    if not known.same_topic:
        return ["the topic was deleted and made again"]
    if known.position > known.log_ends:
        return [f"archived up to {known.position}, the log ends at {known.log_ends}: it lost records"]
    if known.position < known.log_begins:
        return [f"archived up to {known.position}, the log begins at {known.log_begins}: records are lost"]
    return []


def _bytes_are_the_logs(known: Evidence) -> list[str]:
    if not known.differing:
        return []
    return [f"{len(known.differing)} records are not what the log holds, the first at {known.differing[0]}"]


_RULES = (
    _files_are_there,  # 1
    _no_record_twice,  # 2
    _files_lie_in_range,  # 3
    _nothing_is_missing,  # 4
    _holes_are_explained,  # 5
    _stands_where_the_log_is,  # 6
    _bytes_are_the_logs,  # 7
)


def overlaps(files: Iterable[File]) -> list[tuple[int, int]]:
    """Ranges [first, last] in which bounds of files overlap: a compaction may interleave, two batches must not."""
    ordered = sorted(files, key=lambda f: (f.first, f.last))
    reached, found = -1, []
    for file in ordered:
        if file.first <= reached:
            found.append((file.first, min(reached, file.last)))
        reached = max(reached, file.last)
    return found


def gaps(offsets: Iterable[int], begin: int, end: int) -> list[tuple[int, int]]:
    """The ranges within [begin, end) that hold none of these offsets, given in order."""
    return [(a + 1, b) for a, b in pairwise([begin - 1, *offsets, end]) if b > a + 1]


def _summary(known: Evidence) -> Mapping[str, Any]:
    plain = asdict(known)
    del plain["files"]
    return plain | {"files": len(known.files), "records": sum(f.records for f in known.files)}
