"""What a notification says, without a channel."""

import uuid
from datetime import UTC, datetime

import pytest

from truelog.notifications.message import Message, alertmanager, mail, pagerduty, webhook

NOW = datetime(2026, 3, 1, 3, tzinfo=UTC)


def message(text: str, says: str = "opened") -> Message:
    body = {"notification": "many", "kind": "row", "subject": "cart", "group": {}, "text": text, "row": {}}
    return Message(uuid.UUID(int=1), uuid.UUID(int=2), says, body, NOW, NOW, NOW, 0)


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_channel_gets_a_blank_text(text: str) -> None:
    """A template may have nothing but a column, and the column may be NULL."""
    assert pagerduty(message(text))["payload"]["summary"] == "many: cart"
    assert webhook(message(text))["text"] == "many: cart"
    assert webhook(message(text, "resolved"))["text"] == "Resolved: many: cart"
    assert alertmanager(message(text))[0]["annotations"]["summary"] == "many: cart"
    assert mail(message(text), "a@example.org", "b@example.org")["Subject"] == "many: cart"
    assert webhook(message("a lamp"))["text"] == "a lamp"
