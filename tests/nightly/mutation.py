"""Mutation run: alters one place of a module at a time, and lists the alterations that no test notices.

    python -m tests.nightly.mutation [--minutes N] [--skip N] [--line N …] MODULE

The module is a key of `SUITES`. One pytest process runs its tests again for each alteration, so that PostgreSQL, S3 and
Spark start once. The alteration replaces the code of the module's functions in memory, and no file changes. The
tests run without an alteration at the beginning, after every tenth alteration and at the end. If they fail then, the
run ends with an error, because an alteration has damaged the services.

The alterations run in a random order with a fixed seed. If `--minutes` limits the run, it reports how many ran, and
`--skip` leaves out as many as an earlier run has done. `--line` runs the alterations of some lines alone, with which
new tests are tried. `docs/mutation.md` keeps the report, and explains each alteration that survives.
"""

import argparse
import importlib
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.nightly.alterations import Alteration, alterations, applied, load

LIBRARY = Path(__file__).parents[2] / "include" / "truelog"

# The narrowest tests that should notice every alteration of a module. All of them call the module in their own process.
SUITES: dict[str, tuple[str, ...]] = {
    "log/positions.py": (
        "tests/library/log/test_positions.py",
        "tests/library/sources/collector/test_position_token.py",
    ),
    "batch/partial_selection.py": ("tests/library/batch/test_partial_selection.py",),
    "archive/log_day.py": ("tests/library/archive/test_log_day.py",),
    "kernel/merge.py": (
        "tests/library/kernel/test_merge.py",
        "tests/library/kernel/test_merge_erasures.py",
        "tests/library/kernel/test_merge_guards.py",
    ),
    "kernel/apply_batch.py": (
        "tests/library/kernel/test_apply_batch_guards.py",
        "tests/library/kernel/test_apply_batch.py",
    ),
    "kernel/log_guard.py": ("tests/library/kernel/test_log_guard.py", "tests/library/kernel/test_log_guard_cuts.py"),
    "log/topic_health.py": ("tests/library/log/test_topic_health.py", "tests/library/kernel/test_log_guard_cuts.py"),
    "control/log_cuts.py": ("tests/library/control/test_log_cuts.py",),
    "log/leader_epochs.py": ("tests/library/log/test_leader_epochs.py", "tests/library/log/test_topic_health.py"),
    "streaming/change_watch.py": (
        "tests/library/streaming/test_change_watch_causes.py",
        "tests/library/streaming/test_change_watch.py",
    ),
    "streaming/stream_topics.py": ("tests/library/streaming/test_stream_topics_changes.py",),
    "maintenance/accept_cut.py": ("tests/library/maintenance/test_accept_cut_steps.py",),
    "tables/output/outbox.py": ("tests/library/tables/output/test_outbox.py",),
    "kernel/bad_records.py": (
        "tests/library/kernel/test_bad_records.py",
        "tests/library/kernel/test_bad_records_search.py",
        "tests/library/kernel/test_bad_records_frames.py",
    ),
    "kernel/exclusions.py": ("tests/library/kernel/test_exclusions_protocol.py",),
    "kernel/clock.py": ("tests/library/kernel/test_clock.py", "tests/laws/test_clock.py"),
    "log/valid_tick.py": ("tests/library/log/test_valid_tick.py",),
    "log/clock_guard.py": ("tests/library/log/test_clock_guard.py", "tests/library/log/test_clock_guard_newest.py"),
    "reconcile/comparison/clock_check.py": ("tests/library/reconcile/comparison/test_clock_check_guard.py",),
    "tables/fold/failing.py": (
        "tests/library/tables/fold/test_failing_search.py",
        "tests/library/tables/fold/test_failing_left_out.py",
    ),
    "tables/fold/merge.py": ("tests/library/tables/fold/test_merge.py",),
    "archive/commit.py": ("tests/library/archive/test_commit.py",),
    "tables/table_hash.py": ("tests/laws/test_golden_digest.py", "tests/laws/test_digest.py"),
    "reconcile/row_diff.py": ("tests/library/reconcile/test_row_diff.py",),
    "reconcile/repair.py": ("tests/library/reconcile/test_repair.py",),
    "batch/base.py": ("tests/laws/test_base.py", "tests/library/batch/test_base.py"),
    "batch/rebuild.py": (
        "tests/library/batch/test_rebuild.py",
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_repair.py",
        "tests/laws/test_stream_equals_batch.py",
    ),
    "batch/partials.py": ("tests/library/maintenance/test_upkeep.py", "tests/laws/test_stream_equals_batch.py"),
    "reconcile/comparison/compare.py": (
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_reconcile_snapshot.py",
        "tests/library/reconcile/test_root_cause.py",
    ),
    "reconcile/reconcile.py": (
        "tests/library/reconcile/test_reconcile.py",
        "tests/library/reconcile/test_repair.py",
        "tests/library/reconcile/test_certificate_verifier.py",
        "tests/library/reconcile/test_root_cause.py",
    ),
}
# An alteration that hangs a test is noticed. The limit is a multiple of the test's usual time, and at least so long.
_LEAST_LIMIT, _LIMIT = 10, 120  # seconds; the second one is that of a test without an alteration
_USUAL_TIMES = 5
_LATE = "the test did not end within"
_SEED = 20261122
_HEALTH_EVERY = 10  # alterations


class _Pause(pytest.Item):
    """The item after the last one: every fixture of a module ends before it, and those of the session stay."""

    def runtest(self) -> None:
        raise AssertionError


class MutationRun:
    """A pytest plugin that runs the collected tests once for each alteration."""

    def __init__(self, name: str, minutes: float | None, skip: int, lines: Sequence[int]) -> None:
        self.name, self.minutes, self.skip, self.lines = name, minutes, skip, lines
        source = (LIBRARY / name).read_text()
        self.every = list(alterations(source))
        self.module = importlib.import_module("truelog." + name.removesuffix(".py").replace("/", "."))
        self.survived: list[Alteration] = []
        self.usual: dict[str, float] = {}  # the least time in seconds of each test without an alteration

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for _ in range(2):  # the first time, services start
            self._require_health(session)
        began, run, left = time.monotonic(), 0, list(self.every)
        random.Random(_SEED).shuffle(left)
        if self.lines:
            left = [each for each in left if each.line in self.lines]
        for each in left[self.skip :]:
            if self.minutes is not None and time.monotonic() - began > 60 * self.minutes:
                break
            self._try(session, each)
            run += 1
            if run % _HEALTH_EVERY == 0:
                self._require_health(session)
        self._require_health(session)
        _tell(f"{self.name}: {len(self.every)} alterations, {run} ran, {len(self.survived)} survived")
        return True

    def _try(self, session: pytest.Session, each: Alteration) -> None:
        started = time.monotonic()
        try:
            namespace = load(each, self.module)
        except Exception:  # every import of the module would fail
            _tell(f"{each}: noticed by the import")
            return
        with applied(each, self.module, namespace) as is_applied:
            test = self._first_failure(session) if is_applied else None
        if test is None:
            self.survived.append(each)
        result = f"noticed by {test}" if test else "SURVIVED" if is_applied else "SURVIVED (not applied)"
        _tell(f"{time.monotonic() - started:5.1f} s {each}: {result}")

    def _require_health(self, session: pytest.Session) -> None:
        if test := self._first_failure(session, is_altered=False):
            raise pytest.UsageError(f"without an alteration, {test} fails")

    def _first_failure(self, session: pytest.Session, *, is_altered: bool = True) -> str | None:
        pause = _Pause.from_parent(session, name="pause")
        for number, item in enumerate(session.items):
            following = session.items[number + 1] if number + 1 < len(session.items) else pause
            failed = self._failure_of(item, following, is_altered)
            if failed is not None:
                if not is_altered:
                    _tell(failed)
                session._setupstate.teardown_exact(pause)
                return item.name + (", which did not end" if _LATE in failed else "")
        return None

    def _failure_of(self, item: pytest.Item, following: pytest.Item, is_altered: bool) -> str | None:
        """The text of the failure of one test; None if it passes."""
        if hasattr(item, "_initrequest"):
            item._initrequest()
        began, usual = time.monotonic(), self.usual.get(item.nodeid, _LIMIT)
        limit = min(_LIMIT, max(_LEAST_LIMIT, _USUAL_TIMES * usual)) if is_altered else _LIMIT
        try:
            with _limit(limit):
                reports = runtestprotocol(item, log=False, nextitem=following)
        except TimeoutError as late:  # between two phases of the test
            return str(late)
        if failed := [str(report.longrepr) for report in reports if report.failed]:
            return failed[0]
        if not is_altered:
            self.usual[item.nodeid] = min(usual, time.monotonic() - began)
        return None


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"{_LATE} {seconds:.0f} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # again if the code hides the error
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _tell(text: str) -> None:
    sys.__stdout__.write(f"{text}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--line", type=int, action="append", default=[])
    parser.add_argument("module", choices=SUITES, metavar="MODULE")
    given = parser.parse_args()
    plugin = MutationRun(given.module, given.minutes, given.skip, given.line)
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:randomly"]
    return int(pytest.main([*options, *SUITES[given.module]], plugins=[plugin]))


if __name__ == "__main__":
    sys.exit(main())
