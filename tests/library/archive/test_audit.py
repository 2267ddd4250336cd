"""The audit verdict in a table of cases: a sound partition, and each fault that a partition can have."""

from dataclasses import replace

import numpy as np
import pytest

from truelog.archive.audit import AuditedFile, Evidence, OffsetGap, faults, findings, overlaps
from truelog.archive.audit_offsets import runs


def file(first: int, last: int, **other: object) -> AuditedFile:
    made = AuditedFile(f"s3://b/{first}", 0, first, last, last - first + 1, 100, 100)
    return replace(made, **other)  # type: ignore[arg-type]


SOUND = Evidence(
    topic="page_view",
    partition=0,
    same_topic=True,
    began=0,
    position=10,
    committed=10,
    files=(file(0, 4), file(5, 9)),
    shared=0,
    holes=(),
    log_begins=0,
    log_ends=12,
)


def test_a_sound_partition_has_no_fault() -> None:
    report = findings([SOUND], orphans=3)
    assert (report.verdict, report.records(), report.records("another")) == ("SOUND", 10, 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(SOUND, files=(file(0, 4), file(5, 9, found_size=None))), "s3://b/5 is missing"),
        (replace(SOUND, files=(file(0, 4, found_size=7), file(5, 9))), "has 7 bytes instead of 100"),
        (replace(SOUND, shared=2), "2 records are archived twice"),
        (replace(SOUND, files=(file(0, 4), file(5, 10, records=5))), "[5, 10], but the archived range is [0, 10)"),
        (replace(SOUND, began=1), "contains [0, 4], but the archived range is [1, 10)"),
        (replace(SOUND, files=(file(0, 4),)), "the files contain 5 records, but 10 were committed"),
        (replace(SOUND, holes=(OffsetGap(3, 4, None),)), "[3, 4) is not archived"),
        (replace(SOUND, same_topic=False), "deleted and recreated"),
        (replace(SOUND, log_ends=9), "the log ends at 9"),
        (replace(SOUND, log_begins=11), "the log begins at 11"),
        (replace(SOUND, differing=(3, 7)), "2 records differ from the log, the first at 3"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_each_rule_describes_its_fault(broken: Evidence, message: str) -> None:
    [fault] = faults(broken)
    assert message in fault


def test_an_explained_hole_is_no_fault() -> None:
    holed = replace(SOUND, committed=9, files=(file(0, 4), file(6, 9)), holes=(OffsetGap(5, 6, "transaction marker"),))
    assert faults(holed) == []


def test_overlapping_bounds_are_found() -> None:
    assert overlaps([file(0, 4), file(5, 9)]) == []
    assert overlaps([file(0, 9), file(3, 5), file(8, 12)]) == [(3, 5), (8, 9)]


def test_runs_are_the_missing_offsets() -> None:
    assert runs(np.array([], np.bool_), 7) == []
    assert runs(np.array([True, False, False, True, True]), 10) == [(10, 11), (13, 15)]
    assert runs(np.array([False, False]), 0) == []
