"""The verdict on the capture of a table is a pure function."""

from dataclasses import replace

import pytest

from truelog.capture.slot import Capture, Slot, Verdict, verdict

GOOD = Slot("reserved", active=True, retained=10, behind=0)
CASES = {
    "all is well": (Capture("t", GOOD), Verdict.OK, ""),
    "a restart of Connect, before it uses the slot": (Capture("t", Slot("reserved", False, 10, 0)), Verdict.OK, ""),
    "the slot retains as much as allowed": (Capture("t", Slot("extended", True, 100, 0)), Verdict.OK, ""),
    "the slot retains more": (Capture("t", Slot("extended", True, 101, 90)), Verdict.BEHIND, "retains"),
    "the connector failed": (Capture("t", GOOD, "FAILED: a reason"), Verdict.STOPPED, "FAILED: a reason"),
    "the table was refused, and has no slot": (
        Capture("t", refused="no primary key"),
        Verdict.STOPPED,
        "no primary key",
    ),
    "the slot was dropped": (Capture("t"), Verdict.LOST, "truelog capture snapshot t"),
    "the slot was dropped, and the connector stopped": (Capture("t", None, "FAILED"), Verdict.LOST, "snapshot t"),
    "the log was removed": (Capture("t", Slot("lost", False, None, None)), Verdict.LOST, "truelog capture snapshot t"),
    "the log is about to be removed": (Capture("t", Slot("unreserved", True, 9, 9)), Verdict.LOST, "snapshot t"),
    "the slot grows, and the database has no limit": (Capture("t", GOOD, growth=1e12), Verdict.OK, ""),
    "the slot grows, and the limit is far": (Capture("t", replace(GOOD, room=24 * 10**9), growth=1e9), Verdict.OK, ""),
    "the slot grows, and the limit is near": (
        Capture("t", replace(GOOD, room=23 * 10**9), growth=1e9),
        Verdict.BEHIND,
        "retains 1,000 MB an hour more, and the database gives it up in 23.0 hours",
    ),
    "the slot shrinks at the limit": (Capture("t", replace(GOOD, room=1), growth=-1e9), Verdict.OK, ""),
    "a lost slot comes before a failure": (Capture("t", Slot("lost", False, 1, 1), "FAILED"), Verdict.LOST, "snapshot"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_says_whether_changes_are_missing_and_what_to_do(case: str) -> None:
    capture, expected, words = CASES[case]
    found, reason = verdict(capture, most_retained=100)
    assert found is expected
    assert words in reason
