"""Archive audit: checks that the archive contains every log record exactly once and that its files are in the bucket.

The evidence is gathered first; the verdict is a pure function of the evidence. The rules for each partition are:

1. Every live file is in the bucket, with the size that the table's metadata states.
2. No two files share a record.
3. No file contains records outside the archived range.
4. The files contain as many records as were committed.
5. Offsets without a record are holes. A hole is explained if the topic is compacted, if the loss was accepted, or if
   the broker still has the offsets and has no committed record there. A hole that the broker no longer has is explained
   if rules 2 and 4 hold: the commits then counted a record for every other offset, and none for the hole. Any other
   hole means lost records.
6. The archive's position is between the beginning and the end of the log, and the topic id has not changed. A topic
   that Kafka no longer has is not a fault, because its deletion may be intended, and no command accepts a deletion. The
   report names the topic, and the other rules apply to what was archived of it.
7. All bytes that were compared with the log are equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class AuditedFile:
    """A live file in the table's metadata, and the file's size in the bucket, or None if the file is missing there."""

    path: str
    partition: int
    first: int
    last: int
    records: int
    size: int
    found_size: int | None


@dataclass(frozen=True)
class OffsetGap:
    """Offsets [start, end) without a record; `why` is the explanation, or None if there is none."""

    start: int
    end: int
    why: str | None


@dataclass(frozen=True)
class Evidence:
    """The evidence about one partition."""

    topic: str
    partition: int
    same_topic: bool
    began: int
    position: int
    committed: int  # number of records according to the commits
    files: tuple[AuditedFile, ...]
    shared: int  # records that are in more than one file
    holes: tuple[OffsetGap, ...]  # the first holes, if there are very many
    log_begins: int
    log_ends: int
    missing: int = 0  # offsets in all holes
    erased: int = 0  # records that keep only their coordinates: an erasure covers them
    differing: tuple[int, ...] = ()  # the first offsets where a deep audit found bytes that differ from the log

    @property
    def name(self) -> str:
        return f"{self.topic} {self.partition}"


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit. `faults` is empty if the archive is sound."""

    partitions: tuple[Evidence, ...]
    orphans: int  # harmless files from crashed batches: in the bucket, but in no table
    faults: tuple[str, ...]
    gone: tuple[str, ...] = ()  # registered topics that Kafka no longer has

    @property
    def verdict(self) -> str:
        return "BROKEN" if self.faults else "SOUND"

    def records(self, *topics: str) -> int:
        """How many archived records there are, in all topics or in these."""
        audited = (each for each in self.partitions if not topics or each.topic in topics)
        return sum(file.records for each in audited for file in each.files)

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts."""
        return {
            "verdict": self.verdict,
            "faults": list(self.faults),
            "orphans": self.orphans,
            "gone_topics": list(self.gone),
            "partitions": [_summary(each) for each in self.partitions],
        }


def findings(partitions: Iterable[Evidence], orphans: int, gone: Iterable[str] = ()) -> AuditReport:
    """The verdict on this evidence."""
    evidence = tuple(partitions)
    found = tuple(fault for each in evidence for fault in faults(each))
    return AuditReport(evidence, orphans, found, tuple(sorted(gone)))


def faults(known: Evidence) -> list[str]:
    """The faults of one partition, in the order of the rules."""
    return [f"{known.name}: {found}" for rule in _RULES for found in rule(known)]


def _files_exist(known: Evidence) -> list[str]:
    return missing_files(known.files)


def missing_files(files: Iterable[AuditedFile]) -> list[str]:
    """A fault for each file that is missing from the bucket or whose size there differs from the table's metadata."""
    wrong = [f for f in files if f.found_size != f.size]
    return [
        f"{f.path} is missing from the bucket"
        if f.found_size is None
        else f"{f.path} has {f.found_size} bytes instead of {f.size}"
        for f in wrong
    ]


def _no_record_twice(known: Evidence) -> list[str]:
    return [f"{known.shared} records are archived twice"] if known.shared else []


def _files_are_in_range(known: Evidence) -> list[str]:
    return files_out_of_range(known.files, known.began, known.position)


def files_out_of_range(files: Iterable[AuditedFile], began: int, position: int) -> list[str]:
    """A fault for each file with records outside of [began, position)."""
    outside, archived = [f for f in files if f.first < began or f.last >= position], f"[{began}, {position})"
    return [f"{f.path} contains [{f.first}, {f.last}], but the archived range is {archived}" for f in outside]


def _all_records_are_held(known: Evidence) -> list[str]:
    return missing_records(known.files, known.committed)


def missing_records(files: Iterable[AuditedFile], committed: int) -> list[str]:
    """A fault if the files contain more or fewer records than were committed."""
    held = sum(f.records for f in files)
    return [f"the files contain {held} records, but {committed} were committed"] if held != committed else []


def _holes_are_explained(known: Evidence) -> list[str]:
    return [f"[{h.start}, {h.end}) is not archived, and the log does not explain why" for h in known.holes if not h.why]


def _position_is_in_the_log(known: Evidence) -> list[str]:
    if not known.same_topic:
        return ["the topic was deleted and recreated"]
    if known.position > known.log_ends:
        return [f"archived up to {known.position}, but the log ends at {known.log_ends}: the log lost records"]
    if known.position < known.log_begins:
        return [
            f"archived up to {known.position}, but the log begins at {known.log_begins}: the records between are lost"
        ]
    return []


def _bytes_equal_the_log(known: Evidence) -> list[str]:
    if not known.differing:
        return []
    return [f"{len(known.differing)} records differ from the log, the first at {known.differing[0]}"]


_RULES = (
    _files_exist,  # 1
    _no_record_twice,  # 2
    _files_are_in_range,  # 3
    _all_records_are_held,  # 4
    _holes_are_explained,  # 5
    _position_is_in_the_log,  # 6
    _bytes_equal_the_log,  # 7
)


def overlaps(files: Iterable[AuditedFile]) -> list[tuple[int, int]]:
    """The ranges [first, last] where file bounds overlap; compactions may interleave files, but batches must not."""
    ordered = sorted(files, key=lambda f: (f.first, f.last))
    end, found = -1, []
    for file in ordered:
        if file.first <= end:
            found.append((file.first, min(end, file.last)))
        end = max(end, file.last)
    return found


def _summary(known: Evidence) -> Mapping[str, Any]:
    plain = asdict(known)
    del plain["files"]
    return plain | {"files": len(known.files), "records": sum(f.records for f in known.files)}
