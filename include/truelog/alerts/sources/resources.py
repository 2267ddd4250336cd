"""Finds resource problems: invalid events, a full disk, a clock that has jumped, and tables that are not captured."""

import shutil
import time
from collections.abc import Iterable

from truelog.alerts.rules import Finding, Observation
from truelog.capture import slot
from truelog.capture.slot import Verdict
from truelog.capture.source_table import captured_types
from truelog.control.application import ARCHIVE
from truelog.lag import history as lag_history
from truelog.lag.history import ReaderPoll
from truelog.log import clock_guard
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

DEAD_LETTER_KINDS, DISK_KINDS, CLOCK_KINDS = ("dead_letters",), ("disk_low",), ("clock_jumped",)
CAPTURE_KINDS = ("capture_stopped", "capture_behind")
_TOPIC = "dead_letter"
_WINDOW = 300.0  # seconds over which the rate is measured
_MIN_SPAN = 60.0  # seconds; a shorter history is not enough to measure a rate


def observe_dead_letters(settings: Settings) -> Observation:
    """Measure the rate of invalid events from the lag history of the archive, which reads every topic."""
    with db_snapshot.read_snapshot(settings) as connection:
        readings = lag_history.since(connection, time.time() - _WINDOW, ARCHIVE).get(ARCHIVE, [])
    rate = dead_letters_per_second(readings)
    finding = Finding(*DEAD_LETTER_KINDS, _TOPIC, f"{rate or 0:.1f} events a second in the last minutes")
    if rate is None:
        return Observation(unseen=frozenset({finding.key}))
    return Observation((finding,) if rate > settings.alert_dead_letters else ())


def dead_letters_per_second(readings: Iterable[ReaderPoll]) -> float | None:
    """The mean rate, or None if the readings contain too little data."""
    ends = []
    for reading in readings:
        samples = [sample for (topic, _), sample in reading.samples.items() if topic == _TOPIC]
        if samples and not any(sample.blind for sample in samples):
            ends.append((reading.at, sum(sample.end for sample in samples)))
    if not ends or (span := ends[-1][0] - ends[0][0]) < _MIN_SPAN:
        return None
    return (ends[-1][1] - ends[0][1]) / span


def observe_disk(settings: Settings) -> Observation:
    """Check the disk of the home, which contains the data of the embedded services.

    A service in a pod has no home. Kubernetes watches the disks there.
    """
    if settings.stores == "own" and not settings.home.exists():
        return Observation()
    usage = shutil.disk_usage(settings.home)
    share = usage.free / usage.total
    if share >= settings.alert_disk_share:
        return Observation()
    return Observation((Finding(*DISK_KINDS, "home", f"{share:.1%} of the disk of {settings.home} is free"),))


def observe_clock(settings: Settings) -> Observation:
    """Check whether the tick service holds the clock of the log after a jump."""
    with db_snapshot.read_snapshot(settings) as connection:
        hold = clock_guard.load_hold(connection)
    if hold is None or hold.confirmed is not None:
        return Observation()
    newest, machine = (f"{time:%Y-%m-%d %H:%M} UTC" for time in (hold.newest, hold.machine))
    cause = f"the newest tick is of {newest}; the machine's clock says {machine}"
    return Observation((Finding(*CLOCK_KINDS, "log", cause),))


def observe_capture(settings: Settings) -> Observation:
    """One finding for each table. If capture is off, there is nothing to find."""
    if not settings.capture:
        return Observation()
    findings = []
    for each in slot.captures(settings, captured_types(settings).values()):
        verdict, reason = slot.verdict(each, settings.capture_retained_bytes)
        if verdict is not Verdict.OK:
            kind = "capture_behind" if verdict is Verdict.BEHIND else "capture_stopped"
            findings.append(Finding(kind, each.event_type, f"{verdict}: {reason}"))
    return Observation(tuple(findings))
