"""What a notification says, without a channel."""

import uuid
from datetime import UTC, datetime

import pytest

from truelog.notifications.message import Message, alertmanager, mail, pagerduty, webhook
from truelog.support.setting_groups.namespace import Names

NOW = datetime(2026, 3, 1, 3, tzinfo=UTC)


def message(text: str, says: str = "opened", namespace: str = "") -> Message:
    body = {"notification": "many", "kind": "row", "subject": "cart", "group": {}, "text": text, "row": {}}
    return Message(uuid.UUID(int=1), uuid.UUID(int=2), says, body, NOW, NOW, NOW, 0, Names(namespace))


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_channel_gets_a_blank_text(text: str) -> None:
    """A template may have nothing but a column, and the column may be NULL."""
    assert pagerduty(message(text))["payload"]["summary"] == "many: cart"
    assert webhook(message(text))["text"] == "many: cart"
    assert webhook(message(text, "resolved"))["text"] == "Resolved: many: cart"
    assert alertmanager(message(text))[0]["annotations"]["summary"] == "many: cart"
    assert mail(message(text), "a@example.org", "b@example.org")["Subject"] == "many: cart"
    assert webhook(message("a lamp"))["text"] == "a lamp"


def test_receivers_know_the_incidents_of_two_environments_apart() -> None:
    plain, red = message("a lamp"), message("a lamp", namespace="red")
    ids = str(plain.id), str(plain.incident)
    assert (webhook(plain)["id"], webhook(plain)["incident"]) == ids
    assert (webhook(red)["id"], webhook(red)["incident"]) == (f"red/{ids[0]}", f"red/{ids[1]}")
    assert pagerduty(plain)["dedup_key"] == ids[1]
    assert pagerduty(red)["dedup_key"] == f"red/{ids[1]}"
    assert pagerduty(message("", "resolved", "red"))["dedup_key"] == f"red/{ids[1]}"
    labels = alertmanager(red)[0]["labels"]
    assert (labels["incident"], labels["namespace"]) == (f"red/{ids[1]}", "red")
    assert "namespace" not in alertmanager(plain)[0]["labels"]
    assert mail(red, "a@example.org", "b@example.org")["Idempotency-Key"] == f"red/{ids[0]}"
