"""Which applications are being started, and therefore do not count as down."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from truelog.apps.launch_history import Launches, is_starting, resting_until
from truelog.control.application import STREAM, ApplicationStatus, Diagnosis
from truelog.control.lease import COMMAND
from truelog.reports import health
from truelog.support.settings import Settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DEAD = ApplicationStatus(STREAM, taken_at=NOW - HOUR, batch_at=NOW - timedelta(minutes=1))
LONG_AGO = NOW - timedelta(days=1)
NEVER = Launches(STREAM, None, None, 0, False, LONG_AGO)


def launched(reason: str, ago: timedelta, **more: Any) -> Launches:
    return replace(NEVER, reason=reason, launched_at=NOW - ago, **more)


@pytest.mark.parametrize(
    ("why", "status", "launch", "starting"),
    [
        ("it was killed", DEAD, launched("down", 2 * HOUR), False),
        (
            "it was killed and is being restarted",
            DEAD,
            launched("down", timedelta(seconds=5), launching=True),
            False,
        ),
        ("a release restarts it", DEAD, launched("changed", timedelta(seconds=5)), True),
        ("its task was cleared by hand", DEAD, launched("cleared by hand", timedelta(seconds=5), launching=True), True),
        ("a release restarted it, and it did not come up", DEAD, launched("changed", timedelta(minutes=4)), False),
        ("it is being stopped for a restart", DEAD, launched("down", 2 * HOUR, launching=True), True),
        ("the platform was just started", DEAD, launched("down", 2 * HOUR, platform_started_at=NOW - HOUR / 60), True),
        (
            "the platform was started, and it did not come up",
            DEAD,
            replace(NEVER, platform_started_at=NOW - HOUR / 12),
            False,
        ),
        (
            "it has run since the platform was started",
            replace(DEAD, taken_at=NOW - timedelta(seconds=30)),
            replace(NEVER, platform_started_at=NOW - timedelta(minutes=1)),
            False,
        ),
        ("it was never launched", ApplicationStatus(STREAM), NEVER, True),
        ("it is launched for the first time", ApplicationStatus(STREAM), launched("down", timedelta(seconds=9)), True),
        ("it never came up", ApplicationStatus(STREAM), launched("down", timedelta(minutes=4)), False),
        ("it is alive and hangs", replace(DEAD, alive=True), NEVER, False),
    ],
)
def test_an_application_that_is_starting_is_not_down(
    why: str, status: ApplicationStatus, launch: Launches, starting: bool
) -> None:
    assert is_starting(status, launch, NOW) is starting, why


def test_an_application_that_was_never_started_is_starting() -> None:
    new = ApplicationStatus(STREAM)
    assert health.state_name(Settings(), new, Diagnosis.DOWN, NEVER) == "STARTING"
    assert health.state_name(Settings(), DEAD, Diagnosis.DOWN, replace(NEVER, platform_started_at=LONG_AGO)) == "DOWN"


def test_an_application_whose_lease_a_command_holds_is_stopped() -> None:
    held = ApplicationStatus(STREAM, alive=True, code_running=COMMAND, taken_at=NOW)
    assert health.state_name(Settings(), held, None, NEVER) == "STOPPED"


@pytest.mark.parametrize(
    ("why", "found", "deaths", "rests_for"),
    [
        ("it died five times within five minutes", Diagnosis.DOWN, [200, 100, 50, 20, 1], 100),
        ("only the last five deaths count", Diagnosis.DOWN, [250, 200, 100, 50, 20, 1], 100),
        ("it died four times", Diagnosis.DOWN, [200, 100, 50, 1], None),
        ("the first death is too old", Diagnosis.DOWN, [301, 100, 50, 20, 1], None),
        ("it runs", None, [200, 100, 50, 20, 1], None),
        ("it waits for input", Diagnosis.NO_INPUT, [200, 100, 50, 20, 1], None),
    ],
)
def test_an_application_rests_after_repeated_deaths(
    why: str, found: Diagnosis | None, deaths: list[int], rests_for: int | None
) -> None:
    launch = replace(NEVER, died_at=[NOW - timedelta(seconds=seconds) for seconds in deaths])
    expected = None if rests_for is None else NOW + timedelta(seconds=rests_for)
    assert resting_until(Settings(), DEAD, found, launch, NOW) == expected, why


def test_a_hung_application_rests_longer_because_each_hang_is_detected_late() -> None:
    launch = replace(NEVER, died_at=[NOW - timedelta(seconds=400)] * 5)
    assert resting_until(Settings(), DEAD, Diagnosis.DOWN, launch, NOW) is None
    assert resting_until(Settings(), DEAD, Diagnosis.HUNG, launch, NOW) is not None
