"""The clock of the log after a jump: it waits until the jump is confirmed or has ended."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest

from tests.command import answer, truelog
from tests.laws.naive_clock import START
from truelog.alerts.sources import resources as alert_resources
from truelog.log import clock_guard
from truelog.log.clock_guard import ClockGuard
from truelog.storage.database import Connection
from truelog.support.settings import Settings

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
JUMPED = START + 30 * DAY


@pytest.fixture
def guard(postgresql: Settings, connection: Connection) -> Iterator[ClockGuard]:
    yield ClockGuard(postgresql, START)
    connection.execute("DELETE FROM truelog.clock_hold")
    connection.execute("DELETE FROM truelog.operation WHERE kind = 'clock'")


def alerts(settings: Settings) -> list[str]:
    return [each.key for each in alert_resources.observe_clock(settings).findings]


def test_time_goes_on_without_a_jump(postgresql: Settings, guard: ClockGuard) -> None:
    for now in (START + SECOND, START + DAY, START, START + 2 * DAY):
        assert guard.tick_time(now) == now
    assert alerts(postgresql) == []


def test_a_false_jump_is_forgotten_when_the_clock_is_right_again(postgresql: Settings, guard: ClockGuard) -> None:
    assert guard.tick_time(START + SECOND) == START + SECOND
    for second in range(3):
        assert guard.tick_time(JUMPED + second * SECOND) == START + SECOND
    assert alerts(postgresql) == ["clock_jumped/log"]
    assert guard.tick_time(START + 5 * SECOND) == START + 5 * SECOND
    assert alerts(postgresql) == []


def test_a_confirmed_jump_is_written(postgresql: Settings, connection: Connection, guard: ClockGuard) -> None:
    assert guard.tick_time(JUMPED) == START
    assert clock_guard.confirm_jump(connection, "ann") is not None
    assert alerts(postgresql) == []
    assert guard.tick_time(JUMPED + SECOND) == JUMPED + SECOND
    assert clock_guard.load_hold(connection) is None
    doers = connection.execute("SELECT doer FROM truelog.operation WHERE kind = 'clock'").fetchall()
    assert doers == [("ann",)]


def test_the_command_confirms(postgresql: Settings, guard: ClockGuard) -> None:
    assert guard.tick_time(JUMPED) == START
    said = answer("clock", "confirm")
    assert {name: str(value)[:10] for name, value in said.items()} == {
        "held": "True",
        "newest": f"{START:%Y-%m-%d}",
        "machine": f"{JUMPED:%Y-%m-%d}",
    }
    assert guard.tick_time(JUMPED + SECOND) == JUMPED + SECOND
    assert truelog("clock", "confirm").stdout == "the clock of the log has not jumped\n"


def test_a_confirmation_covers_no_later_jump(connection: Connection, guard: ClockGuard) -> None:
    assert guard.tick_time(JUMPED) == START
    clock_guard.confirm_jump(connection, "ann")
    assert guard.tick_time(JUMPED + 2 * DAY) == START


def test_a_restarted_service_continues_the_hold(
    postgresql: Settings, connection: Connection, guard: ClockGuard
) -> None:
    assert guard.tick_time(JUMPED) == START
    restarted = ClockGuard(postgresql, START)
    assert restarted.tick_time(JUMPED + SECOND) == START
    clock_guard.confirm_jump(connection, "ann")
    assert restarted.tick_time(JUMPED + 2 * SECOND) == JUMPED + 2 * SECOND


@pytest.mark.parametrize("error", [psycopg.OperationalError("down"), psycopg.errors.ReadOnlySqlTransaction("standby")])
def test_without_the_database_a_jump_is_held(
    postgresql: Settings, guard: ClockGuard, monkeypatch: pytest.MonkeyPatch, error: psycopg.Error
) -> None:
    def down(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(clock_guard, "connect", down)
    assert guard.tick_time(JUMPED) == START


def test_nothing_is_confirmed_without_a_jump(connection: Connection, guard: ClockGuard) -> None:
    assert clock_guard.confirm_jump(connection, "ann") is None


def test_an_empty_topic_has_no_jump(postgresql: Settings) -> None:
    now: datetime = START
    assert ClockGuard(postgresql, None).tick_time(now) == now


def test_a_confirmation_lasts_for_a_day(connection: Connection, guard: ClockGuard) -> None:
    assert guard.tick_time(JUMPED) == START
    clock_guard.confirm_jump(connection, "ann")
    assert guard.tick_time(JUMPED + DAY + SECOND) == START
    assert guard.tick_time(JUMPED + DAY) == JUMPED + DAY


def test_the_hold_that_an_earlier_process_has_left_is_removed_once(
    postgresql: Settings, connection: Connection, guard: ClockGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guard.tick_time(JUMPED) == START
    restarted = ClockGuard(postgresql, START)
    assert restarted.tick_time(START + SECOND) == START + SECOND
    assert clock_guard.load_hold(connection) is None
    monkeypatch.setattr(clock_guard, "connect", None)  # no later tick asks the database
    assert restarted.tick_time(START + 2 * SECOND) == START + 2 * SECOND


def test_a_jump_is_said_once_and_failures_are_said(
    postgresql: Settings, guard: ClockGuard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("down")

    def said() -> list[str]:
        found = [record.getMessage().partition(":")[0] for record in caplog.records]
        caplog.clear()
        return found

    assert guard.tick_time(START + SECOND) == START + SECOND  # and nothing is held
    for second in range(3):
        guard.tick_time(JUMPED + second * SECOND)
    [jumped] = said()
    assert jumped.startswith("the clock jumped from")
    with monkeypatch.context() as patched:
        patched.setattr(clock_guard, "connect", down)
        assert guard.tick_time(JUMPED) == START + SECOND
        assert guard.tick_time(START + 2 * SECOND) == START + 2 * SECOND
    assert said() == ["the jump cannot be confirmed", "the end of the hold is not recorded"]
    assert guard.tick_time(START + 3 * SECOND) == START + 3 * SECOND
    assert alerts(postgresql) == []
