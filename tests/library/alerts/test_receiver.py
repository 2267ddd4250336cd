"""Receivers know an alert by its key, and two environments have the same alerts."""

from datetime import UTC, datetime

from truelog.alerts.receiver import alertmanager, email, pagerduty
from truelog.alerts.rules import Transition
from truelog.alerts.sources.outbox import Notification
from truelog.support.settings import Settings

KEY = "application_down/stream"


def test_receivers_know_the_alerts_of_two_environments_apart(settings: Settings) -> None:
    red = settings.model_copy(update={"namespace": "red"})
    now = datetime(2026, 3, 1, tzinfo=UTC)
    opened, resolved = (
        Notification(1, transition, "application_down", "stream", "stopped", now, None)
        for transition in (Transition.OPEN, Transition.RESOLVED)
    )
    for notice in (opened, resolved):
        assert (pagerduty(settings, notice)["dedup_key"], pagerduty(red, notice)["dedup_key"]) == (KEY, f"red/{KEY}")
        assert alertmanager(red, notice)[0]["labels"]["namespace"] == "red"
        assert "namespace" not in alertmanager(settings, notice)[0]["labels"]
    assert f"red/{KEY}" in email(red, opened)[1]
