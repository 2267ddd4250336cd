"""`truelog alerts` and its subcommands, as people and scripts run them."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.command import answer, truelog
from tests.library.alert_tables import emptied
from truelog.alerts import store as alert_store
from truelog.alerts.rules import Finding, Observation
from truelog.alerts.scheduler import SOURCES, record
from truelog.storage.database import Connection
from truelog.support.durations import parse_brief
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql) as connection:
        yield connection


def test_from_an_alert_to_its_silence(postgresql: Settings, database: Connection) -> None:
    """Nothing has been checked at first. Then all is well, an alert opens, and Ann acknowledges and silences it."""
    assert answer("alerts", exit_code=3)["neglected"] == [source.name for source in SOURCES]

    for source in SOURCES:
        record(postgresql, database, source, Observation())
    assert answer("alerts") == {"alerts": [], "silences": [], "neglected": []}
    record(postgresql, database, SOURCES[0], Observation((Finding("application_down", "stream", "it <died> [red]"),)))
    [alert] = answer("alerts", exit_code=1)["alerts"]
    assert (alert["key"], alert["severity"], alert["cause"]) == (
        "application_down/stream",
        "critical",
        "it <died> [red]",
    )
    assert alert["kind"] == "application_down"
    assert alert["runbook"] == "docs/runbooks/application_down.md"

    assert answer("alerts", "ack", "application_down/stream", "--by", "ann")["acknowledged_by"] == "ann"
    made = answer("alerts", "silence", "application_down/*", "--for", "2h", "--why", "a new disk", "--by", "ann")
    shown = truelog("alerts")
    assert shown.returncode == 1
    for text in (
        "it <died> [red]",
        "ann",
        "a new disk",
        "docs/runbooks/application_down.md",
        f"silence {made['id']}: application_down/*",
    ):
        assert text in shown.stdout
    assert truelog("alerts", "unsilence", str(made["id"])).returncode == 0
    assert alert_store.active_silences(database) == []

    refused = truelog("alerts", "ack", "application_down/none", "--by", "ann")
    assert (refused.returncode, "No alert application_down/none is open" in refused.stderr) == (2, True)
    assert truelog("alerts", "silence", "*", "--for", "two hours", "--why", "").returncode == 2


def test_a_duration_is_one_word() -> None:
    assert [parse_brief(each) for each in ("90s", "30m", "2h", "1d", "1w")] == [
        timedelta(seconds=90),
        timedelta(minutes=30),
        timedelta(hours=2),
        timedelta(days=1),
        timedelta(weeks=1),
    ]
    for wrong in ("", "2", "h", "2 h", "-2h", "2.5h", "2hours", "9999999d"):
        with pytest.raises(BadDeclaration, match="is not a duration"):
            parse_brief(wrong)
