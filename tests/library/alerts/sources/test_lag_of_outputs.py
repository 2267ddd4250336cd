"""What the source of alerts about outputs finds, and what `truelog output list` shows of the same rows."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.builders.outputs import an_output, forget_outputs, forget_relay, forget_rows, the_relay_looked
from tests.command import answer, truelog
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Observation
from truelog.alerts.sources import lag as alert_lag
from truelog.lag import output_lag
from truelog.storage.database import Connection
from truelog.support.settings import Settings

HOUR = timedelta(hours=1)


@pytest.fixture
def outputs(connection: Connection) -> Iterator[Connection]:
    yield connection
    forget_outputs(connection)
    forget_relay(connection)


def keys(observation: Observation) -> set[str]:
    assert {finding.kind for finding in observation.findings} <= KINDS.keys()
    return {finding.key for finding in observation.findings}


def test_an_output_that_is_behind_or_does_not_continue_is_found(postgresql: Settings, outputs: Connection) -> None:
    the_relay_looked(outputs, timedelta(seconds=1))
    an_output(outputs, "fine", sent=1, ago=HOUR)
    an_output(outputs, "young", ago=timedelta(seconds=5))
    assert alert_lag.observe_outputs(postgresql) == Observation()
    an_output(outputs, "late", ago=timedelta(seconds=70), trouble="Kafka is away")
    an_output(outputs, "restored", sent=1, trouble="resync: another history", ago=HOUR)
    found = alert_lag.observe_outputs(postgresql)
    assert keys(found) == {"output_behind/late", "output_resync/restored"}
    causes = {each.subject: each.cause for each in found.findings}
    assert causes["restored"] == "version 1: another history"
    assert "1 rows are not published" in causes["late"]
    assert causes["late"].endswith("Kafka is away")


def test_the_alert_says_before_rows_leave_the_outbox(postgresql: Settings, outputs: Connection) -> None:
    an_output(outputs, "late", ago=timedelta(seconds=70))
    for limit, is_near in ((2, False), (1, True)):
        limited = postgresql.model_copy(update={"outbox_rows": limit})
        [found] = alert_lag.observe_outputs(limited).findings
        assert (found.kind, "the output needs a resync" in found.cause) == ("relay_down", is_near)


@pytest.mark.parametrize("looked", [None, timedelta(seconds=31)])
def test_a_relay_that_is_down_is_found_once(
    postgresql: Settings, outputs: Connection, looked: timedelta | None
) -> None:
    if looked is not None:
        the_relay_looked(outputs, looked)
    assert alert_lag.observe_outputs(postgresql) == Observation()  # no view publishes
    an_output(outputs, "restored", sent=1, trouble="resync: another history", ago=HOUR)
    assert keys(alert_lag.observe_outputs(postgresql)) == {"output_resync/restored", "relay_down/relay"}
    forget_outputs(outputs)
    for name in ("one", "two"):
        an_output(outputs, name, ago=HOUR)
    an_output(outputs, "published", sent=1, ago=HOUR)
    found = alert_lag.observe_outputs(postgresql)
    assert keys(found) == {"relay_down/relay"}
    assert {name for name in ("one", "two", "published") if found.sees(f"output_behind/{name}")} == {"published"}


def test_the_list_of_outputs(postgresql: Settings, outputs: Connection) -> None:
    the_relay_looked(outputs, timedelta(seconds=1))
    assert answer("output", "list") == {"outputs": []}
    an_output(outputs, "fine", sent=1, ago=HOUR)
    [fine] = answer("output", "list")["outputs"]
    assert (fine["topic"], fine["waiting_rows"], fine["verdict"], fine["reason"]) == ("view.fine.v1", 0, "OK", "")
    an_output(outputs, "late", ago=timedelta(seconds=70))
    assert answer("output", "list", exit_code=1)["outputs"][1]["verdict"] == "WARN"
    shown = truelog("output", "list")
    assert (shown.returncode, "view.late.v1" in shown.stdout) == (1, True)


def test_the_rate_of_an_output_ignores_rows_that_were_published_and_deleted_before(outputs: Connection) -> None:
    an_output(outputs, "busy", sent=1, ago=timedelta(minutes=1))
    an_output(outputs, "quiet", sent=1, ago=HOUR)
    rates = {("busy", 1): 1 / 300, ("quiet", 1): 0.0}
    assert output_lag.publishing_rates(outputs) == rates
    forget_rows(outputs, "quiet")
    assert output_lag.publishing_rates(outputs) == rates
